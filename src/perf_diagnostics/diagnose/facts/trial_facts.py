"""What one trial's records say: typed facts, each a number with its interval, or NotMeasured with the reason."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from perf_diagnostics.diagnose.facts.own_shares import TREND_STEPS, OwnShares
from perf_diagnostics.diagnose.facts.possible import without_impossible
from perf_diagnostics.diagnose.facts.recorded import ask
from perf_diagnostics.diagnose.facts.step_facts import NS_PER_S
from perf_diagnostics.diagnose.not_measured import NotMeasured
from perf_diagnostics.diagnose.statistics import stability
from perf_diagnostics.diagnose.statistics.intervals import Interval, mean_interval, squared_correlation
from perf_diagnostics.records import Phase, StepTable, TrialResult

#: Under so few steps a number is a hint; under :data:`LEAST_STEPS` it is no evidence at all.
INDICATIVE_STEPS = 5
LEAST_STEPS = 3


@dataclass(frozen=True, eq=False)
class TrialFacts(OwnShares):
    """One trial's steady steps, seen through the questions a rule may ask.

    Times are in s, memory in bytes, shares in 0…1. What was not measured raises :class:`NotMeasured` with the gap
    that the trial recorded for it. On a device, phases are the device's stream time and the wait for data is the
    exposed wait; on the CPU both clocks are one.
    """

    @classmethod
    def of(cls, result: TrialResult) -> TrialFacts:
        sound = without_impossible(result)
        return cls(sound, sound.steps[0].steady if sound.steps else StepTable.empty())

    @property
    def label(self) -> str:
        return self.result.trial.label

    @property
    def thin(self) -> bool:
        """Fewer steps than :data:`INDICATIVE_STEPS`, or a warm-up that could not be shown to be over."""
        return self.steps < INDICATIVE_STEPS or not self.result.steady

    # -- input

    @cached_property
    def exposed_data_wait_share(self) -> Interval:
        """Share of the step in which nothing but the wait for data went on.

        On the CPU that is the wait itself. On a device it is the stream's idle time inside the wait, or, where no
        events were recorded, the host's wait in the steps in which the device had run dry.
        """
        if not self.on_accelerator or self.table.device_ns(Phase.DATA_WAIT) is not None:
            return self.share(Phase.DATA_WAIT)
        starved = np.nan_to_num(self.column("starved"))
        return self.ratio("data_wait", self.host_column(Phase.DATA_WAIT) * starved, self.table.wall_ns).within(0.0, 1.0)

    @cached_property
    def data_wait_cpu_share(self) -> Interval:
        """CPU time of the loop's thread in the wait for data, over that wait: near 1 computing, near 0 waiting."""
        cpu = self.column("data_wait_cpu_ns")
        return self.ratio("data_wait_cpu_ns", cpu, self.host_column(Phase.DATA_WAIT)).within(0.0, 1.0)

    @cached_property
    def free_cores(self) -> float:
        """Usable cores beside those that train: the CPU's threads, or the one that feeds a device."""
        busy = 1.0 if self.on_accelerator else self.number("threads")
        return max(0.0, self.number("cpu_count") - busy)

    # -- tokens

    @cached_property
    def tokens(self) -> int:
        """Tokens (or elements) of all steady steps, padding included."""
        return int(self.column("tokens").sum())

    @cached_property
    def tokens_per_s(self) -> Interval:
        """Tokens (or elements), padding included, over all time."""
        return self.ratio("tokens", self.column("tokens"), self.table.wall_ns).scaled(NS_PER_S)

    @cached_property
    def padding_share(self) -> Interval:
        """Padding over all tokens."""
        share = self.ratio("padding_tokens", self.column("padding_tokens"), self.column("tokens"))
        if share.value > 1:
            raise NotMeasured("padding_tokens", "more padding was counted than tokens, of which it is a part")
        return share.within(0.0, 1.0)

    @cached_property
    def tokens_per_sample(self) -> Interval:
        return self.ratio("tokens", self.column("tokens"), self.column("samples"))

    @cached_property
    def step_time_by_tokens(self) -> float | None:
        """R squared of step time against tokens; None where every step has the same number of tokens."""
        tokens = self.column("tokens", least=TREND_STEPS)
        return None if np.ptp(tokens) == 0 else squared_correlation(tokens, self.table.wall_ns)

    @cached_property
    def usual_times_by_tokens(self) -> stability.Line | None:
        """The same of all steps but those that lie far off what their length takes, with the others' scatter."""
        return stability.line_through(self.column("tokens", least=TREND_STEPS), self.table.wall_ns)

    @property
    def lengths_differ(self) -> bool:
        """Whether the steps are seen to differ in tokens, as batches of unequal samples do."""
        tokens = self.table.get("tokens")
        return tokens is not None and tokens.size > 0 and bool(tokens.min() < tokens.max())

    # -- the device's queue

    @cached_property
    def starved_share(self) -> Interval:
        """Share of the steps before whose end the device had run dry: the host, not the device, set the pace."""
        self.require_accelerator("starved")
        return mean_interval(self.finite_column("starved")).within(0.0, 1.0)

    @cached_property
    def queue_empty_rate(self) -> Interval:
        """Share of the phase borders at which the device's queue was empty."""
        self.require_accelerator("borders_idle")
        return self.ratio("borders", self.column("borders_idle"), self.column("borders")).within(0.0, 1.0)

    @cached_property
    def host_lead_s(self) -> Interval:
        """How long after the host the device ended a step, in s; near 0 the device waits for the host."""
        self.require_accelerator("host_lead_ns")
        return mean_interval(self.finite_column("host_lead_ns")).scaled(1 / NS_PER_S)

    # -- pauses, noise and trend

    @cached_property
    def optimizer_share(self) -> Interval:
        return self.share(Phase.OPTIMIZER)

    @cached_property
    def drift(self) -> stability.Drift:
        return stability.drift(self._ticking(TREND_STEPS))

    @cached_property
    def noise(self) -> float:
        """Scaled median absolute deviation of the step times over their median."""
        return stability.relative_noise(self._ticking(INDICATIVE_STEPS))

    @cached_property
    def infinite_losses(self) -> int:
        """Steps whose loss was infinite; NaN in the column means that nobody read the loss."""
        loss = self.column("loss")
        if np.isnan(loss).all():
            raise self.missing("loss", "the loss was read in no step")
        return int(np.isinf(loss).sum())

    # -- memory

    @cached_property
    def host_memory_peak(self) -> float:
        """Peak resident memory of the trial's process tree, or of its process where nobody sampled the tree."""
        tree = ask(self.quantity, "host_tree_memory_peak")
        return self.quantity("host_memory_peak") if tree is None else tree

    @cached_property
    def host_memory_share(self) -> float:
        """That peak over the memory the trial may use."""
        return self.host_memory_peak / self.quantity("host_memory_total")

    @cached_property
    def device_memory_peak(self) -> float:
        """Peak of the device's memory in use by anybody (driver's view), or held by our allocator, in bytes."""
        self.require_accelerator("device_memory_total")
        used = self.result.series_named("gpu_memory_used")
        if used is not None and used.values.size:
            return float(used.values.max())
        return self.quantity("device_memory_peak_reserved")

    @cached_property
    def device_memory_share(self) -> float:
        """That peak over the device's memory."""
        return self.device_memory_peak / self.quantity("device_memory_total")

    @cached_property
    def alloc_retries(self) -> int:
        """Device allocations that had to empty the allocator's cache first, in the steady steps."""
        self.require_accelerator("alloc_retries")
        counted = ask(self.quantity, "alloc_retries")
        if counted is not None:
            return int(counted)
        so_far = self.finite_column("alloc_retries")
        return int(so_far[-1] - so_far[0])
