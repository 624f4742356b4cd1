"""The workload ``faulty``: an mlp with planted faults, to see what the profiler makes of them.

The faults are real: the sleeping loader sleeps, the collected heap is there, the exiting process is killed by SIGKILL.
The same options without a fault, given to ``mlp``, are its control.
"""

from perf_diagnostics.workloads.faulty.options import FaultyOptions
from perf_diagnostics.workloads.faulty.workload import Faulty

__all__ = ["Faulty", "FaultyOptions"]
