"""The passes that look at a trial after its timed steps, in the order in which they run."""

from __future__ import annotations

from perf_diagnostics.trials.afterwards import Pass
from perf_diagnostics.trials.crossings import HostAndDevice
from perf_diagnostics.trials.deep import DeepWindow
from perf_diagnostics.trials.host_link import HostLink
from perf_diagnostics.trials.overhead import ProbeOverhead
from perf_diagnostics.trials.phase_memory import PhaseMemory

#: The deep window comes last: it is the only one that disturbs what would be measured after it.
PASSES: tuple[Pass, ...] = (PhaseMemory(), ProbeOverhead(), HostAndDevice(), HostLink(), DeepWindow())
