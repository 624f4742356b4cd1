"""From records to a diagnosis: can the experiment be trusted, what do the rules say, and what is the verdict."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from perf_diagnostics.diagnose.asking import Placed, answered, ask_all, void_trials
from perf_diagnostics.diagnose.code.code_shares import all_code_shares, claimed_lines
from perf_diagnostics.diagnose.code_share import CodeShare
from perf_diagnostics.diagnose.deep import (
    WINDOWS_ALONE,
    Window,
    ask_windows,
    waterfall,
    what_is_inside,
    windows_of,
    with_windows,
)
from perf_diagnostics.diagnose.diagnosis_json import diagnosis_to_json
from perf_diagnostics.diagnose.facts.asked_for import asked_for
from perf_diagnostics.diagnose.facts.facts import NotMeasured, SweepFacts, TrialFacts, ask
from perf_diagnostics.diagnose.finding import Diagnosis, Family, Finding, Severity
from perf_diagnostics.diagnose.framework import framework_of
from perf_diagnostics.diagnose.installed import all_rules
from perf_diagnostics.diagnose.ranking import ranked
from perf_diagnostics.diagnose.rule import Rule, configured
from perf_diagnostics.diagnose.rule_parts.experiments import Experiments
from perf_diagnostics.diagnose.tried.followed import held_against_run
from perf_diagnostics.diagnose.tried.indirect import with_indirect_gains
from perf_diagnostics.diagnose.tried.outcomes import tried_of, with_tried
from perf_diagnostics.diagnose.tried.paced import capped_by_loader
from perf_diagnostics.diagnose.trust import tempered
from perf_diagnostics.diagnose.verdict import FAILED_TRIALS, HEALTHY, suspected, verdict, would_decide
from perf_diagnostics.diagnose.wording import counted, duration, listing, percent
from perf_diagnostics.records import ALL_PHASES, Outcome, Run

__all__ = ["diagnose", "diagnosis_to_json"]


def diagnose(
    run: Run,
    *,
    thresholds: Mapping[str, Mapping[str, float]] | None = None,
    rules: Sequence[Rule] | None = None,
    experiments: Experiments | None = None,
    traces: Mapping[str, Path] | None = None,
) -> Diagnosis:
    """Ask every rule about a run and weigh the answers.

    Args:
        run: the records of a sweep, of a user's own loop, or of anything that has the same form.
        thresholds: thresholds to change, by code and name: ``{"INP001": {"warn_share": 0.1}}``.
        rules: the rules to ask, in the order in which cleared and unchecked ones are listed; ours and those that other
            packages bring, unless some are given.
        experiments: what was tried of the advice this run gave; what it showed overrules what the rules predicted.
        traces: profiler windows of the run's trials, by trial id; ``RunFolder.traces()`` knows them.

    Raises:
        InvalidSettings: ``thresholds`` names an unknown rule or threshold, or a value that is no finite number; or a
            rule that another package brings cannot be loaded.
    """
    of_records = {code: change for code, change in (thresholds or {}).items() if code not in WINDOWS_ALONE}
    chosen = configured(all_rules() if rules is None else rules, of_records)
    of_experiment = [rule for rule in chosen if rule.family is Family.EXPERIMENT]
    of_performance = [rule for rule in chosen if rule.family is not Family.EXPERIMENT]
    sweep = SweepFacts.of(run)
    sound = sweep.without(void_trials(of_experiment, sweep))
    windows = windows_of(sound, traces or {})
    replies = ask_all(of_experiment, sweep, sound) + ask_all(of_performance, sound, sound)
    if windows or rules is None:  # who chooses rules is not told what windows would have answered
        replies = with_windows(replies, ask_windows(windows, sound, thresholds))
    primary = _primary(sound)
    about = _trial_about(sound, primary)
    tried = () if experiments is None else tried_of(experiments, of_script=run.of_own_training)
    predicted = capped_by_loader(with_indirect_gains(tempered(replies.placed), sound), sound)
    told = held_against_run(_told_where(_with_lines(predicted, sound)), sound, tried)
    ordered = ranked(with_tried(told, tried), primary)
    opened = waterfall(windows, sound)
    if primary is None:
        best, why = None, _nothing_sound(sweep, ordered)
    else:
        best, why = verdict(
            ordered,
            primary,
            opened=_opened(windows, sound),
            inside=what_is_inside(opened),
            why_closed=_why_closed(sound),
            broke_off=not asked_for(sweep.run).completed,
            ending=_ending(sweep, ordered),
            parts=_largest_parts(sound),
            why_no_work=_why_no_work(chosen, about),
        )
    unsaid = best is None and primary is not None
    return Diagnosis(
        verdict=best,
        findings=tuple(item.finding for item in ordered),
        cleared=replies.cleared,
        unchecked=replies.unchecked,
        no_verdict_because=why,
        suspected=suspected(ordered, primary) if unsaid else "",
        would_decide=would_decide(ordered, primary) if unsaid else "",
        tried=tried,
        waterfall=opened,
        lines=() if about is None else all_code_shares(about, _lines_named(ordered, primary)),
        looks=0 if about is None or about.result.code is None else about.result.code.looks,
        takes_settings=not run.of_own_training,
        framework=framework_of(run),
    )


def _primary(sound: SweepFacts) -> str | None:
    """The label of the group that the verdict is about.

    Of a training of the user's own that is also one whose samples could not be counted, which is no point of a sweep.
    """
    if sound.primary is not None:
        return sound.primary.label
    measured = [group for group in sound.groups if any(trial.steps for trial in group.trials)]
    return measured[0].label if sound.run.of_own_training and len(measured) == 1 else None


def _ending(sweep: SweepFacts, ordered: Sequence[Placed]) -> str:
    """How the trials failed, where none completed; empty where one did, or where a user ended them."""
    asked = asked_for(sweep.run)
    failed = [result for result in asked.results if result.outcome.failed]
    if asked.completed or all(result.outcome is Outcome.INTERRUPTED for result in failed):
        return ""
    return next((item.finding.summary for item in ordered if item.finding.code == FAILED_TRIALS), "")


def _told_where(placed: Sequence[Placed]) -> list[Placed]:
    """The findings with the group they are about, so that what is tried can be matched with them."""
    return [
        dataclasses.replace(
            item,
            finding=dataclasses.replace(item.finding, group=item.group or "", at_recommended=item.at_recommended),
        )
        for item in placed
    ]


def _with_lines(placed: Sequence[Placed], sound: SweepFacts) -> list[Placed]:
    """The findings with the lines of the user's code in which the time they speak about was seen."""
    told: list[Placed] = []
    for item in placed:
        about = _trial_about(sound, item.group)
        lines = () if about is None else claimed_lines(item.finding, about)
        told.append(dataclasses.replace(item, finding=dataclasses.replace(item.finding, lines=lines)))
    return told


