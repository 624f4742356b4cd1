"""What the phases of a step are called in a report."""

from __future__ import annotations

from collections.abc import Mapping

from perf_diagnostics.records import Phase

PHASE_NAMES: Mapping[Phase, str] = {
    Phase.DATA_WAIT: "data wait",
    Phase.TRANSFER: "transfer",
    Phase.FORWARD: "forward",
    Phase.BACKWARD: "backward",
    Phase.OPTIMIZER: "optimizer",
    Phase.OTHER: "other",
}
