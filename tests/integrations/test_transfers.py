"""Copies to the device in a loop that is only watched; the device is torch's ``meta``, to which copies take no time."""

from __future__ import annotations

import time
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from torch.utils.data import DataLoader

from perf_diagnostics.integrations import attach
from perf_diagnostics.integrations.watching import watched_steps
from perf_diagnostics.integrations.watching.transfers import MOST_COPIES
from perf_diagnostics.measure.steps.device_clock import HostTimeEvents
from perf_diagnostics.records import Phase, TrialResult

META = torch.device("meta")
COPY_S = 0.004
torchs_own = torch.Tensor.to


@pytest.fixture
def slow_copies(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Copies from the host take their time, and say how long it was; the device has no clock of its own."""
    took: list[float] = []

    def to(self, *args, **kwargs):
        began = time.perf_counter()
        copied = torchs_own(self, *args, **kwargs)
        if copied.device != self.device:
            time.sleep(COPY_S)
            took.append(time.perf_counter() - began)
        return copied

    monkeypatch.setattr(torch.Tensor, "to", to)
    monkeypatch.setattr(
        watched_steps,
        "event_source",
        lambda device, clock: HostTimeEvents(lambda: None, clock) if device == META else None,
    )
    return took


def parts(device: torch.device = META, rows: int = 40):
    model = torch.nn.Linear(4, 1, device=device)
    pairs = [(torch.ones(4), torch.ones(1)) for _ in range(rows)]
    return model, torch.optim.SGD(model.parameters(), lr=0.1), DataLoader(pairs, batch_size=4)


def train_on(model, optimizer, x, y) -> None:
    optimizer.zero_grad()
    # A list has no loss that could be read, which on the meta device has no value.
    torch.autograd.backward([torch.nn.functional.mse_loss(model(x), y)])
    optimizer.step()


def seconds(result: TrialResult, phase: Phase) -> float:
    times_ns = result.steps[0].host_ns(phase)
    return 0.0 if times_ns is None else times_ns.sum() / 1e9


def test_copies_between_a_batch_and_its_forward_are_transfer(tmp_path: Path, slow_copies: list[float]) -> None:
    model, optimizer, loader = parts()
    mine = torch.Tensor.to
    with attach(model, optimizer, loader, results_dir=tmp_path) as seen:
        for x, y in loader:
            train_on(model, optimizer, x.to(META), y.to("meta", non_blocking=True))
            if seen.steps == 0:
                slow_copies.clear()  # the first step shows which device it is, and is dropped
        assert torch.Tensor.to is not mine
    assert torch.Tensor.to is mine
    result = seen.run.results[0]
    assert len(result.steps[0]) == 9 and len(slow_copies) == 18
    assert result.provenance["device_clock"] == "synchronised"
    assert seconds(result, Phase.TRANSFER) >= sum(slow_copies)
    assert seconds(result, Phase.OTHER) < 9 * COPY_S  # of 18 copies that would be there
    assert result.gap("host_transfer_ns") is None
    assert result.steps[0].samples.tolist() == [4] * 9


def test_a_mapping_of_tensors_is_copied_tensor_by_tensor(tmp_path: Path, slow_copies: list[float]) -> None:
    transformers = pytest.importorskip("transformers")
    model, optimizer, _ = parts()
    loader = DataLoader([{"x": torch.ones(4), "y": torch.ones(1)} for _ in range(24)], batch_size=4)
    with attach(model, optimizer, loader, results_dir=tmp_path) as seen:
        for batch in loader:
            moved = transformers.BatchEncoding(batch).to("meta")
            train_on(model, optimizer, moved["x"], moved["y"])
    result = seen.run.results[0]
    assert len(result.steps[0]) == 5
    assert seconds(result, Phase.TRANSFER) >= sum(slow_copies[2:])


def test_other_copies_stay_where_they_are(tmp_path: Path, slow_copies: list[float]) -> None:
    model, optimizer, loader = parts()
    with attach(model, optimizer, None, results_dir=tmp_path) as seen:
        for number, (x, y) in enumerate(loader):
            prediction = model(torch.ones(4, 4, device=META))
            torch.autograd.backward([torch.nn.functional.mse_loss(prediction, y.to(META))])  # a part of the loss
            optimizer.step()
            if number == 5:
                for held_x, _ in loader:  # in training mode: only the call tells that it is an evaluation
                    with torch.no_grad():
                        model(held_x.to(META))
            x.to(torch.float64)
            y.to(torch.float64).to(y)
    result = seen.run.results[0]
    own = sum(slow_copies[1:]) - sum(slow_copies[6:16])
    assert seconds(result, Phase.TRANSFER) == 0
    assert seconds(result, Phase.FORWARD) >= own
    assert seconds(result, Phase.OTHER) >= sum(slow_copies[6:16])


def test_without_a_loader_what_is_copied_before_the_forward_is_transfer(
    tmp_path: Path, slow_copies: list[float]
) -> None:
    """Of a list; the targets of the loss are copied after the forward, and an evaluation's batch without gradients."""
    model, optimizer, _ = parts()
    batches = [(torch.ones(4, 4), torch.ones(4, 1)) for _ in range(8)]
    with attach(model, optimizer, results_dir=tmp_path) as seen:
        for x, y in batches:
            prediction = model(x.to(META))
            torch.autograd.backward([torch.nn.functional.mse_loss(prediction, y.to(META))])
            optimizer.step()
            optimizer.zero_grad()
            with torch.no_grad():
                x.to(META)
    result = seen.run.results[0]
    assert len(result.steps[0]) == 7
    assert sum(slow_copies[3::3]) <= seconds(result, Phase.TRANSFER) < sum(slow_copies[3::3]) + 3 * COPY_S


def test_each_accumulated_batch_has_copies_of_its_own(tmp_path: Path, slow_copies: list[float]) -> None:
    """Three times 20: more than are timed of one batch."""
    model, optimizer, loader = parts(rows=48)
    with attach(model, optimizer, loader, results_dir=tmp_path) as seen:
        for number, (x, y) in enumerate(loader):
            for _ in range(18):
                torch.ones(1).to(META)
            torch.autograd.backward([torch.nn.functional.mse_loss(model(x.to(META)), y.to(META))])
            if number % 3 == 2:
                optimizer.step()
                optimizer.zero_grad()
    result = seen.run.results[0]
    steps = len(result.steps[0])
    # The first step shows which device it is; a target is copied behind its forward.
    assert steps == 3 and seconds(result, Phase.TRANSFER) / steps >= 3 * 19 * COPY_S


def test_of_many_copies_in_a_step_the_first_are_timed(tmp_path: Path, slow_copies: list[float]) -> None:
    model, optimizer, loader = parts(rows=20)
    with attach(model, optimizer, loader, results_dir=tmp_path) as seen:
        for x, y in loader:
            numbers = [torch.ones(1).to(META) for _ in range(MOST_COPIES + 8)]
            train_on(model, optimizer, x.to(META) + numbers[0], y.to(META))
    result = seen.run.results[0]
    steps = len(result.steps[0])
    assert steps == 4 and MOST_COPIES * COPY_S <= seconds(result, Phase.TRANSFER) / steps < (MOST_COPIES + 3) * COPY_S
    assert seconds(result, Phase.OTHER) / steps >= 10 * COPY_S


def test_on_the_cpu_nothing_is_put_in(tmp_path: Path) -> None:
    model, optimizer, loader = parts(torch.device("cpu"))
    with attach(model, optimizer, loader, results_dir=tmp_path) as seen:
        for x, y in loader:
            train_on(model, optimizer, x.to("cpu"), y)
            assert torch.Tensor.to is torchs_own and "to" not in vars(torch.Tensor) and "cuda" not in vars(torch.Tensor)
    result = seen.run.results[0]
    assert len(result.steps[0]) == 10
    assert result.steps[0].get("host_transfer_ns") is None and "runs on the CPU" in result.gap("host_transfer_ns").why


class Overriding(torch.Tensor):
    """Looks functions up in a table, as quantised tensors do."""

    asked: ClassVar[list[object]] = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.asked.append(func)
        return super().__torch_function__(func, types, args, kwargs or {})


def test_who_overrides_a_copy_is_handed_torchs_own_function_and_compiled_graphs_stay_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched_steps, "event_source", lambda _, clock: HostTimeEvents(lambda: None, clock))
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()

    @torch.compile(backend="eager", fullgraph=True)
    def cast(x):
        return x.to(torch.float64).to(device="cpu") + 1

    cast(torch.ones(2))
    model, optimizer, loader = parts()
    with attach(model, optimizer, loader, results_dir=tmp_path):
        for x, y in loader:
            train_on(model, optimizer, x.to(META), y.to(META))
            Overriding.asked.clear()
            torch.ones(4).as_subclass(Overriding).to(META)
            assert Overriding.asked == [torchs_own]
            cast(torch.ones(2))
        assert "to" in vars(torch.Tensor)
        with pytest.raises((TypeError, RuntimeError)):
            torch.ones(4).to("nowhere")
    assert "to" not in vars(torch.Tensor)
    cast(torch.ones(2))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    assert not torch._dynamo.utils.counters["graph_break"]
