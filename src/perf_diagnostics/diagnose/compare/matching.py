"""Which configurations of two runs belong together: equal workload, options and settings, whatever repeat or seed."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from perf_diagnostics.diagnose.facts.trial_facts import TrialFacts
from perf_diagnostics.diagnose.wording import listing
from perf_diagnostics.errors import InvalidSettings
from perf_diagnostics.records import PRECISIONS, Json, Outcome, Run, Settings, Trial, TrialResult

_SETTINGS = frozenset(field.name for field in dataclasses.fields(Settings))


@dataclass(frozen=True, eq=False)
class Side:
    """One run's trials of one configuration, each a process of its own; ``pending`` were planned and have no result."""

    results: tuple[TrialResult, ...] = ()
    pending: int = 0

    @cached_property
    def completed(self) -> tuple[TrialFacts, ...]:
        return tuple(TrialFacts.of(result) for result in self.results if result.outcome is Outcome.COMPLETED)

    @property
    def unfinished(self) -> tuple[TrialResult, ...]:
        """Results of trials that failed or were skipped."""
        return tuple(result for result in self.results if result.outcome is not Outcome.COMPLETED)

    @property
    def planned(self) -> int:
        """Trials that were to run; 0 where the run does not know this configuration."""
        return len(self.results) + self.pending


@dataclass(frozen=True, eq=False)
class Configuration:
    """What two runs have, or only one of them has, under equal workload, options and settings.

    ``label`` is unique within a comparison.
    """

    label: str
    base: Side
    new: Side


@dataclass(frozen=True)
class Varied:
    """Something that may differ between the two runs by request, and its values in each."""

    name: str
    base: tuple[Json, ...]
    new: tuple[Json, ...]


@dataclass(frozen=True)
class Matching:
    """All configurations of both runs, by workload, device and rising batch size."""

    configurations: tuple[Configuration, ...]
    varied: tuple[Varied, ...]

    @property
    def shared(self) -> tuple[Configuration, ...]:
        return tuple(c for c in self.configurations if c.base.planned and c.new.planned)


def match(base: Run, new: Run, *, vary: Collection[str] = ()) -> Matching:
    """Put the trials of two runs side by side.

    ``vary`` names settings, options of the workload, or ``workload``, in which matching configurations may differ.

    Raises:
        InvalidSettings: the runs have no configuration in common (the text says in what the nearest two differ), a
            name in ``vary`` is unknown, or a run holds several values of it, so that it is unclear which one is meant.
    """
    names = tuple(dict.fromkeys(vary))
    _check_known(names, [*_trials(base), *_trials(new)])
    sides = [_by_key(run, names, title) for run, title in ((base, "BASE"), (new, "NEW"))]
    firsts = {key: trial for side in reversed(sides) for key, (trial, _) in side.items()}
    if not sides[0].keys() & sides[1].keys():
        raise InvalidSettings(_nothing_shared(_trials(base), _trials(new), names))
    labels = _labels(firsts, names)
    nothing = Side()
    configurations = tuple(
        Configuration(labels[key], *(side[key][1] if key in side else nothing for side in sides))
        for key in sorted(firsts, key=lambda key: _order(firsts[key]))
    )
    return Matching(configurations, tuple(_varied(name, _trials(base), _trials(new)) for name in names))


def _trials(run: Run) -> list[Trial]:
    """The run's trials, without the sentinels, which show the machine and are no configuration of the sweep."""
    return [trial for trial in (*(result.trial for result in run.results), *run.pending) if not trial.role]


def _by_key(run: Run, names: Sequence[str], title: str) -> dict[str, tuple[Trial, Side]]:
    """Each configuration of a run by its key, with one of its trials."""
    results: dict[str, list[TrialResult]] = {}
    for result in run.results:
        if not result.trial.role:
            results.setdefault(_key(result.trial, names), []).append(result)
    pending: dict[str, int] = {}
    firsts: dict[str, Trial] = {}
    for trial in run.pending:
        if not trial.role:
            key = _key(trial, names)
            pending[key] = pending.get(key, 0) + 1
    for trial in _trials(run):
        first = firsts.setdefault(_key(trial, names), trial)
        for name in names:
            one, other = value_of(first, name), value_of(trial, name)
            if one != other:
                raise InvalidSettings(
                    f"--vary {name}: {title} holds {first.label} with {name} {in_words(one)} and {in_words(other)}, so "
                    "it is unclear which one to compare; use a run with one value of it."
                )
    return {key: (first, Side(tuple(results.get(key, ())), pending.get(key, 0))) for key, first in firsts.items()}


