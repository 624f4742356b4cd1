"""The passes that look at a trial after its timed steps, in the order in which they run."""

from __future__ import annotations

from perf_diagnostics.trials.afterwards.afterwards import Pass
from perf_diagnostics.trials.afterwards.deep import DeepWindow
from perf_diagnostics.trials.afterwards.host_and_device import HostAndDevice
from perf_diagnostics.trials.afterwards.host_link import HostLink
from perf_diagnostics.trials.afterwards.operators_of_a_step import OperatorsOfAStep
from perf_diagnostics.trials.afterwards.overhead import ProbeOverhead
from perf_diagnostics.trials.afterwards.phase_memory import PhaseMemory

#: The deep window comes last: it is the one that most disturbs what would be measured after it.
PASSES: tuple[Pass, ...] = (
    PhaseMemory(),
    ProbeOverhead(),
    HostAndDevice(),
    HostLink(),
    OperatorsOfAStep(),
    DeepWindow(),
)
