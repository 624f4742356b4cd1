"""Which pair runs next, and what it will take: what the time can finish is finished, the best change first."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from perf_diagnostics.diagnose.rule_parts.experiments import Candidate, Experiment, LeftOut, same_question
from perf_diagnostics.diagnose.tried.outcomes import LEAST_PAIRS, still_unsettled
from perf_diagnostics.diagnose.wording import counted
from perf_diagnostics.records import Outcome, TrialResult
from perf_diagnostics.trials.confirm.pairs import AROUND_S, trial_cost_s


@dataclass(frozen=True)
class Attempt:
    """An experiment with its trials' ids, base and changed one of each pair, and what a trial of it should take, in s.

    ``expected_s`` is what the run's own trial of the base foretells.
    """

    candidate: Candidate
    experiment: Experiment
    pairs: tuple[tuple[str, str], ...]
    expected_s: float

    @classmethod
    def of(cls, candidate: Candidate, experiment: Experiment, *, around_s: float = AROUND_S) -> Attempt:
        pairs = [experiment.pair(index) for index in range(experiment.pairs)]
        ids = tuple((base.id, new.id) for base, new in pairs)
        return cls(candidate, experiment, ids, trial_cost_s(candidate, experiment.base.length, around_s=around_s))

    def missing(self, done: Collection[str]) -> list[int]:
        """The numbers of the pairs that lack a result."""
        return [number for number, pair in enumerate(self.pairs) if not all(name in done for name in pair)]

    def lacking(self, done: Collection[str], pairs: int) -> int:
        """How many trials lack a result in the first so many of the pairs that are missing."""
        return sum(name not in done for number in self.missing(done)[:pairs] for name in self.pairs[number])

    def begun(self, done: Collection[str]) -> bool:
        return any(name in done for pair in self.pairs for name in pair)

    def failed(self, results: Mapping[str, TrialResult]) -> bool:
        """Whether a trial could not be run: it will not do so in the next pair either."""
        mine = (results[name] for pair in self.pairs for name in pair if name in results)
        return any(result.outcome is not Outcome.COMPLETED for result in mine)


@dataclass(frozen=True)
class Standing:
    """How far an experiment has come: pairs that have run whole and are planned, and s that one of them takes.

    ``begun`` is set where a trial of it has a result, ``over`` where no further pair is worth running.
    """

    done: int
    planned: int
    pair_s: float
    begun: bool = False
    over: bool = False

    @property
    def short(self) -> int:
        """Pairs that are missing to what a verdict needs, or to all there are where fewer are planned."""
        return max(0, least_pairs(self.planned) - self.done)

    def least_s(self) -> float:
        """What these will take, in s."""
        return self.short * self.pair_s


@dataclass(frozen=True)
class Foreseen:
    """What a call would do about an experiment: how far it has come, and how many pairs fit into the time."""

    standing: Standing
    pairs: int

    @property
    def missing(self) -> int:
        """Pairs that are planned and have not run; none where no further pair is worth running."""
        return 0 if self.standing.over else self.standing.planned - self.standing.done

    @property
    def missing_s(self) -> float:
        """What these would take, in s."""
        return self.missing * self.standing.pair_s

    @property
    def decides(self) -> bool:
        """Whether the pairs that have run, and those that fit into the time, are what a verdict needs."""
        return self.pairs >= self.standing.short


def least_pairs(planned: int) -> int:
    return min(LEAST_PAIRS, planned)


def next_one(standings: Sequence[Standing], left_s: float | None) -> int | None:
    """The place of the experiment whose next pair runs now; None where no pair fits into the time, or none is left.

    First come the experiments that can get the pairs a verdict needs within the time, those begun before others and
    else in their order. One whose pairs turn out too dear for that is passed over for one that can be finished. Then
    the further pairs of those that have enough; then what was begun and cannot be finished now, so that less is left
    to the next call. Nothing is begun that cannot be finished. No result has a part in this: who looks at the
    interval before the next pair runs is right too often.

    Args:
        standings: of the experiments, the best first.
        left_s: of the time budget; None for no limit.
    """

    def first(wanted: Iterable[int], pairs: Mapping[int, int]) -> int | None:
        fits = (i for i in wanted if left_s is None or pairs[i] * standings[i].pair_s <= left_s)
        return next(fits, None)

    open_ = [i for i, one in enumerate(standings) if one.done < one.planned and not one.over]
    short = [i for i in open_ if standings[i].short]
    begun = [i for i in short if standings[i].begun]
    enough = [i for i in open_ if not standings[i].short]
    for wanted, whole in (([*begun, *short], True), (enough, False), (begun, False)):
        place = first(wanted, {i: standings[i].short if whole else 1 for i in wanted})
        if place is not None:
            return place
    return None


def standings_of(
    attempts: Sequence[Attempt], results: Mapping[str, TrialResult], took_s: Mapping[str, float], given_up: set[int]
) -> list[Standing]:
    """Where each experiment stands.

    Args:
        attempts: the experiments, the best first.
        results: of their trials, by id.
        took_s: seconds that trials took, by id.
        given_up: places of those whose pairs do not come to an end.
    """
    slower = slowness(attempts, results, took_s)
    return [
        Standing(
            done=len(one.pairs) - len(one.missing(results)),
            planned=len(one.pairs),
            pair_s=pair_s(one, took_s, slower),
            begun=one.begun(results),
            over=place in given_up or one.failed(results) or bool(still_unsettled(one.experiment, results)),
        )
        for place, one in enumerate(attempts)
    ]


def pair_s(one: Attempt, took_s: Mapping[str, float], slower: float) -> float:
    """What a pair takes, in s: the means of both arms so far, and of an arm that has not run what was foretold."""
    arms = ([took_s[name] for name in arm if name in took_s] for arm in zip(*one.pairs, strict=True))
    return sum(sum(times) / len(times) if times else one.expected_s * slower for times in arms)


def slowness(attempts: Sequence[Attempt], results: Mapping[str, TrialResult], took_s: Mapping[str, float]) -> float:
    """How many times as long as foretold the bases have taken; 1 before the first of them.

    The machine may be busier than it was when the run was measured, and the first pair shows by how much. The changed
    arms have no part in it: what one change costs (compiling, say) the others do not.
    """
    known = [
        (took_s[base], one.expected_s)
        for one in attempts
        for base, _ in one.pairs
        if base in took_s and base in results and results[base].outcome is Outcome.COMPLETED
    ]
    took, foretold = sum(took for took, _ in known), sum(foretold for _, foretold in known)
    return took / foretold if foretold > 0 else 1.0


def foreseen(standings: Sequence[Standing], left_s: float | None) -> list[int]:
    """How many further pairs of each experiment run within the time, if every pair takes what is thought of it now."""
    now, pairs = list(standings), [0] * len(standings)
    while (place := next_one(now, left_s)) is not None:
        one = now[place]
        now[place] = replace(one, done=one.done + 1, begun=True)
        pairs[place] += 1
        left_s = None if left_s is None else left_s - one.pair_s
    return pairs


def left_out(candidate: Candidate, standing: Standing, left_s: float) -> LeftOut:
    """What was not begun, because not even the least pairs fitted into what was left of the time, in s."""
    return not_tried(
        candidate,
        f"{counted(standing.short, 'pair')} would take about {standing.least_s():.0f} s, and {max(0.0, left_s):.0f} s "
        "of the time budget were left; give a larger one to go on",
    )


def not_tried(candidate: Candidate, why: str) -> LeftOut:
    return LeftOut(
        about=candidate.about,
        says=candidate.says,
        change=candidate.change,
        batch_size=candidate.base.settings.batch_size,
        why=why,
        base=candidate.base,
    )


def asks_the_same(one: LeftOut | Experiment, other: LeftOut | Experiment) -> bool:
    """Whether both are about the same change of the same configuration.

    What an older version left out is known by its batch size alone, and stands for any configuration at that.
    """
    if one.base is not None and other.base is not None:
        return same_question(one.base, one.change) == same_question(other.base, other.change)
    return (dict(one.change), _batch_size(one)) == (dict(other.change), _batch_size(other))


def _batch_size(one: LeftOut | Experiment) -> int:
    return one.batch_size if isinstance(one, LeftOut) else one.base.settings.batch_size
