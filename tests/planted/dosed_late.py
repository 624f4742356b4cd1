"""The limits of rules about copies, reads, placement, checkpointing and exchanges, with records of a chosen value;
see ``doses.py``."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perf_diagnostics.diagnose.facts.link_facts import LANE_BYTES_PER_S, PAYLOAD
from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.mem007_checkpointing import Checkpointing
from perf_diagnostics.diagnose.rules.opt008_groups_alike import GROUP_S
from perf_diagnostics.records import ALL_PHASES, Json, Phase, Run, Series, StepTable, TrialResult
from perf_diagnostics.testing import run_of, sweep_of
from tests.planted.dosed_runs import PROCESS_SCATTER
from tests.planted.doses import Dose, shares
from tests.planted.made_up import GPU, HEALTHY_S, calm, loop

INFO, WARNING, CRITICAL = Severity.INFO, Severity.WARNING, Severity.CRITICAL
_STEP_S = sum(HEALTHY_S.values())
_STEPS = 120
_WARMUP = 3


def _phase_s(phase: Phase, share: float) -> float:
    """The mean of a phase at which it takes this share of the step, all others staying as they are."""
    return (_STEP_S - HEALTHY_S[phase]) * share / (1 - share)


# -- work on a batch between its loader and the forward


def _prepared(seconds: float, rest: float, seed: int, *, computing: float = 1.0, batch_size: int = 32) -> TrialResult:
    """A step of ``rest`` s and so many of work on the batch, of which the loop's thread computes a part."""
    means = {phase: s * rest / _STEP_S for phase, s in HEALTHY_S.items()} | {Phase.TRANSFER: 0.0, Phase.OTHER: seconds}
    table = loop(seed, means).steps[0].steady
    prepared = np.asarray(table.wall_ns - sum(table.columns[f"host_{p}_ns"] for p in Phase if p is not Phase.OTHER))
    used = table.columns["thread_cpu_ns"] - (1 - computing) * prepared
    return loop(seed, means, columns={"prepare_ns": prepared, "thread_cpu_ns": used}, batch_size=batch_size)


def _fetched(seconds: float, seed: int) -> TrialResult:
    """Each of four samples takes the loop so many s to fetch: 15 % of a step."""
    seconds = max(seconds, 1e-6)
    means = {phase: s * 4 * seconds * 0.85 / 0.15 / _STEP_S for phase, s in HEALTHY_S.items()}
    means |= {Phase.TRANSFER: 0.0, Phase.OTHER: 0.0, Phase.DATA_WAIT: 4 * seconds}
    table = loop(seed, means).steps[0].steady
    waits = table.columns["host_data_wait_ns"]
    facts = {"num_workers": 0, "threads": 1, "cpu_count": 2}
    return loop(seed, means, facts=facts, columns={"data_wait_cpu_ns": waits}, batch_size=4)


def _preparing(share: float, seed: int, *, computing: float = 1.0) -> TrialResult:
    return _prepared(_STEP_S * share / (1 - share), _STEP_S, seed, computing=computing)


# -- work between backward and the update


def _before_the_update(share: float, seed: int) -> TrialResult:
    """The optimizer's phase is longer by this share of the step, which is no update."""
    more = _STEP_S * share / (1 - share)
    means = {Phase.OPTIMIZER: HEALTHY_S[Phase.OPTIMIZER] + more}
    phase_ns = loop(seed, means).steps[0].steady.columns["host_optimizer_ns"]
    return loop(seed, means, columns={"before_update_ns": np.rint(phase_ns * more / means[Phase.OPTIMIZER])})


def _groups_alike(share: float, seed: int) -> TrialResult:
    """The calls for groups with the same settings take this share of the step, in the optimizer."""
    more = _STEP_S * share / (1 - share)
    spare = more / GROUP_S["fused"][0]
    facts: dict[str, Json] = {"optimizer": "AdamW", "optimizer_implementation": "fused"}
    facts |= {"optimizer_groups": 2 + spare, "optimizer_group_settings": 2}
    return loop(seed, {Phase.OPTIMIZER: HEALTHY_S[Phase.OPTIMIZER] + more}, facts=facts)


