"""The small training that stands in for steps too long to take turns."""

from __future__ import annotations

import random

import torch

from perf_diagnostics.measure.stand_in import BATCHES, ELEMENTS, LAYERS, StandIn

CPU = torch.device("cpu")


def test_it_trains_without_a_random_number() -> None:
    before = random.getstate(), torch.get_rng_state()
    model = StandIn(CPU)
    first = next(model.batches())
    assert first.shape == (ELEMENTS,)
    loss = model(first)
    loss.backward()
    gradient = model.weight.grad
    assert loss.ndim == 0 and gradient is not None and bool((gradient != 0).all())
    torch.optim.SGD(model.parameters(), lr=1e-3).step()
    assert bool((model.weight != 0.5).all())
    assert before[0] == random.getstate() and torch.equal(before[1], torch.get_rng_state())


def test_batches_do_not_end_and_are_copies() -> None:
    batches = StandIn(CPU).batches()
    seen = [next(batches) for _ in range(BATCHES + 1)]
    assert len({batch.data_ptr() for batch in seen}) == BATCHES + 1


def test_a_forward_pass_has_so_many_layers() -> None:
    def products(**how: int) -> int:
        model = StandIn(CPU, **how)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            model(torch.ones(ELEMENTS))
        return sum(event.count for event in profile.key_averages() if event.key == "aten::mul")

    assert products() == LAYERS
    assert products(layers=4) == 4


def test_it_is_in_float32_whatever_the_default_is() -> None:
    torch.set_default_dtype(torch.float64)
    try:
        model = StandIn(CPU)
        assert model.weight.dtype is next(model.batches()).dtype is torch.float32
    finally:
        torch.set_default_dtype(torch.float32)
