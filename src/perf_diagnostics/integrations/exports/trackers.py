"""Sends a run's numbers to the experiment tracker that is already open: W&B, MLflow, or a Lightning logger.

None of them is imported: whatever has ``log_metrics(metrics, step=…)`` (MLflow, Lightning) or ``log(metrics, step=…)``
(W&B) will do.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from perf_diagnostics.diagnose.engine import diagnose
from perf_diagnostics.diagnose.facts.facts import TrialFacts
from perf_diagnostics.diagnose.finding import Diagnosis, Tried, Trying
from perf_diagnostics.diagnose.tried.outcomes import change_words
from perf_diagnostics.diagnose.verdict_place import verdict_note, verdict_rule
from perf_diagnostics.diagnose.wording import percent_between
from perf_diagnostics.errors import InvalidSettings
from perf_diagnostics.integrations.exports.naming import by_batch_size, configuration, headline_numbers, sweep_results
from perf_diagnostics.records import Run

#: MLflow takes letters, digits and these in a metric's name.
_NOT_IN_NAMES = re.compile(r"[^\w\-./ ]")

#: Letters of a text: MLflow's limit of a tag's or parameter's value was 500 for long.
_MOST = 500


def log_run(tracker: Any, run: Run, diagnosis: Diagnosis | None = None) -> int:
    """Log each configuration's throughput, step time and phase shares against the batch size, and the verdict.

    The tracker's step is the batch size, so that its charts show throughput over batch size. Of repeats the mean is
    logged.

    Args:
        tracker: ``wandb`` (or a W&B run), ``mlflow``, or a Lightning logger, with a run open.
        run: the records.
        diagnosis: what the rules say of them, for a run whose advice was tried: ``report.diagnosis``, which knows the
            measured gains. Default: worked out from the records alone.

    Returns:
        How many batch sizes were logged.

    Raises:
        InvalidSettings: the object can log no metrics.
    """
    log = _logger_of(tracker)
    sizes = by_batch_size(sweep_results(run))
    for size, results in sizes:  # rising, because W&B drops a step below its last one
        gathered: dict[str, list[float]] = {}
        for result in results:
            prefix = _NOT_IN_NAMES.sub("_", configuration(result.trial))
            for name, value in headline_numbers(TrialFacts.of(result)).items():
                gathered.setdefault(f"perf_diagnostics/{prefix}/{name}", []).append(value)
        metrics = {name: sum(values) / len(values) for name, values in gathered.items()}
        if metrics:
            log(metrics, size)
    _log_verdict(tracker, diagnose(run) if diagnosis is None else diagnosis)
    return len(sizes)


def _logger_of(tracker: Any) -> Callable[[dict[str, float], int], Any]:
    for name in ("log_metrics", "log"):
        method = getattr(tracker, name, None)
        if callable(method):
            return lambda metrics, step: method(metrics, step=step)
    raise InvalidSettings(
        f"{type(tracker).__name__} has neither log_metrics(metrics, step=…) nor log(metrics, step=…); "
        "give wandb, mlflow, or a Lightning logger."
    )


def _log_verdict(tracker: Any, found: Diagnosis) -> None:
    """The verdict, and what was tried, as the tracker's kind of text, where it has one."""
    # Without the line of code: a tracker may be another company's.
    says = f"No verdict: {found.no_verdict_because}" if found.verdict is None else found.verdict.summary
    says = f"{says} {verdict_note(found)}".strip()
    words = {
        "perf_diagnostics/verdict": verdict_rule(found),
        "perf_diagnostics/summary": says[:_MOST],
    }
    if found.tried:
        words["perf_diagnostics/tried"] = "; ".join(map(_tried, found.tried))[:_MOST]
    for name in ("log_params", "log_hyperparams"):
        method = getattr(tracker, name, None)
        if callable(method):
            method(words)
            return
    summary = getattr(getattr(tracker, "run", None) or tracker, "summary", None)
    if summary is not None and hasattr(summary, "update"):
        summary.update(words)


def _tried(one: Tried) -> str:
    """``length_bucketing=True: confirmed, 52 % (44 % to 59 %) of a sample's time``."""
    told = f"{change_words(one)}: {one.verdict}"
    if one.gain is None or one.verdict is Trying.TOO_EARLY:
        return told
    return f"{told}, {percent_between(one.gain)} of a sample's time"
