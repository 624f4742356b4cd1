"""SWP003: the largest batch is slower than a smaller one, with the cause that the records show."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from perf_diagnostics.diagnose.advice import similar_lengths
from perf_diagnostics.diagnose.facts import Group, Interval, Point, TrialFacts, ask
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.gain import Tier, confidence, measured_gain
from perf_diagnostics.diagnose.rule import CHANGES_TRAINING, Answer, cleared, evidence, limit
from perf_diagnostics.diagnose.statistics import against_the_best, quotient, scatter_around_a_hill
from perf_diagnostics.diagnose.wording import percent, percent_between
from perf_diagnostics.records import ALL_PHASES, Phase

#: With so many processes a batch size their own scatter is in its interval (:func:`pooled`).
POOLED = 3

#: Memory that full at the largest batch is named as what slows it.
NEARLY_FULL = 0.90

_LESS_MEMORY = Remedy(
    "Checkpoint activations, if the large batch is needed; that costs about a quarter more time.",
    {"gradient_checkpointing": True},
)


@dataclass(frozen=True)
class Cause:
    """One measured reason why samples got dearer, in words, with its number and what would help against it."""

    says: str
    number: Evidence
    remedy: Remedy | None = None


@dataclass(frozen=True)
class PastThePeak:
    """The largest batch is slower than a smaller one.

    What it measures:
        The throughput of the largest measured batch against the best, both measured, with the interval of their
        ratio: it allows for the best having been chosen among all sizes, and, where a size ran in fewer than three
        processes, for what equal processes differ by: 1 %, and beyond that as much as the sweep itself goes up and
        down where it should only rise and then fall. Then what the records show of the cause: allocations that had to
        be retried, memory nearly full, pages read back from disk, samples that got longer by padding, and the phase
        whose time a sample grew most.

    Why it matters:
        The largest batch that fits is often taken for the fastest. In published sweeps it loses 2 % or more in 40 %
        of the cases, 5 % in 29 %, and 20 % in 8 %.

    What to try:
        The batch of the best throughput; gradient accumulation where a larger effective batch is wanted. Where
        samples got longer: batches of similar length. Where memory is full: checkpointing, a lower precision.

    When it is wrong:
        If samples get longer with the batch (padding to the longest), samples/s falls while tokens/s does not: that
        is said and is no loss of speed. Other load on the machine at that moment looks the same; repeats tell
        (``--repeats 5``). Where equal processes differ by 3 % (5 %), of sweeps that are really flat 4 % (18 %) warn
        with three sizes, and 1 % (7 %) with seven: few sizes show little of their scatter.
    """

    code: ClassVar[str] = "SWP003"
    name: ClassVar[str] = "past-the-peak"
    family: ClassVar[Family] = Family.SWEEP
    looks_at: ClassVar[Literal["group"]] = "group"

    info_loss: float = field(
        default=0.02, metadata=limit("loss of the largest batch to mention", "published sweeps repeat within 1 %")
    )
    warn_loss: float = field(default=0.05, metadata=limit("loss to warn from", "judgement; 29 % of published sweeps"))
    critical_loss: float = field(
        default=0.20, metadata=limit("loss that is critical", "judgement; 8 % of published sweeps")
    )
    processes: float = field(
        default=0.01,
        metadata=limit("what single processes of equal work differ by", "published sweeps repeat within 1 % (median)"),
    )

    def check(self, facts: Group) -> Answer:
        _ = facts.knee  # NotMeasured where there is nothing to compare
        last, best = facts.points[-1], facts.best
        throughputs = [point.throughput for point in facts.points]
        ratio = last_of_best(throughputs, [len(point.trials) for point in facts.points], single=self.processes)
        number = evidence("throughput at the largest batch, of the best", ratio, "%", limit=1 - self.info_loss)
        apart = ratio.high is not None and ratio.high < 1
        if last is best or ratio.value > 1 - self.info_loss or not apart:
            return cleared(
                self, f"batch {last.batch_size} reaches {percent(ratio.value)} of the best throughput", number
            )
        tokens = ask(lambda: quotient(last.pooled(_tokens_per_s), best.pooled(_tokens_per_s)))
        same_work_rate = tokens is not None and tokens.value > 1 - self.info_loss
        causes = _causes(best, last, dearer=1 / ratio.value)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.INFO if same_work_rate else self._severity(ratio),
            summary=_summary(best, last, ratio, causes, same_work_rate=same_work_rate),
            scope=facts.label,
            evidence=(
                number,
                evidence(f"throughput at batch {best.batch_size}", best.throughput, "samples/s"),
                evidence(f"throughput at batch {last.batch_size}", last.throughput, "samples/s"),
                *_scatter_seen(facts),
                *(() if tokens is None else (evidence("tokens/s at the largest batch, of the best", tokens, "%"),)),
                *(cause.number for cause in causes),
            ),
            remedies=similar_lengths(last.trials[0]) if same_work_rate else _remedies(facts, best, last, causes),
            recoverable=None if same_work_rate else measured_gain(ratio),
            confidence=confidence(
                Tier.BOTH_MEASURED if causes else Tier.SHARE_AND_CAUSE,
                sure=ratio.surely_below(1 - self.info_loss),
                thin=any(trial.thin for trial in (*best.trials, *last.trials)),
            ),
            batch_sizes=(last.batch_size,),
            symptom_of=("MEM001",),
        )

    def _severity(self, ratio: Interval) -> Severity:
        if ratio.surely_below(1 - self.critical_loss):
            return Severity.CRITICAL
        return Severity.WARNING if ratio.surely_below(1 - self.warn_loss) else Severity.INFO


def last_of_best(throughputs: Sequence[Interval], processes: Sequence[int], *, single: float) -> Interval:
    """The last size's throughput over the best one's, which was chosen among all the others.

    Args:
        throughputs: of all sizes, at least two, all above 0.
        processes: in how many processes each size ran.
        single: the least that equal processes differ by, as a share (one standard deviation).
    """
    last = len(throughputs) - 1
    best = max(range(len(throughputs)), key=lambda index: throughputs[index].value)
    if best == last:
        return Interval(1.0, 1.0, 1.0, throughputs[last].n)
    uneven = scatter_around_a_hill(np.log([one.value for one in throughputs]))
    # Of three processes and more their scatter is in the interval already.
    alone = [single**2 / processes[index] + uneven**2 for index in (best, last) if processes[index] < POOLED]
    return against_the_best(
        quotient(throughputs[last], throughputs[best]), len(throughputs) - 1, scatter=math.sqrt(sum(alone))
    )


def _scatter_seen(facts: Group) -> tuple[Evidence, ...]:
    """By how much the sizes go up and down, where they do."""
    uneven = scatter_around_a_hill(np.log([point.throughput.value for point in facts.points]))
    if uneven < 1e-3:
        return ()
    return (Evidence(metric="scatter of the sizes around a rise and fall", value=100 * uneven, unit="%"),)


def _tokens_per_s(trial: TrialFacts) -> Interval:
    return trial.tokens_per_s


def _tokens_per_sample(trial: TrialFacts) -> Interval:
    return trial.tokens_per_sample


def _causes(best: Point, last: Point, *, dearer: float) -> tuple[Cause, ...]:
    """What the records show, the most telling first; ``dearer`` is the growth of the time a sample."""
    found = (
        _retries(best, last),
        _faults(best, last),
        *(_fullness(best, last, where) for where in ("device", "host")),
        _longer(best, last, dearer),
        _phase(best, last),
    )
    return tuple(cause for cause in found if cause is not None)


def _retries(best: Point, last: Point) -> Cause | None:
    before, now = best.largest(lambda t: t.alloc_retries), last.largest(lambda t: t.alloc_retries)
    if not now or now <= (before or 0):
        return None
    number = Evidence(metric="retried allocations", value=now, limit=before, n=last.steps)
    return Cause(f"the device's allocator ran out and retried {now:.0f} times", number, _LESS_MEMORY)


def _faults(best: Point, last: Point) -> Cause | None:
    before, now = (point.largest(lambda t: t.quantity("major_faults")) for point in (best, last))
    if before is None or now is None or now / last.steps <= max(1.0, 2 * before / best.steps):
        return None
    number = Evidence(metric="pages read from disk", value=now, limit=before, n=last.steps)
    return Cause(f"memory was paged: {now:.0f} pages were read back from disk", number, _LESS_MEMORY)


def _fullness(best: Point, last: Point, where: str) -> Cause | None:
    before, now = (
        point.largest(lambda t: t.device_memory_share if where == "device" else t.host_memory_share)
        for point in (best, last)
    )
    if now is None or now < NEARLY_FULL or (before is not None and before >= NEARLY_FULL):
        return None
    number = Evidence(metric=f"{where} memory at peak", value=now * 100, unit="%", limit=NEARLY_FULL * 100)
    return Cause(f"the {where}'s memory is {percent(now)} full", number, _LESS_MEMORY)


def _longer(best: Point, last: Point, dearer: float) -> Cause | None:
    growth = ask(lambda: quotient(last.pooled(_tokens_per_sample), best.pooled(_tokens_per_sample)))
    # Named where it accounts for at least half of what a sample costs more.
    if growth is None or growth.value - 1 < (dearer - 1) / 2:
        return None
    return Cause(
        f"a sample has {percent(growth.value - 1)} more tokens, mostly padding to the longest",
        evidence("tokens a sample, against the best batch", growth, "%"),
        next(iter(similar_lengths(last.trials[0])), None),
    )


def _phase(best: Point, last: Point) -> Cause | None:
    """The phase whose time a sample grew most, if it makes up at least half of all growth."""
    growths: dict[Phase, float] = {}
    for phase in ALL_PHASES:
        before, now = ask(best.phase_time_s, phase), ask(last.phase_time_s, phase)
        if before is not None and now is not None:
            growths[phase] = now.value / last.samples_per_step - before.value / best.samples_per_step
    grown = sum(growth for growth in growths.values() if growth > 0)
    if not grown > 0:
        return None
    phase = max(growths, key=lambda p: growths[p])
    share = growths[phase] / grown
    if share < 0.5:
        return None
    word = str(phase).replace("_", " ")
    number = Evidence(
        metric=f"growth of the time a sample, in {word}", value=growths[phase] * 1e3, unit="ms", n=last.steps
    )
    return Cause(f"{percent(share)} of what a sample costs more lies in {word}", number)


def _summary(best: Point, last: Point, ratio: Interval, causes: tuple[Cause, ...], *, same_work_rate: bool) -> str:
    says = (
        f"Batch {last.batch_size} reaches {percent_between(ratio)} of the throughput of batch {best.batch_size}, the "
        "best measured"
    )
    if same_work_rate:
        return f"{says}; but tokens/s did not decline: samples got longer, the machine did not get slower."
    if not causes:
        return f"{says}; the records do not show why."
    return f"{says}: {'; '.join(cause.says for cause in causes)}."


def _remedies(facts: Group, best: Point, last: Point, causes: tuple[Cause, ...]) -> tuple[Remedy, ...]:
    found = [Remedy(f"Train with batch {best.batch_size}. {CHANGES_TRAINING}", {"batch_size": best.batch_size})]
    if last.batch_size % best.batch_size == 0:
        times = last.batch_size // best.batch_size
        found.append(
            Remedy(
                f"For an effective batch of {last.batch_size}, accumulate {times} batches of {best.batch_size}.",
                {"batch_size": best.batch_size, "accumulation_steps": times * facts.accumulation_steps},
            )
        )
    for cause in causes:
        if cause.remedy is not None and cause.remedy not in found:
            found.append(cause.remedy)
    return tuple(found)
