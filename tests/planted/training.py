"""Plants of optimizer, memory, processors and of the sweep itself."""

from __future__ import annotations

import numpy as np

from tests.planted.bases import HEALTHY, MLP, faulty, healthy
from tests.planted.plant import Check, Plant, Script, Seen, Trials, ends_as, slower

#: 81 layers: 162 small tensors, each of which the plain optimizer updates by a dozen operators of its own.
#: At a batch of 8 calling the layers' operators takes longer than what they compute, which is a fault of its own
#: (HST010): no control for one of the optimizer.
_MANY = {"width": 24, "depth": 80, "features": 64, "samples": 8192, "optimizer": "adamw"}
_LARGE = {"width": 2048, "depth": 4, "features": 256, "samples": 512, "optimizer": "adamw"}


def _many(implementation: str) -> Trials:
    # One collection of all objects takes as long as a quarter of the steps or all of them, in whichever arm it comes:
    # it must not hide the optimizer, which the other steps agree on.
    settings = {"optimizer_implementation": implementation, "threads": 1}
    return Trials(options=_MANY, settings=settings, batch_sizes=(64,))


def _typical_step_longer(times: float) -> Check:
    """The median step takes so many times as long as the control's: single collections are in neither."""

    def check(faulty: Seen, control: Seen | None) -> str:
        assert faulty.run is not None and control is not None and control.run is not None
        theirs, own = (
            float(np.median(np.concatenate([r.steps[0].steady.wall_ns for r in seen.run.completed])))
            for seen in (control, faulty)
            if seen.run is not None
        )
        ratio = own / theirs
        return "" if ratio >= times else f"a median step takes {ratio:.2f} times as long as the control's, not {times}"

    return check


def _memory_grew(seen: Seen, control: Seen | None) -> str:
    """The peak of the process's memory against the control's: 1 MB a step for 300 steps."""
    assert seen.run is not None and control is not None and control.run is not None
    faulty_b, control_b = (max(r.value("host_memory_peak") or 0.0 for r in s.run.completed) for s in (seen, control))
    return "" if faulty_b - control_b >= 150e6 else f"the peak lies {(faulty_b - control_b) / 1e6:.0f} MB higher only"


def _tokens_vary(seen: Seen, control: Seen | None) -> str:
    assert seen.run is not None
    tokens = seen.run.completed[0].steps[0].steady.get("tokens")
    return "" if tokens is not None and tokens.max() >= 4 * tokens.min() else "batches do not differ in their tokens"


