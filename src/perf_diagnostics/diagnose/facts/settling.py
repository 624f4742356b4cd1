"""Whether a trial's steps had settled when they were measured, and if not, by what that is seen."""

from __future__ import annotations

import numpy as np

from perf_diagnostics.diagnose.facts.recorded import ask
from perf_diagnostics.diagnose.facts.trial_facts import TrialFacts
from perf_diagnostics.diagnose.statistics.stability import start_beyond_rest
from perf_diagnostics.diagnose.wording import counted, percent

#: How the fact ``warmup_ended`` begins where the causes of the warm-up still acted when measuring began.
GIVEN_UP = "given up"

#: A start that surely differs from the rest by less than this is no warm-up worth the name: EXP004's limit.
APART = 0.08


def gave_up(facts: TrialFacts) -> bool:
    """Whether the loop gave up waiting for the causes of the warm-up to end."""
    return (facts.word("warmup_ended") or "").startswith(GIVEN_UP)


def not_settled(facts: TrialFacts) -> str:
    """By what it is seen that the steps had not settled, in words; empty where they had, as far as can be told.

    That is a warm-up that was given up, ``torch.compile`` at work in measured steps (its time is a hundred steps' time
    and belongs to no mean), or step times without a steady part (MSER-5) whose first third surely differs from the
    last half by :data:`APART` or more. Simulated, that is said of at most 1 % of steady series of 100 or 200 steps
    without correlation, at 3 to 20 % of scatter; of 100 steps at 10 % and AR(1) with rho 0.6 of 1 %, with rho 0.9 of
    8 %.
    """
    if gave_up(facts):
        return f"its warm-up was {facts.word('warmup_ended')}"
    compiled = _compiled(facts)
    if compiled:
        return f"torch.compile was at work in {counted(compiled, 'measured step')}"
    if facts.result.steady or not facts.steps:
        return ""
    start = start_beyond_rest(facts.step_times_s)
    surely = (start.low or 0.0) > 0 or (start.high or 0.0) < 0
    if abs(start.value) < APART or not surely:
        return ""
    much = f"{percent(abs(start.value))} {'more' if start.value > 0 else 'less'} time"
    return f"its first steps took {much} than its last, and no part was steady"


def _compiled(facts: TrialFacts) -> int:
    """How many measured steps compiled something."""
    graphs = ask(lambda: facts.column("graphs"))
    if graphs is None:
        return 0
    # Below 0 nobody had imported torch's compiler yet.
    return int(np.count_nonzero(np.diff(np.maximum(graphs, 0)) > 0))
