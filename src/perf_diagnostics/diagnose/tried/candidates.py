"""What of a diagnosis is worth trying, the surest gain for its cost first."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Iterable, Iterator

from perf_diagnostics.diagnose.asking import void_trials
from perf_diagnostics.diagnose.facts.facts import Group, SweepFacts, ask
from perf_diagnostics.diagnose.finding import Diagnosis, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.hardware.sixteen_bits import half_format
from perf_diagnostics.diagnose.rule_parts.experiments import CEILING_OF, About, Candidate
from perf_diagnostics.diagnose.rules import RULES
from perf_diagnostics.errors import InvalidSettings
from perf_diagnostics.records import Run, Trial, TrialResult

#: Their remedies buy trust or memory and promise no time, so trying them against the clock would prove nothing.
_NOT_ABOUT_TIME = (Family.EXPERIMENT, Family.MEMORY)

CEILING_WORDS = {
    "cached_batches": "What no wait for data at all would win: 16 batches replayed from the device's memory.",
    "no_transfer": "What no copy to the device would win: each batch is waited for, and one already there is used.",
    "no_optimizer": "What an optimizer that costs nothing would win: gradients are made and cleared, never applied.",
}


def candidates(run: Run, diagnosis: Diagnosis, *, only: Collection[str] = ()) -> tuple[Candidate, ...]:
    """The remedies of the findings that a change of settings can try, and the ceilings of their families.

    Tried is at the batch where the finding holds: the recommended one, else the largest it names. Findings come in
    the order of the gain that is sure for what a pair of trials costs; infos, whose gain is a guess, come last, and a
    ceiling after the remedies it bounds. A change that several findings ask for stands once.

    Args:
        run: the run the diagnosis is about.
        diagnosis: as the rules gave it.
        only: codes of the findings to look at; empty: all but those about memory and about the experiment itself.

    Raises:
        InvalidSettings: a code in ``only`` is none of the diagnosis.
    """
    sweep = SweepFacts.of(run)
    sound = sweep.without(void_trials(RULES, sweep))
    groups = {group.label: group for group in sound.groups if group.points}
    primary = sound.primary
    chosen = _chosen(diagnosis, only)
    found: dict[str, Candidate] = {}
    places: dict[str, tuple[bool, float, int]] = {}
    for position, finding in enumerate(chosen):
        group = groups.get(finding.group) if finding.group else primary
        for candidate in [] if group is None else _of(finding, group):
            key = json.dumps([candidate.base.id, candidate.settings.canonical()], sort_keys=True)
            place = (finding.severity is Severity.INFO, -_worth(candidate), position)
            if key in found:
                found[key] = dataclasses.replace(found[key], about=_joined(found[key], candidate))
                places[key] = min(places[key], place)
            else:
                found[key], places[key] = candidate, place
    return tuple(found[key] for key in sorted(found, key=lambda key: (places[key][0], found[key].ceiling, places[key])))


def _chosen(diagnosis: Diagnosis, only: Collection[str]) -> list[Finding]:
    wanted = {code.upper() for code in only}
    there = {finding.code for finding in diagnosis.findings}
    unknown = sorted(wanted - there)
    if unknown:
        raise InvalidSettings(
            f"{unknown[0]} is no finding of this run; its findings are {', '.join(sorted(there)) or 'none'}."
        )
    return [
        finding
        for finding in diagnosis.findings
        if (finding.code in wanted if wanted else finding.family not in _NOT_ABOUT_TIME)
        and (finding.at_recommended or finding.severity is not Severity.INFO or wanted)
    ]


def _of(finding: Finding, group: Group) -> Iterator[Candidate]:
    base = _base(finding, group)
    if base is None:
        return
    for remedy in _remedies(finding, base.trial):
        settings = _changed(base.trial, remedy)
        if settings is None or settings == base.trial.settings or _has_no_units(base, remedy):
            continue
        yield Candidate(
            about=(About(finding.code, finding.group, finding.recoverable),),
            says=remedy.says,
            change=dict(remedy.change),
            base=base.trial,
            step_s=_step_s(base),
            start_s=(base.value("setup_s") or 0.0) + (base.value("first_step_s") or 0.0),
        )


def _has_no_units(base: TrialResult, remedy: Remedy) -> bool:
    """Whether a remedy, of whichever package's rule, asks for bfloat16 on a device without units for it."""
    return remedy.change.get("precision") == "bfloat16" and half_format(base) == "float16"


def _changed(base: Trial, remedy: Remedy) -> object:
    """The settings after a remedy; None where they cannot be put together, which no trial needs to find out."""
    try:
        return base.settings.replace(**remedy.change)
    except InvalidSettings:
        return None


def _remedies(finding: Finding, base: Trial) -> Iterable[Remedy]:
    yield from (remedy for remedy in finding.remedies if remedy.change)
    ceiling = CEILING_OF.get(finding.family)
    if ceiling is not None and not (ceiling == "no_transfer" and base.settings.device == "cpu"):
        yield Remedy(CEILING_WORDS[ceiling], {"ceiling": ceiling})


def _base(finding: Finding, group: Group) -> TrialResult | None:
    """The trial to change: at the recommended batch if the finding holds there, else at its largest measured one."""
    recommended = group.recommended.batch_size
    sizes = [size for size in finding.batch_sizes if size in group.batch_sizes]
    size = recommended if recommended in sizes or not sizes else sizes[-1]
    trial = next(point.trials[0] for point in group.points if point.batch_size == size)
    return None if trial.result.trial.settings.ceiling is not None else trial.result


def _step_s(base: TrialResult) -> float:
    from perf_diagnostics.diagnose.facts.facts import TrialFacts

    step = ask(lambda: TrialFacts.of(base).step_time_s)
    return 0.0 if step is None else step.value


def _worth(candidate: Candidate) -> float:
    """The gain that is sure, for the seconds that ten steps with all that comes before them cost."""
    sure = 0.0 if candidate.predicted is None else max(0.0, candidate.predicted.low)
    return sure / (1.0 + candidate.start_s + 10 * candidate.step_s)


def _joined(one: Candidate, other: Candidate) -> tuple[About, ...]:
    known = {(each.code, each.group) for each in one.about}
    return (*one.about, *(each for each in other.about if (each.code, each.group) not in known))
