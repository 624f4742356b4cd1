"""Values of several lines of trials laid on the same batch sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from perf_diagnostics.diagnose.facts.facts import Point
from perf_diagnostics.report.arms import Arm


def sizes_of(arms: Sequence[Arm]) -> tuple[int, ...]:
    """Every batch size of these lines, rising."""
    return tuple(sorted({size for arm in arms for size in arm.sizes}))


def values_by_size(arm: Arm, sizes: Sequence[int], of: Callable[[Point], float | None]) -> tuple[float | None, ...]:
    """One value a batch size, None where a line has none."""
    points = {point.batch_size: point for point in arm.points}
    return tuple(of(points[size]) if size in points else None for size in sizes)


def marks_of(arms: Sequence[Arm], sizes: Sequence[int]) -> tuple[tuple[str, str], ...]:
    """Why a batch size has nothing to show; with several lines, whose batch size it was."""
    losses = ((size, arm, arm.loss(size)) for size in sizes for arm in arms)
    alone = len(arms) == 1
    return tuple((str(size), loss if alone else f"{arm.label}: {loss}") for size, arm, loss in losses if loss)
