"""SWP003: the largest batch is slower than a smaller one, with the cause that the records show."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from perf_diagnostics.diagnose.facts.facts import Group, Interval, Point, TrialFacts, ask
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import CHANGES_TRAINING, Answer, cleared, evidence, limit
from perf_diagnostics.diagnose.rule_parts.advice import similar_lengths
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, measured_gain
from perf_diagnostics.diagnose.rule_parts.peak_causes import Cause, causes_of
from perf_diagnostics.diagnose.statistics.intervals import quotient, scatter_around_a_hill
from perf_diagnostics.diagnose.statistics.past_peak import last_of_best, last_over_best
from perf_diagnostics.diagnose.wording import percent, percent_between

_REPEAT = Remedy("Repeat the sweep (sweep --repeats 3): it tells what equal processes differ by, and this from chance.")


@dataclass(frozen=True)
class PastThePeak:
    """The largest batch is slower than a smaller one.

    What it measures:
        The throughput of the largest measured batch against the best, both measured, with the interval of their
        ratio: it allows for the best having been chosen among all sizes, and for what equal processes differ by. That
        is what repeats tell. Where each size ran once, 8.5 % is assumed or, if that is less, how far the other sizes
        lie from a straight line in step time; 1 % where five sizes in a row are each slower than the one before, or
        where allocations were retried or pages read back at the largest alone. A loss that only processes alike to 1 %
        would prove is mentioned. Then what the records show of the cause: retried allocations, memory nearly full,
        pages read back from disk, samples that got longer by padding, the phase whose time a sample grew most.

    Why it matters:
        The largest batch that fits is often taken for the fastest. In published sweeps it loses 2 % or more in 40 %
        of the cases, 5 % in 29 %, and 20 % in 8 %.

    What to try:
        The batch of the best throughput; gradient accumulation where a larger effective batch is wanted. Where
        samples got longer: batches of similar length. Where memory is full: checkpointing, a lower precision.

    When it is wrong:
        If samples get longer with the batch (padding to the longest), samples/s falls while tokens/s does not: that
        is said and is no loss of speed. Other load on the machine at that moment looks the same; repeats tell
        (``--repeats 3``). Simulated, of sweeps that lose nothing, of three to eight sizes, at most 5 % warn where each
        size ran once and processes differ by 2 to 10 % (16 % at 15 %), and 1 % with two or three repeats. The price:
        where processes differ by 1 %, a loss of 20 % at the last of six sizes that ran once warns in 99 % of sweeps, at
        the last of three never (there it takes 27 %), and with three repeats always, as does one of 10 %.
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
        metadata=limit(
            "what single processes of equal work differ by, to mention", "published sweeps repeat within 1 % (median)"
        ),
    )
    unknown: float = field(
        default=0.085,
        metadata=limit("… to warn", "simulated: of flat sweeps whose processes differ by 2 to 10 %, 5 % warn at most"),
    )

    def check(self, facts: Group) -> Answer:
        _ = facts.knee  # NotMeasured where there is nothing to compare
        last, best = facts.points[-1], facts.best
        throughputs = [point.throughput for point in facts.points]
        seen = last_of_best(throughputs, [len(point.trials) for point in facts.points], single=self.processes)
        apart = seen.high is not None and seen.high < 1
        if last is best or seen.value > 1 - self.info_loss or not apart:
            says = f"batch {last.batch_size} reaches {percent(seen.value)} of the best throughput"
            return cleared(self, says, self._number(seen))
        tokens = ask(lambda: quotient(last.pooled(_tokens_per_s), best.pooled(_tokens_per_s)))
        same_work_rate = tokens is not None and tokens.value > 1 - self.info_loss
        causes = causes_of(best, last, dearer=1 / seen.value)
        # What chance does not do has been seen beside the loss.
        proved = any(cause.proves for cause in causes)
        ratio = seen if proved else self._allowing_for_processes(facts)
        severity = Severity.INFO if same_work_rate else self._severity(ratio)
        open_to_chance = not same_work_rate and severity is not self._severity(seen)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=severity,
            summary=_summary(best, last, ratio, causes, same_work_rate=same_work_rate)
            + (_BY_CHANCE if open_to_chance else ""),
            scope=facts.label,
            evidence=(
                self._number(ratio),
                evidence(f"throughput at batch {best.batch_size}", best.throughput, "samples/s"),
                evidence(f"throughput at batch {last.batch_size}", last.throughput, "samples/s"),
                *_scatter_seen(facts),
                *(() if tokens is None else (evidence("tokens/s at the largest batch, of the best", tokens, "%"),)),
                *(cause.number for cause in causes),
            ),
            remedies=similar_lengths(last.trials[0])
            if same_work_rate
            else (*_remedies(facts, best, last, causes), *((_REPEAT,) if open_to_chance else ())),
            recoverable=None if same_work_rate else measured_gain(ratio),
            confidence=confidence(
                Tier.BOTH_MEASURED if causes else Tier.SHARE_AND_CAUSE,
                sure=ratio.surely_below(1 - self.info_loss),
                thin=any(trial.thin for trial in (*best.trials, *last.trials)),
            ),
            batch_sizes=(last.batch_size,),
            symptom_of=("MEM001",),
        )

    def _allowing_for_processes(self, facts: Group) -> Interval:
        return last_over_best(
            [[trial.throughput for trial in point.trials] for point in facts.points],
            facts.load.per_step,
            [point.step_time_s.value for point in facts.points],
            single=self.processes,
            unknown=self.unknown,
        )

    def _number(self, ratio: Interval) -> Evidence:
        return evidence("throughput at the largest batch, of the best", ratio, "%", limit=1 - self.info_loss)

    def _severity(self, ratio: Interval) -> Severity:
        if ratio.surely_below(1 - self.critical_loss):
            return Severity.CRITICAL
        return Severity.WARNING if ratio.surely_below(1 - self.warn_loss) else Severity.INFO


_BY_CHANCE = " How much equal processes differ is not well known here, and chance may be as much: repeats would tell."


def _scatter_seen(facts: Group) -> tuple[Evidence, ...]:
    """By how much the sizes go up and down, where they do."""
    uneven = scatter_around_a_hill(np.log([point.throughput.value for point in facts.points]))
    if uneven < 1e-3:
        return ()
    return (Evidence(metric="scatter of the sizes around a rise and fall", value=100 * uneven, unit="%"),)


def _tokens_per_s(trial: TrialFacts) -> Interval:
    return trial.tokens_per_s


def _summary(best: Point, last: Point, ratio: Interval, causes: tuple[Cause, ...], *, same_work_rate: bool) -> str:
    says = (
        f"Batch {last.batch_size} reaches {percent_between(ratio)} of the throughput of batch {best.batch_size}, the "
        "best measured"
    )
    if same_work_rate:
        return f"{says}; but tokens/s did not decline: the samples got longer, and the machine no slower."
    if not causes:
        return f"{says}; the records do not show why."
    return f"{says}; {'; '.join(cause.says for cause in causes)}."


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
