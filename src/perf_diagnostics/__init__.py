"""Why is my PyTorch training slow, and what would I gain by changing what? Measured, diagnosed, proved.

Importing the package loads neither torch nor any report library; the names below load what they need when first used.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing's own would be the longest import of this file, and Ctrl-C may come that early

__version__ = "0.1.0"

__all__ = [
    "BottleneckReport",
    "OwnLoop",
    "PerformanceDiagnostics",
    "__version__",
    "analyze_gpu_utilization",
    "attach",
    "masks_from_bits",
    "run_kaggle_analysis",
]

if TYPE_CHECKING:
    from typing import Any

    from perf_diagnostics.diagnostics import PerformanceDiagnostics
    from perf_diagnostics.integrations.attached import attach
    from perf_diagnostics.integrations.own_loop import OwnLoop
    from perf_diagnostics.kaggle import analyze_gpu_utilization, run_kaggle_analysis
    from perf_diagnostics.measure.host.random_masks import masks_from_bits
    from perf_diagnostics.report.bottleneck_report import BottleneckReport

_HOMES = {
    "BottleneckReport": "perf_diagnostics.report.bottleneck_report",
    "OwnLoop": "perf_diagnostics.integrations.own_loop",
    "attach": "perf_diagnostics.integrations.attached",
    "masks_from_bits": "perf_diagnostics.measure.host.random_masks",
    "PerformanceDiagnostics": "perf_diagnostics.diagnostics",
    "analyze_gpu_utilization": "perf_diagnostics.kaggle",
    "run_kaggle_analysis": "perf_diagnostics.kaggle",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
