"""Diagnoses existing traces of the PyTorch profiler: from columns of events to a waterfall and findings."""

from perf_diagnostics.diagnose.trace.diagnosis import TraceDiagnosis, diagnose_traces
from perf_diagnostics.diagnose.trace.waterfall import waterfall_json

__all__ = ["TraceDiagnosis", "diagnose_traces", "waterfall_json"]
