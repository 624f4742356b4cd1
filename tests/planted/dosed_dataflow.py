"""Work that need not be done around the limits of the rules that follow the data; see ``doses.py``."""

from __future__ import annotations

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.records import Json, Phase, TrialResult
from tests.planted.doses import Dose
from tests.planted.made_up import HEALTHY_S, loop

_STEP_S = sum(HEALTHY_S.values())

_LINE: dict[str, Json] = {"file": "model.py", "line": 5, "function": "Net.forward", "text": "y = self.encoder(x)"}


def _needless(name: str, share: float, seed: int) -> TrialResult:
    """This share of the step is for nothing, by one look at one step: of forward and of backward alike."""
    forward, backward = (HEALTHY_S[phase] for phase in (Phase.FORWARD, Phase.BACKWARD))
    part = min(1.0, share * _STEP_S / (forward + backward))
    told: dict[str, Json] = {**_LINE, "operators": 12}
    told |= {"seconds_forward": part * forward, "seconds_backward": part * backward}
    if name == "computed_again":
        told |= {"first": {**_LINE, "line": 4}, "of_parameters": False}
    if name == "dense_products":
        told |= {"rows": 512, "inner": 8, "columns": 512, "batch_rows": 32, "uses": 2}
        told |= {"seconds_instead": 0.0}
    if name == "known_answers":
        # Of a thousand passes: what is saved is all of it but a thousandth.
        told |= {"looks": 4, "bytes": 1 << 10, "rows_a_step": 64, "calls": 1000, "seconds_instead": 0.0}
        told |= {"rows": 1_000_000, "different": 1000, "again": 1.0, "compared": 500}
    if name == "repeated_calls":
        told |= {"passes": 64, "recurs": False}
    if name == "unchanging":
        told |= {"looks": 4, "bytes": 1 << 20, "casts": False}
    facts: dict[str, Json] = {"operator_seconds_forward": forward, "operator_seconds_backward": backward, name: [told]}
    return loop(seed, facts=facts)


def _outside(share: float, seed: int) -> TrialResult:
    """For this share of the step forward has NumPy at work, as long as its operators take the rest of it."""
    share = min(0.9, share)
    operators = HEALTHY_S[Phase.FORWARD]
    seconds = _STEP_S * share / (1 - share)
    told: dict[str, Json] = {**_LINE, "operators": 1, "seconds_forward": seconds, "of": "data"}
    facts: dict[str, Json] = {"operator_seconds_forward": operators, "around_operators_seconds_forward": seconds}
    facts |= {"operator_bytes_forward": 0, "operator_bytes_backward": 0}
    facts |= {"outside_of_torch": [told], "outside_seconds_forward": seconds}
    return loop(seed, {Phase.FORWARD: operators + seconds}, facts=facts)


def _doses(code: str, name: str) -> tuple[Dose, ...]:
    return tuple(
        Dose(code=code, limit=limit, severity=severity, build=lambda share, seed: _needless(name, share, seed))
        for limit, severity in (("info_share", Severity.INFO), ("warn_share", Severity.WARNING))
    )


DOSES: tuple[Dose, ...] = (
    *_doses("CMP027", "constants_made"),
    *_doses("CMP028", "dense_products"),
    *_doses("CMP029", "never_used"),
    *_doses("CMP030", "computed_again"),
    *_doses("CMP032", "unchanging"),
    *_doses("CMP033", "known_answers"),
    *_doses("CMP038", "beside_the_loss"),
    *_doses("HST014", "repeated_calls"),
    Dose(code="HST016", limit="info_share", severity=Severity.INFO, build=_outside),
    Dose(code="HST016", limit="warn_share", build=_outside),
)
