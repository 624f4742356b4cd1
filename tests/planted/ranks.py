"""Plants of trainings of several processes: two real ranks under gloo on the CPU, and made-up ones with GPUs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from perf_diagnostics.diagnose.ranks.rank_facts import RankFacts
from perf_diagnostics.records import Phase, Run, StepTable
from perf_diagnostics.testing import run_of, trial_of
from tests.diagnose.rules.rank_trials import of_ranks, timed
from tests.planted.plant import Check, Plant, Records, Seen, Torchrun, slower

#: For steps of a tenth of a second and more.
_FEW = 24

#: One control of many short steps for all plants that need one: an arm costs more to start than to run on.
_LIGHT = Torchrun(fault="light", steps=160)


def _tables(seen: Seen | None) -> tuple[StepTable, ...]:
    assert seen is not None and seen.run is not None
    return tuple(table.steady for table in seen.run.results[0].steps)


def _both_ranks(check: Check) -> Check:
    """First whether there are two ranks to speak about at all."""

    def both(faulty: Seen, control: Seen | None) -> str:
        for name, seen in (("faulty", faulty), ("control", control)):
            if seen is not None and len(_tables(seen)) != 2:
                return f"the {name} arm recorded {len(_tables(seen))} rank"
        return check(faulty, control)

    return both


def _half_of_the_steps(faulty: Seen, control: Seen | None) -> str:
    assert faulty.run is not None
    steps = [len(table) for table in faulty.run.results[0].steps]
    return "" if steps[1] == steps[0] / 2 else f"the ranks took {steps} steps"


def _late(faulty: Seen, control: Seen | None) -> str:
    """Rank 1 takes at least 30 of its 40 ms longer than rank 0 for what lies before backward, a fifth of a step."""
    assert faulty.run is not None
    ranks = RankFacts.of(faulty.run.results[0])
    late = float(np.diff(ranks.own_ns.mean(axis=1))[0]) / 1e6
    step = float(ranks.wall_ns.mean()) / 1e6
    return (
        "" if late >= max(30.0, step / 5) else f"rank 1 is {late:.1f} ms later than rank 0, in steps of {step:.0f} ms"
    )


def _late_now_and_then(faulty: Seen, control: Seen | None) -> str:
    """In an eighth of the steps rank 1 takes at least 200 of its 250 ms longer than rank 0 before backward."""
    assert faulty.run is not None
    late = np.diff(RankFacts.of(faulty.run.results[0]).before_ns, axis=0)[0] / 1e6
    often = float((late >= 200.0).mean())
    return "" if 0.1 <= often <= 0.15 else f"rank 1 is 200 ms later than rank 0 in {often:.0%} of the steps"


def _late_in_backward(faulty: Seen, control: Seen | None) -> str:
    """Rank 0 waits at least 30 of the 40 ms longer in the middle exchange than rank 1, and is ahead before backward by
    at most 10 ms; DDP's own times, those of the warm-up included."""
    assert faulty.run is not None
    result = faulty.run.results[0]
    waits = [table.columns["exchange_ns"] - table.columns["exchange_hidden_ns"] for table in result.steps]
    longer = float(np.nanmedian(waits[0]) - np.nanmedian(waits[1])) / 1e6
    before = float(np.diff(np.median(RankFacts.of(result).before_ns, axis=1))[0]) / 1e6
    return "" if longer >= 30 and abs(before) <= 10 else f"rank 0 waits {longer:.1f} ms longer; {before:.1f} ms before"


def _waits_in_forward(faulty: Seen, control: Seen | None) -> str:
    """Rank 1 waits at least 30 of the 40 ms longer for its data, and rank 0 is at least 30 ms longer in forward."""
    data, forward = (
        np.diff([float(np.median(table.columns[f"host_{phase}_ns"])) for table in _tables(faulty)])[0] / 1e6
        for phase in (Phase.DATA_WAIT, Phase.FORWARD)
    )
    return "" if data >= 30 and forward <= -30 else f"rank 1 waits {data:.1f} ms longer, forward {forward:.1f} ms"


