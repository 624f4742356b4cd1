"""Products with operands of zeros or rows for nothing, and hooks, around their rules' limits; see ``doses.py``."""

from __future__ import annotations

import dataclasses

import numpy as np

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.records import CodePath, CodePlace, CodeSamples, Json, Phase, TrialResult
from tests.planted.doses import Dose
from tests.planted.made_up import HEALTHY_S, loop

_STEP_S = sum(HEALTHY_S.values())
_LOOP = CodePlace(file="train.py", line=9, function="main")
_LINE = CodePlace(file="model.py", line=5, function="Net.forward")


def _seen_at_line(share: float, seed: int, facts: dict[str, Json]) -> TrialResult:
    """This share of the step is spent at a line in forward, where so many of 1,500 looks saw the thread."""
    share = min(0.9, share)
    forward = HEALTHY_S[Phase.FORWARD]
    seconds = forward + (_STEP_S * share) / (1 - share)
    looks = round(1500 * seconds / (_STEP_S - forward + seconds))
    there = int(np.random.default_rng((seed, 101)).binomial(looks, (seconds - forward) / seconds))
    paths = (
        CodePath(phase="forward", places=(0, 1), looks=there),
        CodePath(phase="forward", places=(0,), looks=looks - there),
    )
    code = CodeSamples(places=(_LOOP, _LINE), paths=paths, interval_s=0.025, rare_interval_s=0.1, cpu_s=0.01)
    return dataclasses.replace(loop(seed, {Phase.FORWARD: seconds}, facts=facts), code=code)


def _products(operations: float, zeros: float = 0.99) -> dict[str, Json]:
    """Products of this share of a step's operations have an operand of so many zeros."""
    told: dict[str, Json] = {"operation": "mm", "shape": [512, 60], "zeros": zeros, "calls": 1}
    told |= {"file": _LINE.file, "line": _LINE.line, "function": _LINE.function, "text": "adjacency @ h"}
    told |= {"flops_forward": min(1.0, operations) * 1e9, "flops_backward": min(1.0, operations) * 2e9}
    return {"product_flops_forward": 1e9, "product_flops_backward": 2e9, "zero_products": [told]}


def _idle(operations: float, rows: float = 0.85) -> dict[str, Json]:
    """This share of a step's operations is for rows without a gradient, which so many are at their line."""
    told: dict[str, Json] = {"operation": "addmm", "shape": [1024, 8000], "rows": rows, "calls": 1}
    told |= {"file": _LINE.file, "line": _LINE.line, "function": _LINE.function, "text": "return self.head(h)"}
    told |= {"flops_forward": min(1.0, operations) * 1e9, "flops_backward": min(1.0, operations) * 2e9}
    return {"product_flops_forward": 1e9, "product_flops_backward": 2e9, "rows_without_gradient": [told]}


#: Backward's share of a healthy step.
_BACKWARD = HEALTHY_S[Phase.BACKWARD] / sum(HEALTHY_S.values())


def _hooked(share: float, seed: int) -> TrialResult:
    hook: Json = {"file": _LINE.file, "line": 4, "function": _LINE.function, "modules": 26, "returns": False}
    return _seen_at_line(share, seed, {"user_hooks": [hook]})


DOSES: tuple[Dose, ...] = (
    Dose(
        code="CMP023",
        limit="least_zeros",
        severity=Severity.INFO,
        scale="room",
        build=lambda zeros, seed: loop(seed, facts=_products(0.5, zeros)),
    ),
    Dose(
        code="CMP023",
        limit="info_share",
        severity=Severity.INFO,
        build=lambda share, seed: loop(seed, facts=_products(share)),
    ),
    Dose(
        code="CMP023",
        limit="warn_share",
        build=lambda share, seed: _seen_at_line(share, seed, _products(0.5)),
    ),
    Dose(
        code="CMP025",
        limit="least_rows",
        severity=Severity.INFO,
        build=lambda rows, seed: loop(seed, facts=_idle(0.5, min(1.0, rows))),
    ),
    Dose(
        code="CMP025",
        limit="info_share",
        severity=Severity.INFO,
        build=lambda share, seed: loop(seed, facts=_idle(share)),
    ),
    Dose(
        code="CMP025",
        limit="warn_share",
        build=lambda share, seed: loop(seed, facts=_idle(share / _BACKWARD)),
    ),
    *(
        Dose(code="CMP024", limit=name, severity=severity, build=_hooked)
        for name, severity in (("warn_share", Severity.WARNING), ("critical_share", Severity.CRITICAL))
    ),
)