PLANTS = (
    Plant(
        name="many-small-tensors",
        number="18",
        says="AdamW updates 162 small tensors one by one",
        dose="162 tensors, foreach off",
        faulty=_many("single"),
        control=_many("fused"),
        fix=_many("fused"),
        expected=("OPT001|OPT002",),
        top=("OPT001", "OPT002"),
        must_not=("INP001", "HST006", "CMP007"),
        check=_typical_step_longer(1.1),
    ),
    Plant(
        name="optimizer-at-its-floor",
        number="19",
        says="a fused AdamW that moves its bytes as fast as the memory can",
        dose="none: 13 M parameters, fused",
        # Whether its gradients of 16 MB each go back to the kernel (HST015) is for glibc's heap to decide.
        faulty=Trials(
            options=_LARGE,
            settings={"optimizer_implementation": "fused", "threads": 1, "keep_freed_memory": True},
            batch_sizes=(64,),
            steps=30,
        ),
        must_not=("OPT001", "OPT002"),
    ),
    Plant(
        name="script-single-optimizer",
        number="18",
        says="a script whose AdamW updates 162 small tensors one by one",
        dose="162 tensors, foreach off",
        faulty=Script(fault="single-optimizer"),
        control=Script(),
        expected=("OPT001|OPT002",),
        top=("OPT001", "OPT002"),
        must_not=("INP001", "HST006"),
    ),
    Plant(
        name="script-dense-table",
        number="-",
        says="a script looks up 64 rows of a table of 200,000 in a step, and SGD updates all of them",
        dose="3.2 million numbers",
        faulty=Script(fault="dense-table"),
        control=Script(fault="sparse-table"),
        fix=Script(fault="sparse-table"),
        noted=("OPT007",),
        must_not=("HST006", "MEM004"),
        check=slower(1.5),
    ),
    Plant(
        name="script-products-in-float32",
        number="-",
        says="a script that computes large products in float32 on a CPU with units for bfloat16",
        dose="256 by 1,024 by 1,024 numbers",
        faulty=Script(fault="products-in-float32", steps=50),
        control=Script(fault="products-in-bfloat16", steps=80),
        fix=Script(fault="products-in-bfloat16", steps=80),
        noted=("CMP003",),
        must_not=("INP001", "HST006", "OPT001"),
        tried=("CMP003",),
        check=slower(1.3),
    ),
    Plant(
        name="leak",
        number="14",
        says="each step's loss is kept, with its graph and a buffer",
        dose="1 MB a step and the graph",
        faulty=faulty(leak_kb=1024.0, steps=300),
        control=healthy(steps=300),
        fix=healthy(steps=300),
        expected=("MEM004",),
        must_not=("INP001", "HST006"),
        check=_memory_grew,
    ),
    Plant(
        name="checkpointing-without-need",
        number="22",
        says="activations are computed twice although memory is free",
        dose="3 segments",
        faulty=faulty(checkpoint_segments=3),
        control=HEALTHY,
        noted=("OPT005",),
        must_not=("INP001", "OPT001", "HST006", "STB002"),
    ),
    Plant(
        name="variable-lengths",
        number="20",
        says="batches differ eightfold in length, and steps with them",
        dose="lengths 1 to 8",
        faulty=Trials(
            workload="faulty", options=MLP | {"length_cycle": 8}, batch_sizes=(32,), steps=160, settings={"threads": 1}
        ),
        control=Trials(options=MLP, batch_sizes=(32,), steps=160, settings={"threads": 1}),
        noted=("STB001",),
        must_not=("STB002", "STB004", "EXP007", "EXP010"),
        check=_tokens_vary,
    ),
    Plant(
        name="too-many-threads",
        number="15",
        says="sixteen threads on a few processors",
        dose="16 threads",
        faulty=healthy(settings={"threads": 16}),
        control=HEALTHY,
        fix=HEALTHY,
        expected=("CPU001",),
        top=("CPU001",),
        must_not=("HST001", "INP001"),
        check=slower(1.3),
    ),
    Plant(
        name="hogs-outside",
        number="16",
        says="other processes take the processors",
        dose="6 busy processes",
        faulty=Trials(options=MLP, steps=120, settings={"threads": 2}, hogs=6),
        control=healthy(steps=120, settings={"threads": 2}),
        expected=("EXP010",),
        must_not=("STB002", "EXP004"),
        check=slower(1.3),
    ),
    Plant(
        name="exploding-loss",
        number="21",
        says="the learning rate makes the loss infinite",
        dose="learning rate 1e30",
        faulty=faulty(learning_rate=1e30),
        control=HEALTHY,
        expected=("EXP005|EXP002",),
        check=ends_as("nan_loss"),
    ),
    Plant(
        name="crash",
        number="-",
        says="the training raises after some batches",
        dose="20 batches",
        faulty=faulty(crash_after=20),
        control=HEALTHY,
        expected=("EXP002",),
        check=ends_as("crashed"),
    ),
    Plant(
        name="memory-ends",
        number="-",
        says="a sweep whose largest batches do not fit",
        dose="no batch above 64",
        faulty=Trials(
            workload="faulty",
            options=MLP | {"oom_above": 64},
            batch_sizes=(16, 64, 128),
            steps=60,
            settings={"threads": 1},
        ),
        control=Trials(options=MLP, batch_sizes=(16, 64, 128), steps=60, settings={"threads": 1}),
        noted=("EXP002",),
        must_not=("SWP003", "INP001"),
        check=ends_as("out_of_memory_device"),
    ),
    Plant(
        name="batch-sweep",
        number="24",
        says="a step costs nearly the same at batch 1 and 16",
        dose="batch 1 to 1024",
        faulty=Trials(
            options={"width": 256, "depth": 3, "features": 64, "samples": 4096},
            batch_sizes=(1, 4, 16, 64, 256, 1024),
            steps=60,
            settings={"threads": 1},
        ),
        noted=("SWP002|SWP001",),
        must_not=("CMP001", "MEM001"),
    ),
    Plant(
        name="untouched",
        number="N-a",
        says="an untouched training",
        dose="none",
        faulty=healthy(steps=240),
    ),
)