def _uneven(faulty: Seen, control: Seen | None) -> str:
    """In each step one rank has four times the samples of the other, in turn, and takes longer for them.

    On processors that others use all the time, whoever gets one is first.
    """
    assert faulty.run is not None
    ranks = RankFacts.of(faulty.run.results[0])
    sizes = ranks.load("samples")
    larger = sizes.argmax(axis=0)
    if not np.ptp(sizes, axis=0).all() or not 0.4 <= larger.mean() <= 0.6:
        return "the ranks have the same samples, or one of them has more"
    longer = float((np.sign(np.diff(sizes, axis=0)) * np.diff(ranks.own_ns, axis=0) / ranks.wall_ns).mean())
    return "" if longer >= 0.25 else f"the longer batch takes {longer:.0%} of a step longer before backward"


def _backward_longer(least_ms: float) -> Check:
    """Backward takes so much longer than the control's, on the rank that has least to wait for."""

    def check(faulty: Seen, control: Seen | None) -> str:
        took = [
            min(float(np.median(table.columns[f"host_{Phase.BACKWARD}_ns"])) for table in _tables(seen)) / 1e6
            for seen in (faulty, control)
        ]
        longer, step = took[0] - took[1], faulty.step_s * 1e3
        enough = longer >= max(least_ms, step / 4)
        return "" if enough else f"backward takes {longer:.1f} ms longer, in steps of {step:.0f} ms"

    return _both_ranks(check)


def _collects_apart(faulty: Seen, control: Seen | None) -> str:
    """Both ranks collect, for at least 2 ms, and hardly ever in the same step."""
    tables = _tables(faulty)
    shared = min(map(len, tables))
    pauses = np.asarray([table.columns["gc_ns"][:shared] for table in tables]) >= 2e6
    counts, both = pauses.sum(axis=1), int(pauses.all(axis=0).sum())
    return "" if counts.min() >= 3 and both <= 1 else f"the ranks collect {counts.tolist()} times, {both} together"


#: 100 ms a step on a GPU, 4 ms of exchange hidden behind backward.
_STEP = {"forward": 0.03, "backward": 0.06, "optimizer": 0.01, "noise": 0.01, "device": "cuda:0"}
_GB = 1e9


def _gpus(*gigabytes: float, exchange_s: float = 0.004, **facts: Any) -> Records:
    """A rank a GPU of 80 GB, of which it holds so much."""

    def build(seed: int) -> Run:
        ranks = [
            {"reserved_bytes": held * _GB} | timed(exchange_s, 0.9 * exchange_s, seed=seed + rank)
            for rank, held in enumerate(gigabytes)
        ]
        total = {"device_memory_total": 80 * _GB}
        return run_of(of_ranks(*ranks, facts={"backend": "nccl"} | facts, quantities=total, seed=seed, **_STEP))

    return Records(build)


def _exposed(tensors: int, **facts: Any) -> Records:
    """Two GPUs that exchange 4 MB of gradients, so many tensors of them, in 30 ms after the backward pass."""

    def build(seed: int) -> Run:
        ranks = [timed(0.03, 0.0, seed=seed + rank) for rank in range(2)]
        known = {"backend": "nccl", "optimizer_tensors": tensors, "ddp_largest_bucket_bytes": 4_000_000}
        return run_of(of_ranks(*ranks, facts=known | facts, seed=seed, **_STEP))

    return Records(build)


def _scaled(step_s: dict[int, float]) -> Callable[[int], Run]:
    """One training with so many ranks, each step of which takes so long, at the same batch a rank."""

    def build(seed: int) -> Run:
        results = []
        for ranks, seconds in step_s.items():
            step = {"forward": 0.4 * seconds, "backward": 0.6 * seconds, "noise": 0.01, "seed": seed}
            if ranks == 1:
                results.append(trial_of(**step))
            else:
                hidden = [timed(0.004, 0.004, seed=seed + rank) for rank in range(ranks)]
                results.append(of_ranks(*hidden, options={"ranks": ranks}, **step))
        return run_of(*results)

    return build


