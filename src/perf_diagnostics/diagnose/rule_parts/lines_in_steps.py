"""At which lines a phase was seen for more of the time in some steps than in the others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perf_diagnostics.diagnose.code.code_shares import code_shares
from perf_diagnostics.diagnose.code.phase_looks import LEAST_LOOKS
from perf_diagnostics.diagnose.code_share import CodeShare
from perf_diagnostics.diagnose.facts.facts import TrialFacts, ask
from perf_diagnostics.diagnose.rule_parts.growing_lines import difference, part_of, told_at
from perf_diagnostics.records import Bools, CodePath, Float64, Phase

#: A stretch of the time tells of the steps that have at least so much of it: where it lies is known to half of one.
_MOST_OF_IT = 0.5

#: Lines that are named at most.
_MOST_LINES = 3


def lines_in_steps(facts: TrialFacts, phase: Phase, steps: Bools) -> tuple[CodeShare, ...]:
    """The lines that have a larger part of all looks in these steps than in the others, the one with most more first.

    Empty where that is not known: the steps are shorter than the stretches of time in which looks were counted, or too
    few looks fell into them. A line counts only if its part is surely larger (Wilson's intervals of both parts).

    Args:
        facts: of the trial.
        phase: where the lines lie.
        steps: which of the steady steps, shape ``(steps,)``.
    """
    code, starts = facts.result.code, ask(facts.column, "start_ns")
    if code is None or not code.stretch_s or starts is None:
        return ()
    paths = [path for path in code.paths if path.course]
    count = max((len(path.course) for path in paths), default=0)
    begin_s = starts.astype(np.float64) / 1e9
    end_s = begin_s + facts.column("wall_ns") / 1e9
    # The last stretch is not full.
    edges_s = end_s[-1] + (np.arange(count + 1) - count + 0.5) * code.stretch_s
    part = _part_of_stretches(edges_s, begin_s[steps], end_s[steps])
    within, without = (_looks(paths, chosen) for chosen in (part >= _MOST_OF_IT, part == 0))
    if sum(within) < LEAST_LOOKS:
        return ()
    lines = code_shares(facts, phase)
    told = [told_at(path, lines, code) if path.phase == phase else None for path in paths]
    more = []
    for line in lines:
        chosen = [one is line for one in told]
        grown = difference(part_of(within, chosen), part_of(without, chosen))
        if (grown.low or 0.0) > 0:
            more.append((grown.value, line))
    return tuple(line for _, line in sorted(more, key=lambda one: -one[0])[:_MOST_LINES])


def _part_of_stretches(edges_s: Float64, begin_s: Float64, end_s: Float64) -> Float64:
    """The part of each stretch between two edges that these spans have, shape ``(stretches,)``."""
    shared = np.minimum(edges_s[1:, None], end_s) - np.maximum(edges_s[:-1, None], begin_s)
    part: Float64 = np.clip(shared, 0.0, None).sum(axis=1) / np.diff(edges_s)
    return part


def _looks(paths: Sequence[CodePath], chosen: Bools) -> list[int]:
    """How often each path was seen in these stretches."""
    return [sum(looks for looks, one in zip(path.course, chosen, strict=True) if one) for path in paths]