def _lines_named(placed: Sequence[Placed], label: str | None) -> list[CodeShare]:
    """All lines that findings about this group name."""
    return [line for item in placed if item.group in (None, label) for line in item.finding.lines]


def _trial_about(sound: SweepFacts, label: str | None) -> TrialFacts | None:
    """The trial at which one would train of the group of that label (None: the primary one)."""
    group = sound.primary if label is None else next((one for one in sound.groups if one.label == label), None)
    if group is None or not (group.points or group.trials):
        return None
    return group.recommended.trials[0] if group.points else group.trials[0]


def _opened(windows: Mapping[str, Window], sound: SweepFacts) -> bool:
    """Whether a profiler window shows what the trials that the verdict is about do inside of forward and backward."""
    about = () if sound.primary is None else sound.primary.points
    ids = {trial.result.trial.id for point in about for trial in point.trials}
    return any(window.facts is not None for trial_id, window in windows.items() if trial_id in ids)


def _why_closed(sound: SweepFacts) -> str:
    """Why there is no window of the trials that the verdict is about, where one was asked for; else empty."""
    group = sound.primary
    about = () if group is None or not group.points else group.recommended.trials
    gaps = [gap.why for trial in about if (gap := trial.result.gap("deep_window")) is not None]
    return gaps[0] if gaps else ""


def _why_no_work(rules: Sequence[Rule], about: TrialFacts | None) -> str:
    """Why it is not said that the model's own work takes the time, in the words of the rule that would say it."""
    if about is None:
        return ""
    replies = [answered(rule.check, about) for rule in rules if rule.code == HEALTHY and rule.looks_at == "trial"]
    told = (
        f"whether forward and backward set the pace was not measured ({reply.why})"
        if isinstance(reply, NotMeasured)
        else reply.summary
        for reply in replies
        if not isinstance(reply, Finding)
    )
    return next(told, "")


def _largest_parts(sound: SweepFacts) -> str:
    """Where the time of a step goes, in a clause; empty where that is not known.

    Single long pauses are told apart from the phases they fell into, as the rules do.
    """
    facts = _trial_about(sound, _primary(sound))
    if facts is None:
        return ""
    own = {str(phase).replace("_", " "): ask(facts.share, phase) for phase in ALL_PHASES}
    own["single long pauses"] = ask(lambda: facts.tagged_pauses_share)
    shares = sorted(((share.value, name) for name, share in own.items() if share is not None), reverse=True)
    parts = [f"{percent(share)} {name}" for share, name in shares[:3]]
    return f"a step of {duration(facts.step_time_s.value)} is {listing(parts)}" if parts else ""


def _nothing_sound(sweep: SweepFacts, ordered: Sequence[Placed]) -> str:
    """Why there is no trial to conclude anything from."""
    results = asked_for(sweep.run).results
    if not results:
        return "no trial was run"
    if not sweep.trials:
        ended = sorted({str(result.outcome).replace("_", " ") for result in results})
        if sweep.run.of_own_training:
            return f"the training did not complete ({listing(ended)}), and too little of it was measured"
        if len(results) == 1:
            return f"the only trial did not complete ({ended[0]})"
        return f"none of {counted(len(results), 'trial')} completed ({', '.join(ended)})"
    if all("ceiling" in group.settings for group in sweep.groups):
        return "the run holds ceiling experiments only, and none of them is a way to train"
    reasons = [item.finding.summary for item in ordered if item.finding.severity is Severity.CRITICAL]
    return " ".join(reasons) or "no completed trial has steps and samples"
