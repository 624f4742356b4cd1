"""The limits of rules about calls of a step, backwards for nobody or done again, and text; see ``doses.py``."""

from __future__ import annotations

import dataclasses

import numpy as np

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.records import CodePath, CodePlace, CodeSamples, Phase, TrialResult
from tests.planted.doses import Dose
from tests.planted.made_up import HEALTHY_S, loop

_LINE = CodePlace(file="net.py", line=10, function="Net.forward")
_BESIDE = CodePlace(file="net.py", line=11, function="Net.forward")
_WORK_S = HEALTHY_S[Phase.FORWARD] + HEALTHY_S[Phase.BACKWARD]
_ONCE = {"forwards": 1, "forwards_without_gradients": 0, "forwards_again": 0, "backwards": 1, "backwards_again": 0}
_NO_TIME = {"forwards_again_ns": 0, "evaluations_again_ns": 0, "backwards_again_ns": 0}


def _longer(phase: Phase, share: float, seed: int, column: str, counts: dict[str, int]) -> TrialResult:
    """A phase is longer by this share of the step, which is what the column tells of."""
    share = min(0.9, share)
    more = sum(HEALTHY_S.values()) * share / (1 - share)
    means = {phase: HEALTHY_S[phase] + more}
    table = loop(seed, means).steps[0].steady
    took_ns = table.wall_ns * share * np.random.default_rng((seed, 21)).uniform(0.95, 1.05, len(table))
    columns = _ONCE | _NO_TIME | (counts if share else {}) | {column: np.rint(took_ns)}
    return loop(seed, means, columns=columns)


def _repeated(share: float, seed: int) -> TrialResult:
    counts = {"backwards": 3, "backwards_again": 2}
    return _longer(Phase.BACKWARD, share, seed, "backwards_again_ns", counts)


def _asked_again(share: float, seed: int) -> TrialResult:
    counts = {"forwards": 2, "forwards_again": 1}
    return _longer(Phase.FORWARD, share, seed, "forwards_again_ns", counts)


def _run_again(part: float, seed: int) -> TrialResult:
    """This part of the first backwards' operators an earlier one had run; nobody timed them."""
    part = min(1.0, part)
    columns = _ONCE | _NO_TIME | {"backwards": 4}
    return loop(seed, columns=columns, facts={"backward_operators_again": part})


def _evaluated_again(share: float, seed: int) -> TrialResult:
    """For this share of the time a model is asked what it has answered before: nine of ten calls."""
    share = min(1.0, share)
    told = {"calls": 10, "calls_known": 9, "calls_s": 100 * share / 0.9, "calls_known_s": 100 * share}
    return loop(seed, facts={f"evaluation_{name}": value for name, value in told.items()} | _WITHIN)


def _made_text(share: float, seed: int) -> TrialResult:
    """For this share of the step forward turns tensors into text."""
    return _beside_the_model("torch._tensor_str._str", share, seed)


def _metrics(share: float, seed: int) -> TrialResult:
    """For this share of the step forward computes a metric, at a line that no loss depends on."""
    return _beside_the_model("torchmetrics.classification.auroc.BinaryAUROC.compute", share, seed)


def _beside_the_model(call: str, share: float, seed: int) -> TrialResult:
    """For this share of the step forward does something else, as so many of 1,500 looks saw."""
    share = min(0.9, share)
    forward, step = HEALTHY_S[Phase.FORWARD], sum(HEALTHY_S.values())
    seconds = forward + step * share / (1 - share)
    looks = round(1500 * seconds / (step - forward + seconds))
    there = int(np.random.default_rng((seed, 103)).binomial(looks, (seconds - forward) / seconds))
    paths = (
        CodePath(phase="forward", places=(1,), looks=there, calls=(call,)),
        CodePath(phase="forward", places=(0,), looks=looks - there, calls=("torch.nn.modules.linear.Linear.forward",)),
    )
    code = CodeSamples(
        places=(_LINE, _BESIDE),
        paths=paths,
        roles=("method", "unread"),
        interval_s=0.025,
        rare_interval_s=0.1,
        cpu_s=0.01,
    )
    return dataclasses.replace(loop(seed, {Phase.FORWARD: seconds}), code=code)


def _unused_operators(share: float, seed: int) -> TrialResult:
    """This part of the first backwards leads to another optimizer's gradients alone."""
    share = min(1.0, share)
    facts = {"gradients_used": 1_000_000, "gradients_nobody_uses": 0, "gradients_dropped": True}
    looked = {"backwards_looked_into": 2, "backward_operators_unused": share, "backward_time_unused": share}
    return loop(seed, facts=facts | looked)


def _micro_batches(micro: int, each_s: float, used: float, seed: int, operator_s: float | None = None) -> TrialResult:
    """So many micro-batches of two samples, whose forward and backward take so long for each trained tensor.

    Where a step was looked through, ``operator_s`` is the same for each operator.
    """
    seen = {} if operator_s is None else {"operators": max(1, round(_WORK_S / operator_s))}
    return loop(
        seed,
        batch_size=2,
        facts={"accumulation_steps": micro, "optimizer_tensors": max(1, round(_WORK_S / micro / each_s))} | seen,
        quantities={"host_memory_peak": min(0.99, used) * 16e9, "host_memory_total": 16e9},
    )


_WITHIN = {"evaluation_calls_within_s": 100.0}

INFO, WARNING, CRITICAL = Severity.INFO, Severity.WARNING, Severity.CRITICAL

DOSES: tuple[Dose, ...] = (
    *(
        Dose(code="CMP020", limit=name, severity=severity, build=_repeated)
        for name, severity in (("warn_share", WARNING), ("critical_share", CRITICAL))
    ),
    *(
        Dose(code="CMP021", limit=name, severity=severity, build=_asked_again)
        for name, severity in (("info_share", INFO), ("warn_share", WARNING))
    ),
    Dose(code="CMP020", limit="operators", build=_run_again),
    *(
        Dose(code="CMP054", limit=name, severity=severity, build=_evaluated_again)
        for name, severity in (("info_share", INFO), ("warn_share", WARNING))
    ),
    *(
        Dose(code="HST013", limit=name, severity=severity, build=build, says=kind)
        for name, severity in (("info_share", INFO), ("warn_share", WARNING))
        for kind, build in (("turning tensors into text", _made_text), ("computing metrics", _metrics))
    ),
    Dose(code="CMP017", limit="backward_share", build=_unused_operators),
    Dose(
        code="CMP022",
        limit="short_s",
        severity=INFO,
        scale="falls",
        most=5e-3,
        build=lambda each_s, seed: _micro_batches(16, each_s, 0.02, seed),
    ),
    Dose(
        code="CMP022",
        limit="short_operator_s",
        severity=INFO,
        scale="falls",
        most=5e-4,
        build=lambda operator_s, seed: _micro_batches(16, 5e-3, 0.02, seed, operator_s),
    ),
    Dose(
        code="CMP022",
        limit="least_batches",
        severity=INFO,
        quiet=(0.5,),
        build=lambda micro, seed: _micro_batches(round(micro), 50e-6, 0.02, seed),
    ),
    # A micro-batch of twice the size would take twice the memory.
    Dose(
        code="CMP022",
        limit="full",
        severity=INFO,
        scale="falls",
        most=0.95,
        build=lambda full, seed: _micro_batches(4, 50e-6, full / 2, seed),
    ),
)