PLANTS = (
    Plant(
        name="late-rank",
        number="41",
        says="one rank of two sleeps before its backward pass, and the other waits for it",
        dose="40 ms a step on rank 1",
        faulty=Torchrun(fault="late-rank"),
        control=_LIGHT,
        fix=_LIGHT,
        expected=("COM002",),
        top=("COM002",),
        must_not=("COM003", "COM004", "COM010", "INP001"),
        check=_both_ranks(_late),
    ),
    Plant(
        name="late-rank-now-and-then",
        number="-",
        says="one rank of two sleeps before its backward pass in every eighth step, and the other waits for it there",
        dose="250 ms every 8 steps on rank 1",
        faulty=Torchrun(fault="late-now-and-then", steps=160),
        control=_LIGHT,
        fix=_LIGHT,
        expected=("COM002",),
        top=("COM002",),
        must_not=("COM003", "COM004", "INP001"),
        check=_both_ranks(_late_now_and_then),
    ),
    Plant(
        name="late-rank-in-backward",
        number="-",
        says="one rank of two sleeps at the start of its backward pass, and the other waits for it in its own",
        dose="40 ms a step on rank 1",
        faulty=Torchrun(fault="late-in-backward"),
        control=_LIGHT,
        fix=_LIGHT,
        expected=("COM002",),
        top=("COM002",),
        must_not=("COM003", "COM004", "COM010", "INP001"),
        check=_both_ranks(_late_in_backward),
    ),
    Plant(
        name="late-rank-before-buffers",
        number="-",
        says="one rank of two waits for its data, and the other one in forward, for the buffers that DDP broadcasts",
        dose="40 ms a step on rank 1",
        faulty=Torchrun(fault="late-for-buffers"),
        control=Torchrun(fault="buffers", steps=160),
        fix=Torchrun(fault="buffers", steps=160),
        expected=("COM002",),
        top=("COM002",),
        must_not=("COM003", "COM004", "COM010", "COM012", "INP001"),
        check=_both_ranks(_waits_in_forward),
    ),
    Plant(
        name="metrics-reduced-one-by-one",
        number="-",
        says="after each step sixty metrics are reduced, each by a collective of its own",
        dose="59 needless collectives a step",
        faulty=Torchrun(fault="reduces-one-by-one", steps=120),
        control=Torchrun(fault="reduces-at-once", steps=160),
        fix=Torchrun(fault="reduces-at-once", steps=160),
        expected=("COM012",),
        top=("COM012",),
        must_not=("COM002", "COM004", "COM010", "INP001", "INP007"),
        check=_both_ranks(slower(1.2)),
    ),
    Plant(
        name="uneven-ranks-in-turn",
        number="42",
        says="in each step one of two ranks has the longer batch, in turn",
        dose="four times the samples",
        faulty=Torchrun(fault="uneven-in-turn", steps=30),
        control=Torchrun(),
        fix=Torchrun(fault="uneven-together", steps=30),
        expected=("COM004",),
        top=("COM004",),
        must_not=("COM002", "COM010", "INP001"),
        check=_both_ranks(_uneven),
    ),
    Plant(
        name="exchange-each-micro-batch",
        number="43",
        says="four batches are accumulated, and 17 MB of gradients exchanged after each of them",
        dose="three needless exchanges a step",
        faulty=Torchrun(fault="syncs-all", steps=_FEW),
        control=Torchrun(fault="syncs-last", steps=_FEW),
        fix=Torchrun(fault="syncs-last", steps=_FEW),
        noted=("COM009",),
        must_not=("COM002", "COM004", "COM010", "INP001"),
        check=_both_ranks(slower(1.05)),
    ),
    Plant(
        name="slow-network",
        number="44",
        says="gradients arrive later than they could, while nobody computes",
        dose="80 ms an exchange, by a communication hook",
        faulty=Torchrun(fault="slow-network", steps=30),
        control=Torchrun(fault="heavy"),
        fix=Torchrun(fault="heavy"),
        expected=("COM001|COM003",),
        top=("COM001", "COM003"),
        tried=("COM001",),
        must_not=("COM002", "COM004", "COM009", "COM010", "INP001"),
        check=_backward_longer(50.0),
    ),
    Plant(
        name="ranks-with-too-many-threads",
        number="45",
        says="each of two ranks computes in sixteen threads on a few processors",
        dose="16 threads a rank",
        faulty=Torchrun(fault="threads", steps=_FEW),
        control=Torchrun(),
        fix=Torchrun(),
        expected=("CPU001",),
        top=("CPU001",),
        must_not=("COM002", "INP001", "HST006"),
        check=_both_ranks(slower(1.3)),
    ),
    Plant(
        name="ranks-collect-in-turn",
        number="-",
        says="each rank collects garbage every fourth step, and never both in the same",
        dose="200,000 lists to look through",
        faulty=Torchrun(fault="collects"),
        control=Torchrun(),
        fix=Torchrun(),
        noted=("COM010",),
        must_not=("COM002", "COM003", "COM009", "INP001"),
        check=_both_ranks(_collects_apart),
    ),
    Plant(
        name="uneven-passes",
        number="-",
        says="one rank of two has half of the batches in each pass, and waits for the other one at its end",
        dose="half of the batches",
        faulty=Torchrun(fault="uneven-passes", steps=80),
        control=Torchrun(fault="even-passes", steps=80),
        fix=Torchrun(fault="even-passes", steps=80),
        expected=("COM014",),
        must_not=("COM002", "COM004", "INP001"),
        check=_half_of_the_steps,
    ),
    Plant(
        name="untouched-ranks",
        number="N-a",
        says="an untouched training of two ranks",
        dose="none",
        faulty=Torchrun(fault="heavy"),
    ),
    Plant(
        name="gradients-through-the-host",
        number="D7",
        says="gradients on GPUs are exchanged by gloo",
        dose="the backend",
        faulty=_gpus(40, 40, backend="gloo"),
        control=_gpus(40, 40),
        expected=("COM007",),
        top=("COM007",),
        must_not=("COM001", "COM002", "COM003", "MEM008"),
    ),
    Plant(
        name="gradients-of-one-tensor",
        number="-",
        says="a model of one tensor exchanges its gradient after the backward pass, with nothing left to compute",
        dose="30 of 100 ms",
        faulty=_exposed(1),
        expected=("COM001",),
        top=("COM001",),
        must_not=("COM003", "COM002"),
    ),
    Plant(
        name="gradients-in-one-bucket",
        number="-",
        says="forty tensors of gradients are exchanged in one bucket, after the backward pass",
        dose="30 of 100 ms",
        faulty=_exposed(40),
        control=_gpus(40, 40),
        expected=("COM003", "COM001"),
        top=("COM001", "COM003"),
        must_not=("COM002",),
    ),
    Plant(
        name="exchange-beside-one-of-many-backwards",
        number="-",
        says="of sixteen accumulated batches only the last one's backward can hide the exchange",
        dose="30 of 100 ms",
        faulty=_exposed(40, accumulation_steps=16),
        expected=("COM001",),
        top=("COM001",),
        must_not=("COM003", "COM009"),
    ),
    Plant(
        name="uneven-rank-memory",
        number="M8",
        says="one rank of four holds twice what another does, and most of its GPU",
        dose="30, 60, 40 and 40 of 80 GB",
        faulty=_gpus(30, 60, 40, 40),
        control=_gpus(58, 60, 59, 60),
        expected=("MEM008",),
        must_not=("COM001", "COM002", "COM007"),
    ),
    Plant(
        name="poor-scaling",
        number="D5",
        says="a rank of eight trains 60 % of what one alone does",
        dose="0.100 s a step alone, 0.167 s with eight ranks",
        faulty=Records(_scaled({1: 0.1, 8: 0.1 / 0.6})),
        control=Records(_scaled({1: 0.1, 8: 0.1 / 0.96})),
        expected=("COM005",),
        top=("COM005",),
        must_not=("COM001", "COM002", "COM003", "COM010"),
    ),
)