def _content(trial: Trial, without: Collection[str]) -> dict[str, Json]:
    """What makes a configuration, one flat mapping; an option that is called like a setting keeps its own name."""
    content: dict[str, Json] = {"workload": trial.workload, **trial.settings.canonical()}
    content |= {(f"option {name}" if name in content else name): value for name, value in trial.options.items()}
    return {name: value for name, value in sorted(content.items()) if name not in without}


def _key(trial: Trial, without: Collection[str]) -> str:
    return json.dumps(_content(trial, without), sort_keys=True)


def value_of(trial: Trial, name: str) -> Json:
    """A setting, option or the workload of a trial by name; None where the choice was left to the workload."""
    return _content(trial, ()).get(name)


def in_words(value: Json) -> str:
    """A value of :func:`value_of` for people."""
    return "left to the workload" if value is None else str(value)


def _check_known(names: Iterable[str], trials: Iterable[Trial]) -> None:
    known = _SETTINGS | {name for trial in trials for name in _content(trial, ())}
    for name in names:
        if name not in known:
            raise InvalidSettings(f"--vary {name!r}: known here are {', '.join(sorted(known))}.")


def _varied(name: str, base: Iterable[Trial], new: Iterable[Trial]) -> Varied:
    def values(trials: Iterable[Trial]) -> tuple[Json, ...]:
        found = {json.dumps(value_of(trial, name)): value_of(trial, name) for trial in trials}
        return tuple(found[key] for key in sorted(found))

    return Varied(name, values(base), values(new))


def _nothing_shared(base: Sequence[Trial], new: Sequence[Trial], names: Sequence[str]) -> str:
    if not base or not new:
        return f"{'NEW' if base else 'BASE'} holds no trial; there is nothing to compare."
    nearest: list[str] | None = None
    told = ""
    # One trial of each configuration will do, and a run has few of them.
    for one in {_key(trial, names): trial for trial in base}.values():
        for other in {_key(trial, names): trial for trial in new}.values():
            a, b = _content(one, names), _content(other, names)
            differing = [name for name in sorted(a.keys() | b.keys()) if a.get(name) != b.get(name)]
            if nearest is None or len(differing) < len(nearest):
                nearest = differing
                told = listing(
                    [f"{name} ({in_words(a.get(name))} against {in_words(b.get(name))})" for name in nearest]
                )
    flags = " ".join(f"--vary {name}" for name in nearest or ())
    # What differs in more than that is hardly meant to be the same thing.
    hint = f"; {flags} would match them." if len(nearest or ()) <= 2 else "."
    return f"BASE and NEW have no configuration in common. The nearest two differ in {told}{hint}"


def _order(trial: Trial) -> tuple[str, str, int, int, str]:
    settings = trial.settings
    precision = PRECISIONS.index(settings.precision)
    return trial.workload, settings.device, precision, settings.batch_size, json.dumps(_content(trial, ()))


def _labels(firsts: Mapping[str, Trial], names: Collection[str]) -> dict[str, str]:
    """A short name each; options and further settings are in it only where it takes them to tell two apart."""
    short = {key: _short_label(trial, names) for key, trial in firsts.items()}
    taken = list(short.values())
    return {
        key: label if taken.count(label) == 1 else f"{label} ({_further(firsts[key], names)})"
        for key, label in short.items()
    }


def _short_label(trial: Trial, names: Collection[str]) -> str:
    """The trial's own label without what is varied."""
    parts = {
        "workload": trial.workload,
        "device": trial.settings.device,
        "batch_size": f"batch {trial.settings.batch_size}",
        "precision": "" if trial.settings.precision == "float32" else trial.settings.precision,
    }
    return " ".join(text for name, text in parts.items() if text and name not in names) or "everything"


def _further(trial: Trial, names: Collection[str]) -> str:
    content = _content(trial, {*names, "workload", "device", "batch_size", "precision"})
    return ", ".join(f"{name} {value}" for name, value in content.items()) or "defaults"
