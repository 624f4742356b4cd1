"""Why something is not known that a look through one step would have told."""

from __future__ import annotations

from perf_diagnostics.diagnose.facts.facts import NotMeasured, TrialFacts

_NOBODY = (
    "no step was looked through operator by operator; of a watched loop one is, after its first second, and of a trial "
    "after its timed steps"
)

#: The look says under this name why it could not be.
_LOOK = "zero_products"


def not_looked_for(facts: TrialFacts, name: str, otherwise: str = _NOBODY) -> NotMeasured:
    """What to raise for a fact of the look's that is not there: with its own reason, or that of the whole look.

    Args:
        facts: the trial.
        name: the fact's.
        otherwise: why it is not there, where the record does not say.
    """
    gap = facts.result.gap(name)
    if gap is None and "operators" not in facts.result.facts:
        gap = facts.result.gap(_LOOK)
    return NotMeasured(name, otherwise if gap is None else gap.why)
