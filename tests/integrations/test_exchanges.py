"""What DistributedDataParallel has written down about its exchanges, read from a real one and from made-up logs."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from perf_diagnostics.integrations.ranks import exchanges as module
from perf_diagnostics.integrations.ranks.bucket_views import gradient_memory
from perf_diagnostics.integrations.ranks.exchanges import LOOKS, Exchanges
from perf_diagnostics.measure.observation import Observations
from perf_diagnostics.records import Json, StepTable


@pytest.fixture
def group(tmp_path: Path) -> Iterator[None]:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def trained(steps: int, *, batches: int = 1, no_sync: bool = False, before: int = 0) -> Exchanges:
    """A real training of so many steps, each of which is looked at; ``before`` of it were not."""
    ddp = DistributedDataParallel(torch.nn.Linear(4, 4), gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    exchanges = Exchanges(Observations())
    exchanges.modules = lambda: [torch.nn.Sequential(ddp)]
    for step in range(-before, steps):
        for batch in range(batches):
            with ddp.no_sync() if no_sync and batch < batches - 1 else contextlib.nullcontext():
                ddp(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        if step >= 0:
            exchanges.look(step + 1)
    return exchanges


@pytest.mark.parametrize(("batches", "no_sync", "exchanged"), [(1, False, 1), (3, False, 3), (3, True, 1)])
@pytest.mark.usefixtures("group")
def test_a_real_one_is_counted(batches: int, no_sync: bool, exchanged: int) -> None:
    facts = trained(6, batches=batches, no_sync=no_sync).facts()
    assert facts["exchanges_per_step_least"] == facts["exchanges_per_step_most"] == exchanged
    assert facts["ddp_buckets"] == 1 and facts["ddp_gradient_bytes"] == 80  # 16 + 4 of 4 bytes
    assert facts["ddp_buckets_rebuilt"] is True and facts["data_parallel"] == "DistributedDataParallel"
    assert facts["ddp_gradient_as_bucket_view"] is True and facts["ddp_find_unused_parameters"] is False
    assert facts["ddp_unused_parameter_bytes"] == 0


@pytest.mark.usefixtures("group")
def test_so_many_that_the_count_stops_at_ten_have_a_lower_end_at_least() -> None:
    # Eight a step: 7 were written down after the first step, and from the second on it says 10 until it says 100.
    facts = trained(10, batches=8).facts()
    assert 3 <= facts["exchanges_per_step_least"] <= 8 <= facts["exchanges_per_step_most"]


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize("sends", [True, False])
def test_buffers_are_told_that_are_sent_before_each_forward(sends: bool) -> None:
    norm = torch.nn.BatchNorm1d(4)
    norm.register_buffer("table", torch.zeros(10, 4))
    ddp = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(4, 4), norm))
    ddp.broadcast_buffers = sends  # by that name in all versions
    exchanges = Exchanges(Observations())
    exchanges.modules = lambda: [ddp]
    for step in range(3):
        ddp(torch.ones(2, 4)).sum().backward()
        exchanges.look(step + 1)
    told = {name: value for name, value in exchanges.facts().items() if "buffer" in name}
    sent = {"ddp_buffer_bytes": 160 + 2 * 16 + 8, "ddp_largest_buffer": "1.table", "ddp_largest_buffer_bytes": 160}
    assert told == (sent if sends else {})


@pytest.mark.usefixtures("group")
def test_one_that_was_in_use_before_is_counted_from_here_on() -> None:
    facts = trained(5, before=3).facts()
    assert facts["exchanges_per_step_least"] == facts["exchanges_per_step_most"] == 1


@pytest.mark.usefixtures("group")
def test_a_real_exchange_stands_beside_the_step_after_it() -> None:
    exchanges = trained(6)
    table = exchanges.beside(steps(8), 0, "cpu")
    told = np.isfinite(table.columns["exchange_ns"])
    # Looks 1 to 6 wrote down 0 to 5 exchanges: the first two looks hold the very first exchange, or none.
    assert told.tolist() == [False, False, True, True, True, True, True, False]
    assert (table.columns["exchange_hidden_ns"][told] <= table.columns["exchange_ns"][told]).all()
    memory = table.columns["host_rss_bytes"]
    assert np.isnan(memory[:-1]).all() and memory[-1] > 1e6


class TwoHeads(torch.nn.Module):
    """20 parameters of a body and 5 of each head, of which one is used."""

    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Linear(4, 4)
        self.heads = torch.nn.ModuleList(torch.nn.Linear(4, 1) for _ in range(2))
        self.head = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.heads[self.head](self.body(x))  # type: ignore[no-any-return]


def told_of(model: torch.nn.Module, *, heads: tuple[int, ...] = (0, 0, 0, 0), **options: bool) -> Mapping[str, Json]:
    """The facts of a training with one step a head, each of which is looked at with its gradients still there."""
    ddp = DistributedDataParallel(model, **options)
    exchanges = Exchanges(Observations())
    exchanges.modules = lambda: [ddp]
    for step, head in enumerate(heads, start=1):
        ddp.zero_grad()
        ddp.module.head = head
        ddp(torch.ones(2, 4)).sum().backward()
        exchanges.look(step)
    return exchanges.facts()


@pytest.mark.usefixtures("group")
def test_the_memory_of_gradients_beside_the_buckets_is_measured() -> None:
    assert told_of(torch.nn.Linear(4, 4))["ddp_gradients_beside_bytes"] == 80  # 16 + 4 of 4 bytes
    views = told_of(torch.nn.Linear(4, 4), gradient_as_bucket_view=True)
    assert views["ddp_gradient_as_bucket_view"] is True and "ddp_gradients_beside_bytes" not in views
    used = told_of(TwoHeads(), find_unused_parameters=True)
    assert used["ddp_gradients_beside_bytes"] == 100 and used["ddp_unused_parameter_bytes"] == 20


@pytest.mark.usefixtures("group")
def test_gradients_that_are_gone_are_not_measured_as_none() -> None:
    ddp = DistributedDataParallel(torch.nn.Linear(4, 4))
    exchanges = Exchanges(Observations())
    exchanges.modules = lambda: [ddp]
    for step in (1, 2, 3):
        ddp(torch.ones(2, 4)).sum().backward()
        ddp.zero_grad()
        exchanges.look(step)
    assert "ddp_gradients_beside_bytes" not in exchanges.facts() and exchanges.facts()["ddp_gradient_bytes"] == 80


def test_memory_that_gradients_share_is_counted_once() -> None:
    model = torch.nn.Linear(4, 4)
    memory = torch.zeros(20)
    model.weight.grad, model.bias.grad = memory[:16].view(4, 4), memory[16:]
    assert gradient_memory(model) == 80


@pytest.mark.usefixtures("group")
def test_whether_the_same_parameters_are_unused_in_all_steps_is_told_where_ddp_looks_for_them() -> None:
    assert told_of(TwoHeads(), find_unused_parameters=True)["ddp_can_set_static_graph"] is True
    turns = told_of(TwoHeads(), heads=(0, 0, 1, 0), find_unused_parameters=True)
    assert turns["ddp_can_set_static_graph"] is False
    assert "ddp_can_set_static_graph" not in told_of(torch.nn.Linear(4, 4))


def steps(count: int) -> StepTable:
    return StepTable({"wall_ns": np.full(count, 1_000_000), "samples": np.ones(count), "warmup": np.zeros(count)})


class Logged:
    """What stands in for a model that writes down what it is told to."""

    def __init__(self) -> None:
        self.log: dict[str, Any] = {"iteration": 0}

    def _get_ddp_logging_data(self) -> dict[str, Any]:
        return self.log


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> tuple[Exchanges, Logged]:
    logged = Logged()
    monkeypatch.setattr(module, "_ddp_in", lambda _modules: logged)
    return Exchanges(Observations()), logged


def log(iteration: int, average_ns: float, hidden_ns: float, last_ns: float = 0.0) -> dict[str, Any]:
    return {
        "iteration": iteration,
        "avg_backward_comm_time": average_ns,
        "avg_backward_compute_comm_overlap_time": hidden_ns,
        "backward_comm_time": last_ns,
        "backward_compute_comm_overlap_time": 0,
    }


def test_between_two_looks_the_mean_is_worked_out_from_the_running_means(made_up: tuple[Exchanges, Logged]) -> None:
    exchanges, logged = made_up
    for step, said in enumerate((log(3, 100, 40), log(7, 200, 80), log(10, 230, 80), log(100, 300, 80)), start=1):
        logged.log = said
        exchanges.look(step)
    table = exchanges.beside(steps(6), 0, "cpu")
    # (7 x 200 - 3 x 100) / 4 = 275; (10 x 230 - 7 x 200) / 3 = 300; the hundredth is the 11th timed: 11 x 300 - 2300.
    assert table.columns["exchange_ns"][2:5].tolist() == [275, 300, 1000]
    assert table.columns["exchange_hidden_ns"][2] == (7 * 80 - 3 * 40) / 4


def test_at_another_rate_the_last_one_stands_for_all(made_up: tuple[Exchanges, Logged]) -> None:
    exchanges, logged = made_up
    for step, said in enumerate((log(30, 100, 40), log(35, 200, 80, last_ns=77)), start=1):
        logged.log = said
        exchanges.look(step)
    assert exchanges.beside(steps(3), 0, "cpu").columns["exchange_ns"][2] == 77


def test_nothing_timed_is_nothing_and_not_zero(made_up: tuple[Exchanges, Logged]) -> None:
    exchanges, logged = made_up
    for step in (1, 2):
        logged.log = {"iteration": step}
        exchanges.look(step)
    assert np.isnan(exchanges.beside(steps(3), 0, "cpu").columns["exchange_ns"]).all()


def test_later_blocks_get_what_was_told_for_them(made_up: tuple[Exchanges, Logged]) -> None:
    exchanges, logged = made_up
    for step in (1, 2, 3):
        logged.log = log(step, 100, 0)
        exchanges.look(step)
    first, second = exchanges.beside(steps(3), 0, "cpu"), exchanges.beside(steps(2), 3, "cpu")
    assert np.isfinite(first.columns["exchange_ns"]).tolist() == [False, False, True]
    assert np.isfinite(second.columns["exchange_ns"]).tolist() == [True, False]


def test_it_is_looked_at_again_when_the_next_one_is_timed(made_up: tuple[Exchanges, Logged]) -> None:
    exchanges, logged = made_up
    for step in range(1, LOOKS + 1):
        assert exchanges.next_look == step
        logged.log = log(min(2 * step - 1, 10), 100, 0)
        exchanges.look(step)
    # Two a step: 27 after 14 steps, so the hundredth is begun 36.5 steps later.
    assert exchanges.next_look == LOOKS + 37


def test_without_a_model_that_exchanges_it_is_soon_given_up() -> None:
    exchanges = Exchanges(Observations())
    for step in range(1, 7):
        exchanges.look(step)
    assert exchanges.next_look > 10**9 and not exchanges.seen and exchanges.facts() == {}
    assert math.isnan(exchanges.beside(steps(1), 0, "cpu").columns["exchange_ns"][0])


def test_a_log_that_cannot_be_read_is_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def _get_ddp_logging_data(self) -> dict[str, Any]:
            raise RuntimeError("the reducer is gone")

    broken = Broken()
    monkeypatch.setattr(module, "_ddp_in", lambda _modules: broken)
    observations = Observations()
    Exchanges(observations).look(1)
    assert [gap.signal for gap in observations.gaps] == ["exchange_ns", "exchange_hidden_ns"]
