"""Why samples got dearer at the largest batch of a sweep, as far as the records show it."""

from __future__ import annotations

from dataclasses import dataclass

from perf_diagnostics.diagnose.facts.facts import Interval, Point, TrialFacts, ask
from perf_diagnostics.diagnose.finding import Evidence, Remedy
from perf_diagnostics.diagnose.rule import evidence
from perf_diagnostics.diagnose.rule_parts.advice import similar_lengths
from perf_diagnostics.diagnose.statistics.intervals import quotient
from perf_diagnostics.diagnose.wording import percent
from perf_diagnostics.records import ALL_PHASES, Phase

#: Memory that full at the largest batch is named as what slows it.
NEARLY_FULL = 0.90

_LESS_MEMORY = Remedy(
    "Checkpoint activations, if the large batch is needed; that costs about a quarter more time.",
    {"gradient_checkpointing": True},
)


@dataclass(frozen=True)
class Cause:
    """One measured reason why samples got dearer, in words, with its number and what would help against it.

    ``proves``: it is not there at other sizes and does not come by chance, as what single processes differ by does.
    """

    says: str
    number: Evidence
    remedy: Remedy | None = None
    proves: bool = False


def causes_of(best: Point, last: Point, *, dearer: float) -> tuple[Cause, ...]:
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
    return Cause(f"the device's allocator ran out and retried {now:.0f} times", number, _LESS_MEMORY, proves=True)


def _faults(best: Point, last: Point) -> Cause | None:
    before, now = (point.largest(lambda t: t.quantity("major_faults")) for point in (best, last))
    if before is None or now is None or now / last.steps <= max(1.0, 2 * before / best.steps):
        return None
    number = Evidence(metric="pages read from disk", value=now, limit=before, n=last.steps)
    says = f"{now:.0f} pages of memory were read back from disk"
    return Cause(says, number, _LESS_MEMORY, proves=True)


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


def _tokens_per_sample(trial: TrialFacts) -> Interval:
    return trial.tokens_per_sample
