"""The two notebook calls by the name of older notebooks: ``from model_profiler import run_kaggle_analysis``."""

from __future__ import annotations

from perf_diagnostics.kaggle import analyze_gpu_utilization, run_kaggle_analysis

__all__ = ["analyze_gpu_utilization", "run_kaggle_analysis"]
