"""HST008: settings meant for finding bugs are on, and cost time in every step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts.facts import Interval, NotMeasured, TrialFacts
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity, Share
from perf_diagnostics.diagnose.rule import Answer, cleared, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.wording import listing, percent

#: Also what a trace is told.
ANOMALY_OFF = "torch.autograd.set_detect_anomaly(False)"

#: What is looked at: the fact, how it is called, and how to switch it off.
_SWITCHES = (
    ("anomaly_detection", "anomaly detection", ANOMALY_OFF),
    ("cuda_launch_blocking", "CUDA_LAUNCH_BLOCKING", "unset CUDA_LAUNCH_BLOCKING"),
    ("autograd_profiler", "a running autograd profiler", "leave the profiler's context"),
)

_COST = {
    True: "It costs time in every step.",
    False: "Where several kernels could do the same, only slower ones may be allowed.",
}


@dataclass(frozen=True)
class DebugSettings:
    """Debugging aids are switched on while training.

    What it measures:
        Flags of the process: autograd's anomaly detection, a running profiler, ``CUDA_LAUNCH_BLOCKING``,
        deterministic algorithms, ``TORCH_DISTRIBUTED_DEBUG=DETAIL``. In a trace anomaly detection alone, by the looks
        for NaN after each of autograd's nodes.

    Why it matters:
        Anomaly detection made a step 40 to 50 % longer, ones of many tiny operations 117 % (16 residual blocks of width
        64) and 286 % (a recurrent cell in a loop), and left every share as it was, so that no timing rule can see it.
        Blocking launches take away all overlap of host and device.

    What to try:
        Switch them off, and on again for the hunt.

    When it is wrong:
        Deterministic algorithms may be wanted for good; they are only mentioned. Flags that are set inside a step and
        reset before its end are not seen.
    """

    code: ClassVar[str] = "HST008"
    name: ClassVar[str] = "debug-settings"
    family: ClassVar[Family] = Family.HOST
    looks_at: ClassVar[Literal["trial"]] = "trial"

    anomaly_low: float = field(
        default=0.29, metadata=limit("part of the step that anomaly mode costs, at least", "pilot")
    )
    anomaly_high: float = field(
        default=0.75,
        metadata=limit("… and at most", "48 steps of a recurrent cell in Python: 117 ms of CPU time, not 30"),
    )

    def check(self, facts: TrialFacts) -> Answer:
        known = facts.result.facts
        if "anomaly_detection" not in known:
            raise NotMeasured("anomaly_detection", "nobody looked at the debug settings of the process")
        on = [(name, says, off) for name, says, off in _SWITCHES if known.get(name) is True]
        if known.get("distributed_debug") == "DETAIL" and "data_parallel" in known:
            on.append(("distributed_debug", "TORCH_DISTRIBUTED_DEBUG=DETAIL", "set it to OFF"))
        slow = list(on)
        if known.get("deterministic_algorithms") is True:
            off = "torch.use_deterministic_algorithms(False)"
            on.append(("deterministic_algorithms", "deterministic algorithms", off))
        if not on:
            return cleared(self, "no debugging aid is switched on")
        gain = self._gain([name for name, _, _ in on])
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.WARNING if slow else Severity.INFO,
            summary=f"Switched on while training: {listing([says for _, says, _ in on])}. "
            + self._cost(slow=bool(slow), known=gain is not None),
            scope=facts.label,
            evidence=tuple(Evidence(metric=says, value="on") for _, says, _ in on),
            remedies=tuple(Remedy(f"Switch off {says}: {off}.") for _, says, off in on),
            recoverable=gain,
            # A flag that was read is as certain after three steps as after a thousand.
            confidence=confidence(Tier.CONFIGURATION if gain is None else Tier.SWITCH, sure=True),
        )

    def _cost(self, *, slow: bool, known: bool) -> str:
        if not known:
            return _COST[slow]
        low, high = percent(self.anomaly_low), percent(self.anomaly_high)
        return f"Where anomaly detection was tried, it took {low} to {high} of a step."

    def _gain(self, on: list[str]) -> Share | None:
        """Known for anomaly detection only."""
        if "anomaly_detection" not in on:
            return None
        middle = (self.anomaly_low + self.anomaly_high) / 2
        return recoverable(Interval(middle, self.anomaly_low, self.anomaly_high, 0), self.family)
