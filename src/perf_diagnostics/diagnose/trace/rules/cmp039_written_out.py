"""CMP039 for traces: functions that torch has in one operator, written out in several."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts.facts import Interval
from perf_diagnostics.diagnose.finding import Evidence, Family, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade
from perf_diagnostics.diagnose.rules.cmp039_written_out import WrittenOut
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.intervals import Times
from perf_diagnostics.diagnose.trace.python_frames import in_functions
from perf_diagnostics.diagnose.trace.rule import caused, share_of_work
from perf_diagnostics.diagnose.trace.written_out import Written, written_out
from perf_diagnostics.diagnose.wording import listing, mean_count, percent, times


@dataclass(frozen=True)
class FunctionsWrittenOut:
    """Norms, GELU or softmax are computed by several operators, one after the other."""

    code: ClassVar[str] = WrittenOut.code
    name: ClassVar[str] = WrittenOut.name
    family: ClassVar[Family] = WrittenOut.family
    looks_at: ClassVar[Literal["trace"]] = "trace"

    limits: WrittenOut = field(default_factory=WrittenOut)

    def check(self, facts: TraceFacts) -> Answer:
        facts.require_sound()
        facts.require_steady()
        found = written_out(facts)
        if not found:
            return cleared(self, "no function that torch has in one operator is seen written out")
        shares = {one.function: share_of_work(facts, one.forward | one.nodes) for one in found}
        saved = [shares[one.function].scaled(1 - one.function.left) for one in found]
        whole, beyond = sum(one.value for one in shares.values()), _sum(saved)
        number = evidence("functions written out, beyond calling them", beyond, "%", limit=self.limits.warn_share)
        levels = (Severity.INFO, self.limits.info_share), (Severity.WARNING, self.limits.warn_share)
        level = grade(beyond, levels)
        if level is None:
            return cleared(self, f"functions written out take {percent(whole)} of a step", number)
        found = tuple(sorted(found, key=lambda one: -shares[one.function].value))
        calls = list(dict.fromkeys(one.function.call for one in found))
        differs = "".join(dict.fromkeys(f" ({one.function.differs})" for one in found if one.function.differs))
        forward = Times.none()
        for one in found:
            forward |= one.forward
        return caused(
            self,
            facts,
            level,
            summary=f"{percent(whole)} of each step computes what looks like {listing([_what(one) for one in found])}, "
            f"forward and backward; torch's own operators take about {percent((whole - beyond.value) / whole)} of that"
            f"{in_functions(facts, forward)}.",
            numbers=(
                number,
                Evidence(metric="operators that write it out", value=round(found[0].operators, 1)),
                Evidence(metric="times that it is written out", value=found[0].calls),
            ),
            remedies=(
                Remedy(
                    f"If it is, call {listing(calls)} instead: the same numbers but for the last digits{differs}. Or "
                    "compile the model, which fuses such operators."
                ),
            ),
            gain=beyond.reaching(whole),
        )


def _what(one: Written) -> str:
    size = "×".join(f"{each:,}" for each in one.size)
    calls = f"{times(one.calls, 'time')} in {mean_count(one.operators)} operators each"
    return f"{one.function.call} on {size} numbers, {calls}"


def _sum(shares: list[Interval]) -> Interval:
    lows = [one.low for one in shares if one.low is not None]
    highs = [one.high for one in shares if one.high is not None]
    known = len(lows) == len(highs) == len(shares)
    return Interval(
        sum(one.value for one in shares), sum(lows) if known else None, sum(highs) if known else None, shares[0].n
    )