# -- copies, reads and waits, as the look at single operators found them


def _crossing(cost: str, share: float, seed: int, **counts: float) -> TrialResult:
    """A cost of this share of a step, known to a tenth of it."""
    ends = {f"{cost}_s": 1.0, f"{cost}_low_s": 0.9, f"{cost}_high_s": 1.1}
    return loop(seed, device=GPU, quantities={name: end * share * _STEP_S for name, end in ends.items()} | counts)


def _small_copies(share: float, seed: int, *, copies: float = 100.0) -> TrialResult:
    return _crossing("small_copies_cost", share, seed, small_copies_per_step=copies)


def _sampled(name: str, values: Any) -> Series:
    """Sixty samples over the 12 s of a trial's steps."""
    at = np.arange(60) * 200_000_000
    return Series(name, "1", "made up", at, np.broadcast_to(np.asarray(values, dtype=float), at.shape))


def _linked(used: float, copying: float, seed: int) -> TrialResult:
    """Copies take this share of the step, and while they run this part of what PCIe 4 x16 can carry.

    The steps are calm: a copy is timed on the device, which knows no moods of the host.
    """
    means = {Phase.TRANSFER: _phase_s(Phase.TRANSFER, max(copying, 1e-3))}
    spent_s = (
        float(np.mean(loop(seed, means, mood=calm, device=GPU).steps[0].steady.columns["device_transfer_ns"])) / 1e9
    )
    return loop(
        seed,
        means,
        mood=calm,
        device=GPU,
        series=(_sampled("gpu_pcie_generation", 4), _sampled("gpu_pcie_width", 16)),
        quantities={
            "steps_began_s": 0.0,
            "copies_in_transfer_bytes": max(1.0, used * spent_s * LANE_BYTES_PER_S[4] * 16 * PAYLOAD),
        },
    )


def _placed(seed: int, *, far: float = 1.0, rate: float = 0.5, copying: float = 0.2) -> TrialResult:
    """On another node's cores in this part of the samples, with copies at this part of the rate that a near one has."""
    near = np.random.default_rng((seed, 71)).random(60) >= far
    return loop(
        seed,
        {Phase.TRANSFER: _phase_s(Phase.TRANSFER, copying)},
        device=GPU,
        series=(_sampled("near_device", near),),
        quantities={
            "steps_began_s": 0.0,
            "numa_nodes": 2.0,
            "usable_cores_near": 8.0,
            "host_to_device_bandwidth": rate * 24e9,
            "host_to_device_bandwidth_near": 24e9,
        },
    )


# -- the device's other users, and operators that are hardly worth their calls


def _shared(foreign: float, beyond: float, seed: int) -> TrialResult:
    """Others hold so many bytes; kernels run for so much more than the tenth of the time that the trial computes."""
    return loop(
        seed,
        {Phase.DATA_WAIT: _phase_s(Phase.DATA_WAIT, 0.9)},
        device=GPU,
        steps=30,
        series=(_sampled("gpu_utilization", 100 * min(1.0, 0.1 + beyond)),),
        quantities={"steps_began_s": 0.0, "device_memory_foreign": foreign},
    )


def _tiny(each_s: float, seed: int, *, share: float = 0.845) -> TrialResult:
    """Forward and backward take this share of the step, and so long for each of the tensors."""
    work = HEALTHY_S[Phase.FORWARD] + HEALTHY_S[Phase.BACKWARD]
    rest = work * (1 - share) / max(share, 1e-3)
    means = {Phase.OPTIMIZER: 0.0, Phase.DATA_WAIT: 0.0, Phase.TRANSFER: 0.0, Phase.OTHER: rest}
    return loop(seed, means, batch_size=2, facts={"optimizer_tensors": round(work / each_s)})


