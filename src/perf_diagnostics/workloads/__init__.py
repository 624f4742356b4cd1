"""What a trial trains: the seam (`Training`, `Workload`) and the registry of names. Importing this loads no torch."""

from perf_diagnostics.workloads.registry import find, names, options_of
from perf_diagnostics.workloads.workload import BatchCount, Training, Workload

__all__ = ["BatchCount", "Training", "Workload", "find", "names", "options_of"]
