"""The data of one step is followed: what is computed again, made of constants, multiplied first, or used by nobody.

Every operator counts as taking a second, so that seconds are numbers of operators.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from perf_diagnostics.measure.one_step import dispatch_mode, engine_passes
from perf_diagnostics.measure.one_step.dataflow import StepDataflow
from perf_diagnostics.measure.one_step.dataflow_storages import Storages
from perf_diagnostics.measure.one_step.dispatch_mode import OperatorMode
from perf_diagnostics.measure.one_step.watcher import Ran, memory

ROWS, WIDTH = 16, 32

BANK = torch.zeros(ROWS * WIDTH)


@pytest.fixture(autouse=True)
def _a_second_each(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = count(0, 1_000_000_000)
    monkeypatch.setattr(dispatch_mode, "_clock", lambda: next(ticks))


@contextmanager
def shown_to(watcher: StepDataflow) -> Iterator[None]:
    """Operators are shown to it, as they are in a training."""
    mode = OperatorMode([watcher])
    mode.open()
    with engine_passes.stand_in(mode):
        try:
            yield
        finally:
            mode.close()
            mode.step_ended()
    assert mode.problem == "" and mode.problems == {}


def followed(*modules: nn.Module, known: Storages | None = None) -> StepDataflow:
    """A watcher of a step of these modules, after another one of which this is ``known``."""
    parameters = [one for module in modules for one in module.parameters()]
    trained = [memory(one) for one in parameters if one.requires_grad]
    return StepDataflow(known or Storages([memory(one) for one in parameters], trained))


def looked(step: Callable[[], Any], *modules: nn.Module) -> dict[str, Any]:
    """What is told of a step; what it returns lives until the end of it."""
    watcher = followed(*modules)
    with shown_to(watcher):
        kept = step()
    told = watcher.told
    del kept
    assert watcher.why_not == ""
    return told


def trained(loss: Callable[[], torch.Tensor]) -> Callable[[], torch.Tensor]:
    def step() -> torch.Tensor:
        value = loss()
        value.backward()
        return value

    return step


def quiet(told: dict[str, Any], *names: str) -> None:
    lists = names or ("computed_again", "constants_made", "dense_products", "never_used")
    assert {name: told[name] for name in lists} == {name: [] for name in lists}


class Encoder(nn.Module):
    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.drop(torch.relu(self.first(x))))


class Two(nn.Module):
    """Two terms from one encoder."""

    def __init__(self, again: bool, dropout: float = 0.0) -> None:
        super().__init__()
        self.encoder, self.again = Encoder(dropout), again

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        code = self.encoder(x)
        other = self.encoder(x) if self.again else code
        return code.square().mean() + other.exp().mean()


def test_an_encoder_called_twice_on_one_batch_is_told_with_both_lines() -> None:
    model, x = Two(again=True), torch.randn(ROWS, WIDTH)
    told = looked(trained(lambda: model(x)), model)
    (one,) = told["computed_again"]
    assert one["text"] == "other = self.encoder(x) if self.again else code"
    assert one["first"]["text"] == "code = self.encoder(x)" and not one["of_parameters"]
    assert one["inside"]["text"] == "return self.second(self.drop(torch.relu(self.first(x))))"
    # Two layers and what lies between them; in backward three products, sums for biases, relu's and views.
    assert one["seconds_forward"] == one["operators"] == 3 and one["seconds_backward"] >= 6
    quiet(told, "constants_made", "dense_products", "never_used")


def test_an_encoder_called_once_is_quiet() -> None:
    model, x = Two(again=False), torch.randn(ROWS, WIDTH)
    quiet(looked(trained(lambda: model(x)), model))


def test_other_random_draws_make_it_another_computation() -> None:
    model, x = Two(again=True, dropout=0.5), torch.randn(ROWS, WIDTH)
    quiet(looked(trained(lambda: model(x)), model), "computed_again")
    quiet(looked(trained(lambda: model(torch.rand(ROWS, WIDTH)) + model(torch.rand(ROWS, WIDTH)))), "never_used")


@pytest.mark.parametrize(
    "change",
    [
        lambda model, x: x.mul_(2),
        lambda model, x: model.first.weight.data.mul_(2),
        lambda model, x: torch.optim.SGD(model.parameters(), lr=0.1).step(),
    ],
)
def test_what_was_changed_in_between_is_computed_anew(change: Callable[[nn.Module, torch.Tensor], Any]) -> None:
    model, x = Encoder(), torch.randn(ROWS, WIDTH)

    def step() -> torch.Tensor:
        before = model(x).square().mean()
        before.backward()
        with torch.no_grad():
            change(model, x)
        return before + model(x).square().mean()

    told = looked(step, model)
    assert [one for one in told["computed_again"] if one["operators"] > 1] == []


def add_to_one(model: Encoder) -> None:
    """Of a weight one number changes, which is not among those that are compared; torch counts the change."""
    with torch.no_grad():
        model.first.weight[1, 1] += 1


@pytest.mark.parametrize(
    ("change", "again"),
    [
        (lambda model, x: None, 3),
        (lambda model, x: add_to_one(model), 0),
        (lambda model, x: model.first.weight.data.mul_(2), 0),  # which torch does not count
        (lambda model, x: x.numpy().fill(1.0), 0),
        (lambda model, x: model.second.weight.data.mul_(2), 2),
    ],
)
def test_changes_that_nobody_was_shown_are_seen(change: Callable[[Encoder, torch.Tensor], Any], again: int) -> None:
    model, x = Encoder(), torch.randn(ROWS, WIDTH)
    watcher = followed(model)
    kept = []
    for _ in range(2):
        with shown_to(watcher):
            kept.append(model(x))
        change(model, x)
    assert sum(one["operators"] for one in watcher.told["computed_again"]) == again


def test_a_generator_run_for_each_turn_is_told_across_what_was_not_shown() -> None:
    generator, critic = Encoder(), nn.Linear(WIDTH, 1)
    optimizer = torch.optim.SGD(critic.parameters(), lr=0.1)
    watcher = followed(generator, critic)
    noise = torch.randn(ROWS, WIDTH)
    with shown_to(watcher):
        fake = generator(noise)
        critic(fake.detach()).mean().backward()
    optimizer.step()
    with shown_to(watcher):
        fake = generator(noise)
        loss = critic(fake).mean()
        loss.backward()
    (one,) = watcher.told["computed_again"]
    # Backward goes through the generator once in any case; the critic has other weights.
    assert (one["operators"], one["seconds_backward"], one["text"]) == (3, 0, "fake = generator(noise)")


def test_what_a_backward_has_let_go_of_is_no_computation_to_keep() -> None:
    model, x = Encoder(), torch.randn(ROWS, WIDTH)

    def step() -> list[torch.Tensor]:
        losses = []
        for _ in range(2):
            loss = model(x).square().mean()
            loss.backward()
            losses.append(loss)
        return losses

    quiet(looked(step, model), "computed_again")


def test_what_derivatives_were_taken_of_with_a_graph_is_there_to_be_used_again() -> None:
    """As the residual of an equation does that asks for its function and for each of its derivatives."""
    model, x = Encoder(), torch.randn(ROWS, WIDTH)

    def step(*, again: bool) -> torch.Tensor:
        at = x.detach().requires_grad_()
        first = model(at)
        (slope,) = torch.autograd.grad(first.sum(), at, create_graph=True)
        loss = (slope.mean() + (model(at) if again else first)).square().mean()
        loss.backward()
        return loss

    (entry,) = looked(lambda: step(again=True), model)["computed_again"]
    assert entry["operators"] >= 3 and "if again else first" in entry["text"]
    quiet(looked(lambda: step(again=False), model), "computed_again", "beside_the_loss", "never_used")


def test_a_parametrization_is_of_parameters_also_where_a_buffer_is_part_of_it() -> None:
    layer = nn.utils.parametrizations.orthogonal(nn.Linear(WIDTH, WIDTH, bias=False))
    x = torch.randn(ROWS, WIDTH)
    (entry,) = looked(trained(lambda: layer(torch.tanh(layer(x))).square().mean()), layer)["computed_again"]
    assert entry["of_parameters"] is True and entry["operators"] >= 3


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpoint_is_no_second_computation(reentrant: bool) -> None:
    model, x = Encoder(), torch.randn(ROWS, WIDTH, requires_grad=True)
    quiet(looked(trained(lambda: checkpoint(model, x, use_reentrant=reentrant).square().mean()), model))


def test_dimensions_and_numbers_that_python_hashes_alike_are_told_apart() -> None:
    x = torch.randn(4, 4)
    step = lambda: [x.softmax(-1), x.softmax(-2), x * 1, x * 1.0, x + True, x + 1, x.sum(), x.T.sum()]  # noqa: E731
    quiet(looked(step))


def test_a_product_three_times_on_one_line_is_told_once() -> None:
    x = torch.randn(ROWS, WIDTH)
    (one,) = looked(lambda: [x.log_softmax(-1) for _ in range(3)])["computed_again"]
    assert one["operators"] == 2 and (one["first"]["line"], one["first"]["text"]) == (one["line"], one["text"])


def table(length: int) -> torch.Tensor:
    sines = torch.zeros(length, WIDTH)
    place = torch.arange(length)[:, None] / 7.0
    sines[:, 0::2] = torch.sin(place * torch.arange(WIDTH // 2))
    return sines + torch.ones_like(sines).tril()


def test_a_table_of_numbers_in_the_code_is_told_as_one() -> None:
    x = torch.randn(ROWS, WIDTH)
    told = looked(lambda: x + table(ROWS))
    (one,) = told["constants_made"]
    assert one["function"] == "table" and one["seconds_backward"] == 0
    # zeros, arange, div, arange, mul, sin, copy_, ones_like, tril and add; views are no operators.
    # The view that copy_ writes into is taken for it, and its second counts.
    assert one["operators"] == 10 and one["seconds_forward"] == 11
    quiet(told, "computed_again", "dense_products", "never_used")


def test_zeros_that_sums_are_written_into_are_no_constant() -> None:
    x, ids = torch.randn(ROWS, WIDTH), torch.arange(ROWS) % 4
    quiet(looked(lambda: [torch.zeros(4, WIDTH).index_add_(0, ids, x), torch.ones(ROWS, WIDTH).mul_(2).add_(x)]))


def test_what_the_batch_or_chance_goes_into_is_no_constant() -> None:
    x, lengths = torch.randn(ROWS, WIDTH), torch.tensor([3, 7])

    def step() -> list[torch.Tensor]:
        longest = int(lengths.max().item())
        return [
            x + torch.arange(WIDTH)[torch.randperm(WIDTH)],
            torch.arange(longest)[None] < lengths[:, None],
            torch.full((4,), float(lengths[0].item())).exp(),
            torch.tensor([0.5, 2.0, 3.0]).exp(),
            torch.rand(4).exp(),
            torch.empty(4).abs(),
        ]

    told = looked(step)
    assert sum(one["operators"] for one in told["constants_made"]) <= 2  # arange and its like alone
    quiet(told, "never_used")


class Adapted(nn.Module):
    """A frozen layer with an update of low rank, merged into its weight."""

    def __init__(self, rank: int, *, normed: bool = False, penalised: bool = False) -> None:
        super().__init__()
        self.base = nn.Linear(WIDTH, WIDTH).requires_grad_(False)
        self.down, self.up = nn.Parameter(torch.randn(rank, WIDTH)), nn.Parameter(torch.randn(WIDTH, rank))
        self.normed, self.penalised = normed, penalised

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = self.base.weight + 2.0 * (self.up @ self.down)
        if self.normed:
            weight = weight / weight.norm(dim=1, keepdim=True)
        penalty = weight.exp().sum() if self.penalised else 0.0
        return functional.linear(x, weight, self.base.bias) + penalty


def dense(model: nn.Module, rows: int) -> list[Any]:
    x = torch.randn(rows, WIDTH)
    found = looked(trained(lambda: model(x).square().mean()), model)["dense_products"]
    assert isinstance(found, list)
    return found


def test_a_merged_weight_is_told_where_the_other_order_takes_less() -> None:
    (one,) = dense(Adapted(rank=2), rows=4)
    assert (one["rows"], one["inner"], one["columns"], one["batch_rows"], one["uses"]) == (WIDTH, 2, WIDTH, 4, 1)
    assert one["text"] == "weight = self.base.weight + 2.0 * (self.up @ self.down)"
    # The product, its multiple and the sum; the other order has 2·4·2·(32 + 32) operations where the batch's product
    # has 2·4·32·32 a second, three times for gradients, and counts twice.
    assert one["seconds_forward"] == 3 and one["seconds_instead"] == pytest.approx(3 * 2 * 1024 / 8192)


def test_the_gradient_of_a_frozen_weight_counts_for_that_only_a_merged_one_asks_for_it() -> None:
    """Half of the batch's product's backward, also with many rows, where the merged weight takes less in forward."""
    frozen, trained_too = Adapted(rank=2), Adapted(rank=2)
    trained_too.base.requires_grad_(True)
    (one,) = dense(frozen, rows=64)  # 2·64·2·64 operations instead of 2·32·2·32, and 2·64·32·32 in backward
    (few,) = dense(frozen, rows=4)
    (beside,) = dense(trained_too, rows=4)
    assert one["seconds_backward"] == few["seconds_backward"] > beside["seconds_backward"]
    assert dense(trained_too, rows=64) == []


def test_a_merged_weight_for_very_many_rows_or_that_is_normalised_is_quiet() -> None:
    assert dense(Adapted(rank=16), rows=64) == []  # 3·2·64·16·64 operations instead of 2·64·32·32 and some
    assert dense(Adapted(rank=2, normed=True), rows=4) == []
    assert dense(Adapted(rank=2, penalised=True), rows=4) == []


def test_factors_of_a_table_are_told_where_few_rows_are_looked_up() -> None:
    class Looked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left, self.right = nn.Parameter(torch.randn(500, 4)), nn.Parameter(torch.randn(4, WIDTH))

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return functional.embedding(ids, self.left @ self.right)

    model, ids = Looked(), torch.tensor([1, 2, 3])
    (one,) = looked(trained(lambda: model(ids).square().mean()), model)["dense_products"]
    assert (one["batch_rows"], one["rows"], one["inner"]) == (3, 500, 4)


@pytest.mark.parametrize("norm", [torch.nn.utils.parametrizations.weight_norm, torch.nn.utils.spectral_norm])
def test_normalised_weights_are_quiet(norm: Callable[[nn.Module], nn.Module]) -> None:
    model, x = norm(nn.Linear(WIDTH, WIDTH)), torch.randn(ROWS, WIDTH)
    quiet(looked(trained(lambda: model(x).square().mean()), model))


class Headed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head, self.idle = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 4), Encoder()

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = self.body(x).relu()
        return self.head(hidden), self.idle(hidden)


def headed(read: Callable[[torch.Tensor], Any]) -> list[Any]:
    """What is told as never used where ``read`` has seen what the second head gave, which is let go at once."""
    model, x, got = Headed(), torch.randn(ROWS, WIDTH), []

    def forward() -> torch.Tensor:
        out, other = model(x)
        got.append(read(other))
        return out

    found = looked(trained(lambda: forward().square().mean()), model)["never_used"]
    assert isinstance(found, list)
    return found


def test_a_head_whose_output_is_thrown_away_is_told_at_its_line() -> None:
    (one,) = headed(lambda _: None)
    assert one["function"] == "Encoder.forward" and one["operators"] == 3 and one["seconds_backward"] == 0


@pytest.mark.parametrize(
    "read",
    [
        lambda other: other,  # it lives on
        lambda other: other.sum().item(),
        lambda other: other.tolist(),
        lambda other: other.data.numpy().sum(),
        lambda other: float(np.asarray(other.detach()).sum()),
        str,
        lambda other: bool((other > 0).all()),
        lambda other: torch.save(other, "/dev/null"),
        lambda other: other.detach().clone(),
    ],
)
def test_what_is_read_in_any_way_is_used(read: Callable[[torch.Tensor], Any]) -> None:
    assert headed(read) == []


def kept_boxes(boxes: torch.Tensor) -> torch.Tensor:
    """As those who suppress boxes that lie over better ones write it: sizes decide how long it goes on."""
    order, keep = boxes[:, 0].argsort(), []
    while len(order) > 0:
        best = order[0]
        keep.append(best)
        order = order[1:]
        if order.numel() == 0:
            break
        order = order[(boxes[order] - boxes[best]).abs().sum(1) > 1]
    return boxes[torch.stack(keep)]


def test_what_only_decides_sizes_and_parts_of_what_nobody_reads_is_told() -> None:
    assert headed(lambda other: kept_boxes(other.detach())) == []  # it lives on
    functions = {one["function"] for one in headed(lambda other: len([kept_boxes(other.detach())]))}
    assert functions == {"kept_boxes", "Encoder.forward"}


def rises(found: torch.Tensor) -> int:
    seen = 0
    if len(found) > 0:
        seen += 1
    return seen


def fails(found: torch.Tensor) -> None:
    assert found.shape[0] > 0


def prints(found: torch.Tensor) -> None:
    if found.size(0) < 100:
        print("few")


def marks(found: torch.Tensor) -> None:
    BANK[found] = 1.0


@pytest.mark.parametrize(
    "read",
    [
        lambda other: len(kept_boxes(other.detach())),
        lambda other: (other > 0).nonzero().shape[0],
        lambda other: 2 * other[other > 0].numel(),
        lambda other: fails(torch.unique(other)),
        lambda other: rises(other.masked_select(other > -100)),
        lambda other: prints(other[other > 0]),
        lambda other: [*range(other.numel())][other.argmax()],  # a list's index
        lambda other: torch.arange(ROWS * WIDTH)[other.argmax()],  # a part that lives on
        lambda other: torch.arange(ROWS * WIDTH)[: other.argmax() + 1].numel(),
        lambda other: torch.zeros(ROWS * WIDTH).index_fill_(0, other.argmax(), 1.0),
        lambda other: other[other[:, 0].argmax()],
        lambda other: BANK[other.argmax()],
        lambda other: marks(other.argmax()),
    ],
)
def test_what_a_size_or_an_index_tells_python_is_used(read: Callable[[torch.Tensor], Any]) -> None:
    assert headed(read) == []


def test_writing_to_what_was_there_before_is_a_use() -> None:
    norm, memory_bank, x = nn.BatchNorm1d(WIDTH), torch.zeros(ROWS, WIDTH), torch.randn(ROWS, WIDTH)

    def step() -> None:
        memory_bank.copy_(norm(x) * 2)

    quiet(looked(step, norm), "never_used")


def test_methods_of_tensors_are_put_back_and_nothing_is_kept_alive() -> None:
    names = ("numpy", "tolist", "__array__", "data_ptr", "shape", "size", "__len__")
    before = {name: torch.Tensor.__dict__.get(name) for name in names}
    watcher = followed()
    watcher.opens()
    ones = torch.ones(4)
    watcher.see(Ran(torch.ops.aten.nonzero, (ones,), {}, ones.nonzero(), in_backward=False, seconds=1.0))
    now = {name: torch.Tensor.__dict__.get(name) for name in names}
    assert all(now[name] is not before[name] for name in names)
    del watcher
    assert {name: torch.Tensor.__dict__.get(name) for name in before} == before
    gone = []
    x = torch.randn(ROWS, WIDTH)

    def step() -> None:
        made = x * 2
        weakref.finalize(made, gone.append, 1)
        del made
        assert gone == [1]

    looked(step)


def test_sparse_complex_and_operators_on_devices_are_borne() -> None:
    x = torch.randn(ROWS, WIDTH)
    sparse = torch.eye(ROWS).to_sparse()
    looked(lambda: [torch.fft.fft(x).conj().abs(), torch.view_as_real(torch.fft.rfft(x)), torch.sparse.mm(sparse, x)])
    watcher = followed()
    watcher.opens()
    watcher.see(Ran(torch.ops.aten.mm, (x, x.T), {}, x @ x.T, in_backward=False, seconds=None))
    assert "device" in watcher.why_not and torch.Tensor.__dict__.get("tolist") is None


def normalised(places: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """A graph's adjacency as many scripts make it: each edge by its nodes' numbers of neighbours."""
    graph = torch.sparse_coo_tensor(places, weights, (ROWS, ROWS), check_invariants=False).coalesce()
    degrees = torch.sparse.sum(graph, 1).to_dense().clamp(min=1).rsqrt()
    at = graph.indices()
    scaled = graph.values() * degrees[at[0]] * degrees[at[1]]
    return torch.sparse_coo_tensor(at, scaled, (ROWS, ROWS), check_invariants=False).coalesce()


def edges() -> torch.Tensor:
    return torch.stack((torch.arange(ROWS), torch.arange(ROWS).roll(1)))


def test_the_same_sparse_tensor_made_twice_is_told_to_its_last_operator() -> None:
    layer, x, places, weights = nn.Linear(WIDTH, WIDTH), torch.randn(ROWS, WIDTH), edges(), torch.rand(ROWS)

    def again() -> torch.Tensor:
        out = torch.sparse.mm(normalised(places, weights), layer(x))
        return torch.sparse.mm(normalised(places, weights), out).square().sum()

    def once() -> torch.Tensor:
        graph = normalised(places, weights)
        return torch.sparse.mm(graph, torch.sparse.mm(graph, layer(x))).square().sum()

    told = looked(trained(again), layer)
    (one,) = told["computed_again"]
    assert one["operators"] >= 10 and "normalised(places, weights)" in one["text"]
    quiet(looked(trained(once), layer))


@pytest.mark.filterwarnings("ignore:Sparse CS. tensor support is in beta state")
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc])
def test_sparse_tensors_of_other_numbers_places_and_shapes_are_not_the_same(layout: torch.layout) -> None:
    x, dense = torch.randn(ROWS, WIDTH), torch.eye(ROWS)
    bases = [one.to_sparse(layout=layout) for one in (dense, dense.roll(1, 0), 2 * dense)]
    quiet(looked(lambda: [one @ x for one in bases]), "computed_again")
    (told,) = looked(lambda: [bases[0] @ x, bases[0] @ x])["computed_again"]
    assert told["operators"] == 1

    def written() -> list[torch.Tensor]:
        before = bases[0] @ x
        bases[0].values().mul_(2)
        return [before, bases[0] @ x]

    quiet(looked(written), "computed_again")


def test_written_sparse_tensors_are_not_what_they_were() -> None:
    x, places, weights = torch.randn(ROWS, WIDTH), edges(), torch.rand(ROWS)

    def step() -> list[torch.Tensor]:
        graph = torch.sparse_coo_tensor(places, weights, (ROWS, ROWS), check_invariants=False)
        before = graph @ x
        graph.mul_(3)
        middle = graph @ x
        graph.add_(torch.eye(ROWS).to_sparse())
        return [before, middle, graph @ x]

    quiet(looked(step), "computed_again")


def test_a_sparse_tensor_of_nothing_but_numbers_is_a_constant() -> None:
    layer, x = nn.Linear(WIDTH, WIDTH), torch.randn(ROWS, WIDTH)

    def loss() -> torch.Tensor:
        graph = torch.sparse_coo_tensor(edges(), torch.ones(ROWS), (ROWS, ROWS), check_invariants=False).coalesce()
        return torch.sparse.mm(graph, layer(x)).square().sum()

    told = looked(trained(loss), layer)
    assert any(".coalesce()" in one["text"] for one in told["constants_made"])


def test_what_one_call_of_torch_makes_for_itself_is_no_constant_of_the_user_s() -> None:
    layer, x = nn.Linear(WIDTH, WIDTH), torch.randn(ROWS, WIDTH)
    graph = torch.eye(ROWS).to_sparse()
    # It adds the product to zeros of its own.
    quiet(looked(trained(lambda: torch.sparse.mm(graph, layer(x)).square().sum()), layer))
    told = looked(trained(lambda: torch.sparse.addmm(torch.zeros(ROWS, WIDTH), graph, layer(x)).square().sum()), layer)
    assert [one["operators"] for one in told["constants_made"]] == [1]


def test_time_of_operators_that_nobody_is_shown_is_the_step_s() -> None:
    x, own = torch.randn(ROWS, WIDTH), OfItsOwn(torch.randn(ROWS, WIDTH))
    watcher = followed()
    with shown_to(watcher):
        torch.add(x.exp(), own)
    assert watcher.told is not None and watcher.forward_s == 2


class OfItsOwn(torch.Tensor):
    """A tensor that does its operators itself."""

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> OfItsOwn:
        made = torch.Tensor._make_wrapper_subclass(cls, inner.shape)
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*[one.inner if isinstance(one, OfItsOwn) else one for one in args], **(kwargs or {}))


def test_sizes_of_what_has_no_memory_of_its_own_are_borne() -> None:
    x, own = torch.randn(ROWS, WIDTH), OfItsOwn(torch.randn(ROWS, WIDTH))
    others = torch.eye(ROWS).to_sparse(), torch.empty(4, device="meta"), own

    def step() -> list[Any]:
        found = x[x > 0]
        return [(len(one), one.shape, one.numel(), one.size()) for one in (found, *others)]

    quiet(looked(step), "never_used")


def test_what_is_read_by_operators_that_are_not_shown_is_used() -> None:
    x, own = torch.randn(ROWS, WIDTH), OfItsOwn(torch.randn(ROWS, WIDTH))
    weight = torch.randn(4, requires_grad=True)

    def step() -> Any:
        kept = torch.add(x.exp(), own)
        return kept, trained(lambda: weight.square().sum())()  # backward looks for what has gone

    quiet(looked(step), "never_used")


def test_gradients_and_random_draws_are_those_of_a_step_that_nobody_followed() -> None:
    outcomes = []
    for followed in (False, True):
        torch.manual_seed(3)
        model, x = Two(again=True, dropout=0.5), torch.randn(ROWS, WIDTH)
        step = trained(lambda model=model, x=x: model(x) + table(WIDTH).sum())
        if followed:
            looked(step, model)
        else:
            step()
        outcomes.append([*(one.grad for one in model.parameters()), torch.rand(4)])
    assert all(torch.equal(one, other) for one, other in zip(*outcomes, strict=True))