# -- memory


def _memory(used: float) -> dict[str, float]:
    return {"host_memory_peak": min(0.99, max(0.01, used)) * 16e9, "host_memory_total": 16e9}


def _recomputing(share: float, seed: int, *, used: float = 0.2) -> TrialResult:
    """Activations are computed again for this share of the step; forward and backward take 0.845 of it."""
    computing = (HEALTHY_S[Phase.FORWARD] + HEALTHY_S[Phase.BACKWARD]) / _STEP_S
    again = {"gradient_checkpointing": True, "recomputed_flops_share": share / computing}
    return loop(seed, quantities=_memory(used), facts=again)


def _without_checkpoints(overhead: float, used: float, seed: int) -> Run:
    """A sweep in full memory whose largest batch has a fixed cost of this share of its step."""
    sizes = (8, 16, 32, 64, 128)
    return sweep_of(
        a_s=0.1 * overhead,
        b_s=0.1 * (1 - overhead) / sizes[-1],
        batch_sizes=sizes,
        repeats=3,
        process_noise=PROCESS_SCATTER,
        noise=0.05,
        seed=seed,
        quantities=_memory(used),
        facts={"matmul_precision": "highest"},
    )


def _overhead_for(gain: float) -> float:
    """The fixed cost at which twice the batch, at the price of checkpointing, wins this: 2 / (2 - o) · (1 - p) - 1."""
    return 2 - 2 * (1 - Checkpointing().price) / (1 + gain)


# -- ranks


def _ranks(
    seed: int,
    count: int,
    means: Mapping[Phase, float] | None = None,
    *,
    steps: int = _STEPS,
    mood: Any = calm,
    added: Callable[[int], Mapping[Phase, NDArray[Any]]] = lambda rank: {},
    columns: Callable[[int], Mapping[str, Any]] = lambda rank: {},
    **trial: Any,
) -> TrialResult:
    """A training of several ranks that are never late for each other, each with times and columns of its own."""
    made = [
        loop(seed * 10 + rank, means, steps=steps, mood=mood, added=added(rank), columns=columns(rank))
        for rank in range(count)
    ]
    first = loop(seed * 10, means, steps=steps, mood=mood, added=added(0), columns=columns(0), **trial)
    return dataclasses.replace(first, steps=tuple(one.steps[0] for one in made))


def _holding(spread: float, pressure: float, seed: int) -> TrialResult:
    """Rank 2 of four holds this part of 16 GB, and the others so much less of it."""
    most = max(pressure, 0.001) * 16e9
    held = {2: most}
    return _ranks(
        seed,
        4,
        steps=30,
        columns=lambda rank: {"host_rss_bytes": held.get(rank, most * (1 - spread))},
        quantities={"host_memory_total": 16e9},
    )


def exchanging(
    exposed: float,
    seed: int,
    *,
    overlap: float = 0.0,
    backward_s: float = HEALTHY_S[Phase.BACKWARD],
    per_step: float = 1.0,
    facts: Mapping[str, Any] | None = None,
) -> TrialResult:
    """Two ranks whose exchanges are exposed for this share of the step; DDP times the first ten and each hundredth."""
    means = {Phase.BACKWARD: backward_s}
    rest = _STEP_S - HEALTHY_S[Phase.BACKWARD] + backward_s
    late = rest * max(exposed, 1e-5) / (1 - exposed)
    each = late / per_step
    at = np.arange(_STEPS + _WARMUP)
    timed = (at < 10) | (at % 100 == 99)

    def columns(rank: int) -> dict[str, Any]:
        # Both ranks' clocks scatter by 5 %.
        scatter = np.exp(0.05 * np.random.default_rng((seed, 73, rank)).standard_normal(at.size))
        took = np.where(timed, each * scatter * 1e9, np.nan)
        hidden = took * overlap / (1 - overlap)
        return {"exchange_ns": (took + hidden)[_WARMUP:], "exchange_hidden_ns": hidden[_WARMUP:]}

    known = {"data_parallel": "DistributedDataParallel", "exchanges_per_step_least": per_step}
    made = _ranks(
        seed,
        2,
        means,
        added=lambda rank: {Phase.BACKWARD: np.full(_STEPS, late)},
        columns=columns,
        facts=known | {"exchanges_per_step_most": per_step} | dict(facts or {}),
    )
    return dataclasses.replace(made, steps=tuple(_with_warm_up(table) for table in made.steps))


