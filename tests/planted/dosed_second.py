"""Second conditions of rules, which have to hold beside a large share, around their own limits; see ``doses.py``."""

from __future__ import annotations

from typing import Any

import numpy as np

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.records import Json, Phase, Run, TrialResult
from perf_diagnostics.testing import sweep_of
from tests.planted.dosed_runs import PROCESS_SCATTER, ranks
from tests.planted.doses import Dose
from tests.planted.made_up import GPU, HEALTHY_S, calm, loop

INFO, WARNING = Severity.INFO, Severity.WARNING
_STEP_S = sum(HEALTHY_S.values())
_STEPS = 120


def _handing_over(computing: float, seed: int) -> TrialResult:
    """Half of a step is the wait for workers, and the loop's thread computes in this part of the wait."""
    means = {Phase.DATA_WAIT: _STEP_S}
    waits = loop(seed, means).steps[0].steady.columns["host_data_wait_ns"]
    columns = {"data_wait_cpu_ns": computing * waits, "epoch": np.arange(_STEPS) // 40}
    return loop(seed, means, facts={"num_workers": 2, "cpu_count": 4, "threads": 1}, columns=columns)


def _one_pause(length: float, seed: int) -> TrialResult:
    """One of 1,200 steps pauses for so many times the middle step."""
    at = np.arange(1200)
    more = np.where(at == 700, length * _STEP_S, 0.0)
    return loop(seed, steps=1200, mood=calm, added={Phase.OTHER: more}, columns={"gc_ns": more * 1e9})


def _allocator(seed: int, *, held: float, used: float, retries: float) -> TrialResult:
    """These parts of 80 GB are held by the allocator and in use."""
    return loop(
        seed,
        device=GPU,
        quantities={
            "device_memory_total": 80e9,
            "device_memory_peak_reserved": max(0.01, held) * 80e9,
            "device_memory_peak_allocated": max(0.005, used) * 80e9,
            "alloc_retries": retries,
        },
    )


def _handed_through(used: float, seed: int) -> TrialResult:
    """This part of the 64 MB that a Docker container has for shared memory is in use."""
    free = 64e6 * (1 - min(1.0, used))
    room = {"shared_memory_total": 64e6, "shared_memory_free_before": 64e6, "shared_memory_free_least": free}
    return loop(seed, facts={"num_workers": 2, "prefetch_factor": 2}, quantities=room)


def _staged(rate: float, seed: int) -> TrialResult:
    """Batches that are not pinned are copied for a tenth of the step, at this part of the 24 GB/s of pinned ones."""
    seconds = 0.1 * _STEP_S
    return loop(
        seed,
        {Phase.TRANSFER: seconds},
        device=GPU,
        facts={"pin_memory": False},
        quantities={"host_to_device_bandwidth": 24e9, "copies_in_transfer_bytes": rate * 24e9 * seconds},
    )


def _micro_batches(used: float, seed: int) -> Run:
    """Two batches accumulated, whose fixed cost is half of a step, with this part of the memory in use."""
    return sweep_of(
        a_s=0.05,
        b_s=0.05 / 128,
        batch_sizes=(8, 16, 32, 64, 128),
        repeats=3,
        process_noise=PROCESS_SCATTER,
        noise=0.05,
        seed=seed,
        settings={"accumulation_steps": 2},
        quantities={"host_memory_peak": min(0.99, max(0.01, used)) * 16e9, "host_memory_total": 16e9},
    )


def _above_the_floor(part: float, seed: int) -> TrialResult:
    """AdamW takes ten times as long as the memory allows; what lies above that is this part of the step."""
    share = max(1e-3, part / 0.9)
    seconds = (_STEP_S - HEALTHY_S[Phase.OPTIMIZER]) * share / (1 - share)
    return loop(
        seed,
        {Phase.OPTIMIZER: seconds},
        mood=calm,
        facts={"optimizer": "AdamW"},
        quantities={"trainable_parameters": 0.1 * seconds * 20e9 / 28, "memory_bandwidth": 20e9},
    )


def _double(share: float, seed: int) -> TrialResult:
    """A model of 64 bits computes for this share of the step; the rest is the wait for data."""
    work = HEALTHY_S[Phase.FORWARD] + HEALTHY_S[Phase.BACKWARD] + HEALTHY_S[Phase.OPTIMIZER]
    waits = work * (1 - max(share, 1e-3)) / max(share, 1e-3)
    means = {Phase.DATA_WAIT: waits, Phase.TRANSFER: 0.0, Phase.OTHER: 0.0}
    return loop(seed, means, facts={"parameter_types": ["float64"]})


def _in_bfloat16(saved: float, seed: int) -> TrialResult:
    """All operators are products, of whose time bfloat16 would save this share of the step, casts aside."""
    forward, backward = (HEALTHY_S[phase] for phase in (Phase.FORWARD, Phase.BACKWARD))
    left = max(0.0, 1 - saved * _STEP_S / (forward + backward))
    told: dict[str, Json] = {}
    seconds: dict[str, Json] = {}
    for phase, took in (("forward", forward), ("backward", backward)):
        told |= {phase: took, f"tried_{phase}": took, f"half_{phase}": left * took, f"casts_{phase}": 0.0}
        seconds |= {f"operator_seconds_{phase}": took, f"operator_bytes_{phase}": 0}
        seconds |= {f"around_operators_seconds_{phase}": 0.0}
    return loop(seed, facts={"float32_products": told, **seconds})


def _gradients_of_others(share: float, seed: int) -> TrialResult:
    """Of a million gradients this share belongs to a teacher that nobody trains."""
    others = round(1e6 * share)
    facts = {"gradients_used": 1_000_000 - others, "gradients_nobody_uses": others, "unused_parameters": 0}
    return loop(seed, facts=facts)


def _cut_off(share: float, seed: int) -> TrialResult:
    """Of a million parameters that an optimizer holds this share gets no gradient."""
    without = round(1e6 * share)
    facts = {"unused_parameters": without, "gradients_used": 1_000_000 - without, "gradients_nobody_uses": 0}
    return loop(seed, facts=facts)


def _untouched_rows(lost: float, seed: int) -> TrialResult:
    """Updating rows of an embedding table that were not looked up is this share of the step, and half of the update."""
    share = min(0.95, 2 * lost)
    seconds = (_STEP_S - HEALTHY_S[Phase.OPTIMIZER]) * share / (1 - share)
    table = {"embedding_gradient_numbers": 5_000_000, "embedding_rows": 100_000, "embedding_rows_touched": 0}
    return loop(seed, {Phase.OPTIMIZER: seconds}, mood=calm, facts=table | {"gradients_used": 10_000_000})


def _scattered_stalls(in_one_place: float, seed: int) -> TrialResult:
    """One step in twenty stalls, half of all time; this part of each stall lies outside of the phases."""
    rng = np.random.default_rng((seed, 83))
    more = np.where(rng.random(1200) < 0.05, 20 * _STEP_S, 0.0)
    elsewhere = (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER, Phase.DATA_WAIT)
    added = {phase: (1 - in_one_place) / len(elsewhere) * more for phase in elsewhere}
    return loop(seed, steps=1200, mood=calm, added={Phase.OTHER: in_one_place * more, **added})


def _late(seed: int, *, often: float) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Of four ranks one is late by half of a step; it is rank 2 in this part of the steps, else another one."""
    rng = np.random.default_rng((seed, 89))
    who = np.where(rng.random(_STEPS) < often, 2, rng.choice([0, 1, 3], _STEPS))
    late = np.zeros((4, _STEPS))
    late[who, np.arange(_STEPS)] = 0.5 * _STEP_S
    return late


def _now_and_then(part: float, seed: int) -> TrialResult:
    """In every fifth step or so one of four ranks is late by one and a half; this part of them it is rank 2."""
    rng = np.random.default_rng((seed, 101))
    at = np.flatnonzero(rng.random(1200) < 0.2)
    who = np.where(rng.random(at.size) < part, 2, rng.choice([0, 1, 3], at.size))
    late = np.zeros((4, 1200))
    late[who, at] = 1.5 * _STEP_S
    return ranks(seed, late)


def _longest_batch(often: float, seed: int) -> TrialResult:
    """The same where the late one has twice the tokens."""
    late = _late(seed, often=often)
    return ranks(seed, late, columns={"tokens": np.where(late > 0, 2000.0, 1000.0)})


def _product(part: float, seed: int) -> TrialResult:
    """A step's operations come to this part of what the fastest product of the machine does."""
    given = {"flops_per_step": max(part, 1e-3) * 1e12 * _STEP_S, "matmul_ceiling": 1e12}
    return loop(seed, mood=calm, quantities=given)


def _moving(part: float, seed: int) -> TrialResult:
    """The operators of a step move this part of what memory can, and do one operation a byte where ten would fit."""
    traffic = max(part, 1e-3) * 20e9 * _STEP_S
    given = {"traffic_bytes_per_step": traffic, "memory_bandwidth": 20e9, "flops_per_step": traffic}
    return loop(seed, mood=calm, quantities=given | {"matmul_ceiling": 200e9})


def _blocked(share: float, seed: int) -> TrialResult:
    """The loop's thread is blocked in forward for this share of the step, and has no core for a hundredth of it.

    A sampler's thread runs for a fiftieth beside it.
    """
    share = min(0.9, share)
    means = {Phase.FORWARD: HEALTHY_S[Phase.FORWARD] + _STEP_S * share / (1 - share)}
    table = loop(seed, means).steps[0].steady.columns
    lacks = (share + 0.01) * table["wall_ns"] * np.random.default_rng((seed, 97)).uniform(0.9, 1.1, _STEPS)
    ran = table["thread_cpu_ns"] - lacks
    loops = float(ran.sum() / table["wall_ns"].sum())
    counted = {"loop_cpu_share": loops, "loop_run_delay_share": 0.01}
    counted |= {"process_cpu_share": loops + 0.02, "process_run_delay_share": 0.01}
    return loop(seed, means, columns={"thread_cpu_ns": ran}, quantities=counted)


DOSES: tuple[Dose, ...] = (
    Dose(code="INP008", limit="computing_share", scale="room", build=_handing_over),
    Dose(code="XFR002", limit="slow_rate", severity=INFO, scale="falls", most=1.0, build=_staged),
    *(
        Dose(code="HST012", limit=name, severity=severity, build=_blocked)
        for name, severity in (("warn_share", WARNING), ("critical_share", Severity.CRITICAL))
    ),
    Dose(code="MEM010", limit="full_share", scale="room", build=_handed_through),
    Dose(code="HST005", limit="longest", severity=INFO, build=_one_pause),
    Dose(
        code="MEM002",
        limit="held_share",
        scale="room",
        build=lambda held, seed: _allocator(seed, held=held, used=held / 3, retries=5.0),
    ),
    Dose(
        code="MEM002",
        limit="full_share",
        scale="room",
        build=lambda held, seed: _allocator(seed, held=max(0.55, held), used=held / 3, retries=0.0),
    ),
    # One batch of twice the size would take twice the memory.
    Dose(
        code="OPT004", limit="full", scale="falls", most=0.95, build=lambda full, seed: _micro_batches(full / 2, seed)
    ),
    Dose(code="OPT001", limit="fixable_share", severity=INFO, build=_above_the_floor),
    Dose(code="OPT001", limit="fixable_warn_share", build=_above_the_floor),
    Dose(code="CMP003", limit="cpu_share", severity=INFO, build=_in_bfloat16),
    Dose(code="CMP016", limit="warn_share", build=_double),
    Dose(code="CMP017", limit="warn_share", build=_gradients_of_others),
    *(
        Dose(code="OPT007", limit=name, severity=severity, build=_untouched_rows)
        for name, severity in (("info_share", INFO), ("warn_share", WARNING))
    ),
    Dose(code="CMP018", limit="info_share", severity=INFO, build=_cut_off),
    Dose(code="STB002", limit="concentration", scale="room", build=_scattered_stalls),
    Dose(
        code="COM002",
        limit="same_rank_share",
        scale="room",
        build=lambda often, seed: ranks(seed, _late(seed, often=often)),
    ),
    Dose(code="COM002", limit="same_rank_wait", scale="room", build=_now_and_then),
    Dose(
        code="COM004",
        limit="same_rank_share",
        scale="falls",
        most=0.95,
        build=lambda often, seed: _longest_batch(min(0.95, often), seed),
    ),
    Dose(code="CMP005", limit="least_share", severity=INFO, scale="falls", most=0.9, build=_product),
    Dose(code="CMP006", limit="least_share", severity=INFO, scale="room", build=_moving),
)