def _with_warm_up(table: StepTable) -> StepTable:
    """The warm-up's exchanges were timed, too: as long as the steps' first one."""
    columns = dict(table.columns)
    for name in ("exchange_ns", "exchange_hidden_ns"):
        columns[name] = np.concatenate([np.repeat(columns[name][_WARMUP], _WARMUP), columns[name][_WARMUP:]])
    return StepTable(columns)


def _accumulating(needless: float, seed: int, *, exchanges: float = 4.0) -> TrialResult:
    """Four batches a step, exchanged so many times: all but one of them for nothing, this share of the step."""
    exposed = 0.3 if exchanges <= 1 else needless / (1 - 1 / exchanges)
    return exchanging(min(0.9, exposed), seed, per_step=max(exchanges, 1e-3), facts={"accumulation_steps": 4})


def _meeting(share: float, seed: int) -> TrialResult:
    """Two ranks that both wait for collectives outside of the phases, for this share of the step."""
    waits = _STEP_S * share / (1 - share)
    return _ranks(
        seed,
        2,
        added=lambda _: {Phase.OTHER: np.full(_STEPS, waits)},
        columns=lambda _: {
            f"collective_{phase}_ns": np.full(_STEPS, waits * 1e9 if phase is Phase.OTHER else 0.0)
            for phase in ALL_PHASES
        },
    )


def _taking_turns(delayed: float, seed: int) -> TrialResult:
    """Four ranks of one thread on two cores; of the time with work to do the first one has none for this part."""
    facts = {"ranks": 2, "local_ranks": 4, "threads": 1, "cpu_count": 2}
    return _ranks(seed, 2, facts=facts, quantities={"process_run_delay_share": delayed})


def _uneven_passes(idle: float, seed: int) -> TrialResult:
    """Two ranks in passes of 40 steps, of which the second one has batches for so many that this part is idle."""
    whole = _ranks(seed, 2)
    steps = np.arange(len(whole.steps[0]))
    passes = (steps // 40, steps // round(40 * (1 - 2 * idle)))
    tables = (StepTable({**table.columns, "epoch": epoch}) for table, epoch in zip(whole.steps, passes, strict=True))
    return dataclasses.replace(whole, steps=tuple(tables))


def _beside_buckets(size: float, seed: int) -> TrialResult:
    """Two ranks whose gradients hold so many bytes beside their buckets."""
    return exchanging(0.0, seed, facts={"ddp_gradient_as_bucket_view": False, "ddp_gradients_beside_bytes": size})


def _scaled(efficiency: float, seed: int) -> Run:
    """One rank, and four of which each trains this part of what the one does; three processes each."""
    results = []
    for repeat in range(3):
        rng = np.random.default_rng((seed, 79, repeat))
        one, four = 1 + PROCESS_SCATTER * rng.standard_normal(2)
        own = seed * 100 + repeat * 10
        results.append(loop(own, _slower(one), mood=calm, repeat=repeat))
        results.append(_ranks(own + 5, 4, _slower(four / max(0.05, efficiency)), repeat=repeat))
    return run_of(*results)


def _slower(factor: float) -> dict[Phase, float]:
    return {phase: s * factor for phase, s in HEALTHY_S.items()}


def _pausing(pauses: Mapping[int, NDArray[Any]], seed: int, *, count: int = 4) -> TrialResult:
    """Ranks whose collector pauses for so many s in these steps; all wait for them in backward."""
    own = np.array([pauses.get(rank, np.zeros(_STEPS)) for rank in range(count)])
    longest = own.max(axis=0)
    return _ranks(
        seed,
        count,
        added=lambda rank: {Phase.OTHER: own[rank], Phase.BACKWARD: longest - own[rank]},
        columns=lambda rank: {"gc_ns": own[rank] * 1e9},
    )


def _in_turn(pause: float, seed: int) -> TrialResult:
    """Four ranks, of which another one pauses in each step, for this part of a mean step."""
    at = np.arange(_STEPS)
    length = _STEP_S * pause / max(0.1, 1 - pause)
    return _pausing({rank: np.where(at % 4 == rank, length, 0.0) for rank in range(4)}, seed)


def _apart(share: float, seed: int) -> TrialResult:
    """Two ranks that pause every tenth step, five steps apart: pausing together would save this share."""
    at = np.arange(_STEPS)
    length = 10 * _STEP_S * share / max(0.1, 1 - 2 * share)
    return _pausing({rank: np.where(at % 10 == 5 * rank, length, 0.0) for rank in range(2)}, seed)


def _second_rank(times: float, seed: int) -> TrialResult:
    """Rank 0 pauses every tenth step, and rank 1 so many times, for 1 s each."""
    at, count = np.arange(_STEPS), round(times)
    also = np.zeros(_STEPS)
    if count:  # never in the steps of rank 0
        also[np.linspace(4, _STEPS - 6, count).astype(int)] = 1.0
    return _pausing({0: np.where(at % 10 == 9, 0.7, 0.0), 1: also}, seed)


DOSES: tuple[Dose, ...] = (
    Dose(code="EXP012", limit="foreign_bytes", build=lambda held, seed: _shared(held, 0.0, seed)),
    Dose(code="EXP012", limit="computing", says="and computed", build=lambda part, seed: _shared(4e9, part, seed)),
    Dose(code="HST010", limit="short_s", scale="falls", most=200e-6, build=_tiny),
    Dose(code="HST010", limit="work_share", scale="room", build=lambda share, seed: _tiny(10e-6, seed, share=share)),
    Dose(code="INP001", limit="sample_s", build=_fetched),
    *shares("INP007", _preparing, warn_share=WARNING, critical_share=CRITICAL),
    Dose(
        code="INP007",
        limit="least_s",
        # One sample: of several each would have so little that they may have been worked on at once.
        build=lambda s, seed: _prepared(max(s, 1e-9), 1.5 * max(s, 1e-9), seed, batch_size=1),
    ),
    Dose(
        code="INP007",
        limit="sample_s",
        # 30 % of a step, and too short for workers to pay.
        build=lambda s, seed: _prepared(4 * max(s, 1e-6), 28 / 3 * max(s, 1e-6), seed, batch_size=4),
    ),
    Dose(
        code="INP007",
        limit="computing_share",
        scale="room",
        build=lambda part, seed: _preparing(0.4, seed, computing=part),
    ),
    *shares("OPT006", _before_the_update, info_share=INFO, warn_share=WARNING),
    *shares("OPT008", _groups_alike, info_share=INFO, warn_share=WARNING),
    *shares(
        "HST002",
        lambda share, seed: _crossing("waits_idle", share, seed, waits_per_step=3.0),
        warn_share=WARNING,
        critical_share=CRITICAL,
    ),
    *shares("XFR003", _small_copies, info_share=INFO, warn_share=WARNING),
    Dose(code="XFR003", limit="most_copies", build=lambda n, seed: _small_copies(0.2, seed, copies=n)),
    Dose(code="XFR004", limit="full_share", scale="room", build=lambda used, seed: _linked(used, 0.3, seed)),
    Dose(code="XFR004", limit="warn_share", build=lambda share, seed: _linked(0.98, share, seed)),
    *shares(
        "XFR005",
        lambda share, seed: _crossing("reads_back_idle", share, seed, reads_back_per_step=3.0),
        warn_share=WARNING,
        critical_share=CRITICAL,
    ),
    Dose(code="CPU002", limit="far_share", scale="room", build=lambda far, seed: _placed(seed, far=far)),
    Dose(
        code="CPU002",
        limit="slow_copies",
        scale="loss",
        firing=(2.0,),
        build=lambda rate, seed: _placed(seed, rate=rate),
    ),
    Dose(code="CPU002", limit="warn_share", build=lambda share, seed: _placed(seed, copying=share)),
    Dose(code="MEM007", limit="warn_share", build=_recomputing),
    Dose(
        code="MEM007",
        limit="room",
        scale="falls",
        most=0.95,
        build=lambda used, seed: _recomputing(0.2, seed, used=used),
    ),
    Dose(
        code="MEM007",
        limit="full",
        severity=INFO,
        scale="room",
        build=lambda used, seed: _without_checkpoints(0.8, used, seed),
    ),
    Dose(
        code="MEM007",
        limit="least_gain",
        severity=INFO,
        build=lambda gain, seed: _without_checkpoints(_overhead_for(gain), 0.95, seed),
    ),
    Dose(code="MEM008", limit="warn_spread", build=lambda spread, seed: _holding(spread, 0.9, seed)),
    Dose(
        code="MEM008",
        limit="critical_spread",
        severity=CRITICAL,
        scale="room",
        build=lambda spread, seed: _holding(spread, 0.9, seed),
    ),
    Dose(
        code="MEM008", limit="warn_pressure", scale="room", build=lambda pressure, seed: _holding(0.6, pressure, seed)
    ),
    Dose(
        code="MEM008",
        limit="critical_pressure",
        severity=CRITICAL,
        scale="room",
        build=lambda pressure, seed: _holding(0.6, pressure, seed),
    ),
    *shares("COM001", exchanging, info_share=INFO, warn_share=WARNING),
    Dose(code="COM001", limit="critical_share", severity=CRITICAL, scale="room", most=0.9, build=exchanging),
    Dose(
        code="COM003",
        limit="least_overlap",
        scale="falls",
        most=0.8,
        build=lambda overlap, seed: exchanging(0.15, seed, overlap=min(0.8, overlap), backward_s=0.15),
    ),
    Dose(code="COM003", limit="exposed_share", build=lambda share, seed: exchanging(share, seed, overlap=0.2)),
    Dose(
        code="COM003",
        limit="room_share",
        # Of what is not exchange (0.6 of the step) backward has to compute this share of the step.
        build=lambda room, seed: exchanging(0.4, seed, backward_s=_beside(room)),
    ),
    Dose(code="COM005", limit="warn_efficiency", scale="loss", build=_scaled),
    Dose(code="COM005", limit="critical_efficiency", severity=CRITICAL, scale="loss", firing=(2.0,), build=_scaled),
    Dose(code="COM009", limit="once", build=lambda count, seed: _accumulating(0.2, seed, exchanges=count)),
    Dose(code="COM009", limit="warn_share", build=_accumulating),
    Dose(code="COM010", limit="least_pauses", build=_second_rank),
    Dose(code="COM010", limit="least_pause", build=_in_turn),
    Dose(code="COM010", limit="warn_share", build=_apart),
    *shares("COM012", _meeting, warn_share=WARNING),
    Dose(code="COM013", limit="warn_delay", build=_taking_turns),
    Dose(code="COM014", limit="warn_share", build=_uneven_passes),
    Dose(code="COM012", limit="critical_share", severity=CRITICAL, scale="room", most=0.9, build=_meeting),
    Dose(code="COM011", limit="least_bytes", severity=INFO, build=_beside_buckets),
)


def _beside(room: float) -> float:
    """The backward that computes for this share of a step of which 0.4 is exchange."""
    others = _STEP_S - HEALTHY_S[Phase.BACKWARD]
    return others * room / (0.6 - room)
