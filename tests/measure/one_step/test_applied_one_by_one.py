"""Which layers are told as applied one by one, where one call for all of them would do."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint

from perf_diagnostics.measure.one_step import applied_one_by_one as module
from perf_diagnostics.measure.one_step import operator_graph, rows_at_once
from perf_diagnostics.measure.one_step.applied_one_by_one import SIGNAL
from perf_diagnostics.measure.one_step.dispatch_mode import OperatorMode
from perf_diagnostics.measure.one_step.every_watcher import watchers_of
from perf_diagnostics.measure.one_step.operator_graph import Operation
from perf_diagnostics.measure.one_step.rows_at_once import Kind, Took, took_s
from perf_diagnostics.measure.one_step.tried_again import Like
from perf_diagnostics.measure.one_step.watcher import Ran
from tests.measure.one_step.looking import Loss, looked_at
from tests.measure.one_step.test_needless_operators import told, trained


@pytest.fixture(autouse=True)
def _by_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each operator takes a second, and so does a call however many rows it has, there and back."""
    monkeypatch.setattr(operator_graph, "seconds_or_bytes", lambda _ran: 1.0)
    monkeypatch.setattr(rows_at_once, "took_s", lambda _kind, _rows, calls: Took(1.0 * calls, 1.0 * calls))
    for name in ("_BUDGET_S", "_OFTEN_S"):
        monkeypatch.setattr(module, name, 1e9)


class Decoder(nn.Module):
    """A recurrence, with a projection that it does not need."""

    def __init__(self, feeds_back: bool = False, reads: bool = False) -> None:
        super().__init__()
        self.cell, self.out = nn.Linear(8, 8), nn.Linear(8, 8)
        self.feeds_back, self.reads = feeds_back, reads

    def forward(self, h: torch.Tensor, passes: int = 6) -> torch.Tensor:
        logits = []
        for _ in range(passes):
            h = torch.tanh(self.cell(h))
            made = self.out(h)
            logits.append(made)
            if self.feeds_back:
                h = h + made
            if self.reads and float(made.detach().sum()) > 1e9:
                break
        return torch.stack(logits, 1).exp().sum()


def decoded(**options: Any) -> Loss:
    decoder, start = Decoder(**options), torch.randn(4, 8)
    return lambda: decoder(start)


def test_a_projection_in_a_loop_that_does_not_need_it_is_told_at_its_line() -> None:
    (one,) = told(SIGNAL, decoded())
    assert one["text"] == "made = self.out(h)" and one["function"].endswith("Decoder.forward")
    assert (one["calls"], one["together"], one["rows"], one["weights"]) == (6, 6, 4, 1)
    assert one["shape"] == [8, 8] and one["beside_needing"] is False


def test_the_share_is_what_one_call_for_all_saves() -> None:
    """Six calls take as long as six of any operators, and one of all rows as one."""
    weights = [trained(8, 8) for _ in range(2)]
    rows = [torch.randn(4, 8) for _ in range(6)]

    def loss() -> torch.Tensor:
        made = [one @ weights[0] for one in rows]
        return (torch.cat(made) @ weights[1]).sum()

    (one,) = told(SIGNAL, loss)
    # In forward mm comes six times, then cat, mm and sum.
    assert one["forward"] == pytest.approx(6 * (5 / 6) / 9)
    assert one["calls"] == 6 and 0 < one["backward"] < 1


def test_what_puts_the_results_together_is_saved_as_far_as_the_rows_are_narrower() -> None:
    weight, rows = trained(8, 80), [torch.randn(4, 8) for _ in range(6)]

    def loss(others: int) -> torch.Tensor:
        made = [one @ weight for one in rows]
        return torch.cat(made).sum() + sum((made[at].sum() for at in range(others)), torch.zeros(()))

    (one,) = told(SIGNAL, lambda: loss(0))
    assert one["forward"] == pytest.approx((5 + 0.9) / 10)  # mm six times, cat, sum, and the zeros that are added
    (read_by_others,) = told(SIGNAL, lambda: loss(1))
    assert read_by_others["forward"] == pytest.approx(5 / 12)


def test_calls_of_unlike_many_rows_are_tried_as_in_the_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    tries = []

    def took(_kind: Any, rows: int, calls: int) -> Took:
        tries.append((rows, calls))
        return Took(1.0 * calls, 0.0)

    monkeypatch.setattr(rows_at_once, "took_s", took)
    weight = trained(8, 8)
    rows = [torch.randn(count, 8) for count in (2, 4, 6, 8)]
    (one,) = told(SIGNAL, lambda: torch.cat([one @ weight for one in rows]).sum())
    assert one["rows"] == 8 and {*tries} == {(5, 4), (20, 1)}


@pytest.mark.parametrize(("others", "tells"), [(60, True), (1000, False)])
def test_what_takes_little_of_the_step_is_not_looked_at(others: int, tells: bool) -> None:
    weight, rows = torch.randn(8, 8), torch.randn(4, 8)
    other = trained(4)

    def loss() -> torch.Tensor:
        made = torch.stack([rows @ weight for _ in range(4)]).sum()
        return made + sum((other.detach().neg().sum() for _ in range(others // 3)), other.sum())

    assert len(told(SIGNAL, loss)) == tells


def test_on_a_device_nothing_is_tried() -> None:
    watcher = next(one for one in watchers_of([]) if isinstance(one, module.AppliedOneByOne))
    x = torch.ones(2, 2)
    ran = Ran(torch.ops.aten.mm, (x, x), {}, x @ x, in_backward=False, seconds=None)
    watcher.see_operation(Operation(ran.operator, (), 4, is_view=False, forward=1.0), ran)
    assert "on a device" in watcher.why_not


def test_what_the_loop_needs_and_what_python_decides_by_is_not_told() -> None:
    for options in ({"feeds_back": True}, {"reads": True}):
        assert told(SIGNAL, decoded(**options)) == []


def test_what_is_read_by_numpy_may_decide_as_well() -> None:
    layer, x = nn.Linear(8, 8), torch.randn(4, 8)

    def loss(reads: bool) -> torch.Tensor:
        total = torch.zeros(())
        for _ in range(5):
            made = layer(x)
            total = total + made.exp().sum()
            if reads and made.detach().numpy().max() > 1e9:
                break
        return total

    assert told(SIGNAL, lambda: loss(reads=True)) == []
    assert len(told(SIGNAL, lambda: loss(reads=False))) == 1


def test_three_calls_are_few() -> None:
    decoder, start = Decoder(), torch.randn(4, 8)
    assert told(SIGNAL, lambda: decoder(start, passes=3)) == []
    assert len(told(SIGNAL, lambda: decoder(start, passes=4))) == 1


class Frames(nn.Module):
    """An encoder that sees the frames of a clip one after the other, or all at once."""

    def __init__(self, depth: int = 1) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3)
        self.depth = depth

    def encoded(self, frame: torch.Tensor) -> torch.Tensor:
        made = torch.relu(self.first(frame))
        for _ in range(self.depth):
            made = torch.relu(self.second(functional.pad(made, (1, 1, 1, 1))))
        return made.mean((2, 3))

    def forward(self, clip: torch.Tensor) -> torch.Tensor:
        return torch.stack([self.encoded(clip[:, at]) for at in range(clip.shape[1])], 1).exp().sum()


def test_an_encoder_of_single_frames_is_told_once_where_the_loop_is() -> None:
    frames, clip = Frames(), torch.randn(2, 5, 3, 8, 8)
    (one,) = told(SIGNAL, lambda: frames(clip))
    assert "self.encoded(clip[:, at]) for at" in one["text"]
    assert (one["calls"], one["together"], one["rows"], one["weights"]) == (5, 5, 2, 2)


def test_of_a_layer_that_is_applied_to_its_own_result_only_the_frames_count() -> None:
    frames, clip = Frames(depth=3), torch.randn(2, 5, 3, 8, 8)
    (one,) = told(SIGNAL, lambda: frames(clip))
    assert (one["calls"], one["together"], one["weights"]) == (15, 5, 2)
    assert told(SIGNAL, lambda: frames(clip[:, :1])) == []


def test_words_that_are_embedded_one_by_one_are_told() -> None:
    table, words = nn.Embedding(50, 8), torch.randint(50, (4, 6))

    def loss() -> torch.Tensor:
        h = torch.zeros(4, 8)
        for at in range(6):
            h = torch.tanh(h + table(words[:, at]))
        return h.exp().sum()

    (one,) = told(SIGNAL, loss)
    assert one["shape"] == [50, 8] and one["calls"] == 6
    assert told(SIGNAL, lambda: table(words).exp().sum()) == []


def test_words_of_which_the_model_chooses_the_next_are_not() -> None:
    table = nn.Embedding(50, 8)

    def loss() -> torch.Tensor:
        word, total = torch.zeros(4, dtype=torch.long), torch.zeros(())
        for _ in range(6):
            made = table(word)
            total, word = total + made.exp().sum(), made.argmax(-1)
        return total

    assert told(SIGNAL, loss) == []


def test_weights_that_differ_are_not_one_layer() -> None:
    weight, other, x = trained(8, 8), trained(8, 8), torch.randn(4, 8)

    def made_anew() -> torch.Tensor:
        return torch.stack([x @ (weight * at) for at in range(5)]).exp().sum()

    def written_over() -> torch.Tensor:
        kept, made = torch.zeros(8, 8), []
        with torch.no_grad():
            for at in range(5):
                kept.fill_(at)
                made.append(x @ kept)
        return (torch.stack(made) @ other).exp().sum()

    def of_their_own() -> torch.Tensor:
        return torch.stack([x @ one for one in weight.unbind(0)[0].expand(5, 8, 8) + weight]).exp().sum()

    for loss in (made_anew, written_over, of_their_own):
        assert told(SIGNAL, loss) == [], loss.__name__


def test_calls_on_both_sides_of_a_backward_are_not_one() -> None:
    weight, x = trained(8, 8), torch.randn(4, 8)
    mode = OperatorMode(watchers_of([weight]))
    mode.open()
    for _ in range(3):
        loss = torch.stack([x @ weight for _ in range(2)]).exp().sum()
        mode.enter_backward()
        loss.backward()
        mode.leave_backward()
    mode.close()
    facts, gaps = mode.conclude()
    assert facts[SIGNAL] == [] and SIGNAL not in gaps


def test_calls_that_are_written_out_are_told_at_one_of_them() -> None:
    layer, rows = nn.Linear(8, 8), [torch.randn(4, 8) for _ in range(4)]

    def loss() -> torch.Tensor:
        first = layer(rows[0])
        second = layer(rows[1])
        third = layer(rows[2])
        fourth = layer(rows[3])
        return (first + second + third + fourth).exp().sum()

    (one,) = told(SIGNAL, loss)
    assert "= layer(rows[" in one["text"] and one["calls"] == 4


@pytest.mark.parametrize("part", [0.79, 0.81])
def test_what_one_call_hardly_saves_is_not_told(monkeypatch: pytest.MonkeyPatch, part: float) -> None:
    def took(_kind: Any, rows: int, calls: int) -> Took:
        return Took(calls * (1.0 if rows == 4 else 6 * part), 0.0)

    monkeypatch.setattr(rows_at_once, "took_s", took)
    assert len(told(SIGNAL, decoded())) == (part < 0.8)


@pytest.mark.parametrize(("alone", "saves"), [(1.0, 5.0), (0.5, 4.0), (2.0, 5.0)])
def test_the_less_counts_of_what_is_tried_and_of_what_the_step_took(
    monkeypatch: pytest.MonkeyPatch, alone: float, saves: float
) -> None:
    """A call took a second in the step: one by itself is tried in 0.5 s there, or in two; and one of all in one."""
    weight, rows = trained(8, 8), [torch.randn(4, 8) for _ in range(6)]

    def took(_kind: Any, rows: int, calls: int) -> Took:
        return Took(calls * (alone if rows == 4 else 1.0), 0.0)

    monkeypatch.setattr(rows_at_once, "took_s", took)
    (one,) = told(SIGNAL, lambda: torch.cat([one @ weight for one in rows]).sum())
    assert one["forward"] == pytest.approx(saves / 8)


@pytest.mark.parametrize(
    ("name", "value", "why"), [("_BUDGET_S", 10.0, "takes long"), ("_MOST_BYTES", 1000, "take much memory")]
)
def test_what_takes_long_or_much_room_is_told_as_not_tried(
    monkeypatch: pytest.MonkeyPatch, name: str, value: float, why: str
) -> None:
    monkeypatch.setattr(module, name, value)
    (one,) = told(SIGNAL, decoded())
    assert why in one["untried"] and one["whole"] == 0 and one["text"] == "made = self.out(h)"
    monkeypatch.setattr(module, "_LEAST_UNTRIED", 0.5)  # of all, which it is not
    assert told(SIGNAL, decoded()) == []


def test_what_fails_when_it_is_tried_and_what_takes_long_to_follow_are_told_as_not_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(_kind: Any, _rows: int, _calls: int) -> Took:
        raise RuntimeError("not for these values")

    with monkeypatch.context() as change:
        change.setattr(rows_at_once, "took_s", fails)
        (one,) = told(SIGNAL, decoded())
        assert "trying them failed (RuntimeError: not for these values)" in one["untried"]
    monkeypatch.setattr(module, "_MOST_LOOKS", 0)
    (needed,) = [one for one in told(SIGNAL, decoded()) if "untried" in one]
    assert needed["text"] == "h = torch.tanh(self.cell(h))" and "takes long to follow" in needed["untried"]


def test_dear_calls_are_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tries = []

    def took(_kind: Any, rows: int, calls: int) -> Took:
        tries.append((rows, calls))
        return Took(1.0 * calls, 0.0)

    monkeypatch.setattr(rows_at_once, "took_s", took)
    for often, expected in ((1e9, [(4, 4), (24, 1)] * 3), (1.0, [(4, 1), (24, 1), (4, 1)])):
        tries.clear()
        monkeypatch.setattr(module, "_OFTEN_S", often)
        assert len(told(SIGNAL, decoded())) == 1 and tries == expected


def _tried() -> dict[str, Callable[[], torch.Tensor]]:
    x, image, words = trained(4, 8), trained(2, 3, 8, 8), torch.randint(50, (4,))
    linear, plain, conv, table = nn.Linear(8, 5), nn.Linear(8, 5, bias=False), nn.Conv2d(3, 4, 3), nn.Embedding(50, 8)
    untrained = nn.Linear(8, 5).requires_grad_(False)
    return {
        "linear": lambda: linear(x),
        "no bias": lambda: plain(x),
        "convolution": lambda: conv(image),
        "embedding": lambda: table(words),
        "frozen": lambda: untrained(x.detach()) + x[:, :5],
    }


@pytest.mark.parametrize("name", _tried())
def test_both_are_really_tried(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """How long each takes is another matter."""
    monkeypatch.undo()
    tried = []

    def tries(kind: Any, rows: int, calls: int) -> Took:
        forward, backward = took_s(kind, rows, calls)
        assert forward >= 0 and backward >= 0
        tried.append((rows, calls))
        return Took(1.0 * calls, 1.0 * calls)

    monkeypatch.setattr(operator_graph, "seconds_or_bytes", lambda _ran: 1.0)
    for name_of in ("_BUDGET_S", "_OFTEN_S"):
        monkeypatch.setattr(module, name_of, 1e9)
    monkeypatch.setattr(rows_at_once, "took_s", tries)
    call = _tried()[name]
    (one,) = told(SIGNAL, lambda: torch.stack([call() for _ in range(6)]).exp().sum())
    rows = one["rows"]
    assert tried == [(rows, 4), (6 * rows, 1)] * 3 and one["calls"] == 6


def test_several_lines_are_told_at_that_of_most_calls() -> None:
    layer, rows = nn.Linear(8, 8), torch.randn(4, 8)

    def loss() -> torch.Tensor:
        total = layer(rows).sum()
        for _ in range(4):
            total = total + layer(rows).exp().sum()
        return total

    (one,) = told(SIGNAL, loss)
    assert one["calls"] == 5 and "total + layer(rows)" in one["text"]


class Mapped(nn.Module):
    """``map`` has no line of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.last = nn.Linear(8, 8), nn.Linear(8, 8)

    def encoded(self, rows: torch.Tensor) -> torch.Tensor:
        made = self.layer(rows)
        return self.last(torch.relu(made))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return torch.stack(list(map(self.encoded, rows))).exp().sum()


def test_without_a_loop_in_the_model_the_trainings_is_not_meant() -> None:
    model, rows = Mapped(), torch.randn(5, 4, 8)
    mode = OperatorMode(watchers_of([*model.parameters()]))
    for _ in range(1):
        mode.open()
        mode.model_called(begins=True)
        loss = model(rows)
        mode.model_called(begins=False)
        mode.enter_backward()
        loss.backward()
        mode.close()
    (one,) = mode.conclude()[0][SIGNAL]
    assert one["text"].startswith("return torch.stack(list(map(") and one["weights"] == 2


def test_the_input_of_a_cell_is_told_beside_what_needs_the_state() -> None:
    cell, words = nn.GRUCell(8, 8), torch.randn(6, 4, 8)

    def loss() -> torch.Tensor:
        state = torch.zeros(4, 8)
        for word in words:
            state = cell(word, state)
        return state.exp().sum()

    (one,) = told(SIGNAL, loss)
    assert one["beside_needing"] is True and one["weights"] == 1 and one["calls"] == 6


def _needing() -> dict[str, Loss]:
    """Each call needs the one before, in a way of its own."""
    net, x, y = nn.Linear(8, 8), torch.randn(4, 8), torch.randint(8, (4,))
    sparse = torch.eye(4).to_sparse()

    def by_derivatives() -> torch.Tensor:
        near = x
        for _ in range(5):
            near = near.detach().requires_grad_()
            (slope,) = torch.autograd.grad(functional.cross_entropy(net(near), y), [near])
            near = near + 0.01 * slope.sign()
        return functional.cross_entropy(net(near), y)

    def by_sparse_products() -> torch.Tensor:
        h = x
        for _ in range(5):
            h = torch.tanh(torch.sparse.mm(sparse, net(h)))
        return h.exp().sum()

    def by_lists_written_into() -> torch.Tensor:
        h, total = x.clone(), torch.zeros(())
        for _ in range(5):
            made = net(h)
            total = total + made.exp().sum()
            h = h.clone()
            torch._foreach_add_([h], [made.detach()])
        return total

    def by_what_is_equal() -> torch.Tensor:
        total = torch.zeros(())
        for _ in range(5):
            made = net(x)
            total = total + made.exp().sum()
            if torch.equal(made, x):
                break
        return total

    def by_how_many() -> torch.Tensor:
        total = torch.zeros(())
        for _ in range(5):
            made = net(x)
            total = total + made.exp().sum()
            if len(made[made > 1e9]):
                break
        return total

    def by_another_layout() -> torch.Tensor:
        h, total = x, torch.zeros(())
        for _ in range(5):
            made = net(h)
            total = total + made.exp().sum()
            h = made.detach().to_mkldnn().relu().to_dense()
        return total

    found = (by_derivatives, by_sparse_products, by_lists_written_into, by_what_is_equal, by_how_many)
    layouts = (by_another_layout,) if torch.backends.mkldnn.is_available() else ()
    return {one.__name__: one for one in (*found, *layouts)}


@pytest.mark.parametrize("name", _needing())
def test_calls_that_need_the_one_before_are_not_told(name: str) -> None:
    assert told(SIGNAL, _needing()[name]) == []


def test_what_ran_unseen_between_calls_may_be_needed() -> None:
    weight, x = trained(8, 8), torch.randn(4, 8)
    mode = OperatorMode(watchers_of([weight]))
    total = torch.zeros(())
    for _ in range(5):
        mode.open()
        made = functional.conv1d(x[:, :, None], weight[:, :, None])
        total = total + made.exp().sum()
        mode.close()
        x = made.detach()[..., 0] / 2
    mode.open()
    mode.enter_backward()
    total.backward()
    mode.close()
    assert mode.conclude()[0][SIGNAL] == []


def test_weights_that_lists_are_written_over_differ() -> None:
    conv, x = nn.Conv1d(8, 8, 1), torch.randn(4, 8, 3)

    def loss(factor: float | None) -> torch.Tensor:
        total = torch.zeros(())
        for _ in range(5):
            total = total + conv(x).exp().sum()
            if factor is not None:
                torch._foreach_mul_([conv.weight.data], factor)
        return total

    assert told(SIGNAL, lambda: loss(0.5)) == []
    assert len(told(SIGNAL, lambda: loss(None))) == 1


def test_calls_without_a_gradient_are_others() -> None:
    layer, x = nn.Linear(8, 8), torch.randn(4, 8)

    def loss() -> torch.Tensor:
        with torch.no_grad():
            target = layer(x) + layer(-x)
        return (layer(x) + layer(-x) - target).square().sum()

    assert told(SIGNAL, loss) == []


def test_rows_of_which_only_some_ask_for_a_gradient_are_one_layers() -> None:
    layer, state = nn.Linear(8, 8), trained(4, 8)
    rows = [torch.randn(4, 8) for _ in range(6)]
    (one,) = told(SIGNAL, lambda: torch.stack([layer(x + state if x is rows[0] else x) for x in rows]).exp().sum())
    assert one["calls"] == 6


def test_chunks_of_a_checkpoint_are_apart_on_purpose() -> None:
    layer, x = nn.Linear(8, 80), trained(24, 8)

    def apart(rows: torch.Tensor) -> torch.Tensor:
        return layer(rows).logsumexp(-1).sum()

    chunks = x.detach().chunk(6)
    kept = torch.zeros((), requires_grad=True)
    assert told(SIGNAL, lambda: sum((checkpoint(apart, one, use_reentrant=False) for one in chunks), kept)) == []
    assert len(told(SIGNAL, lambda: sum((apart(one) for one in chunks), kept))) == 1


def test_one_weight_on_rows_of_two_sizes_is_one_layer() -> None:
    conv, small, large = nn.Conv2d(3, 4, 3), torch.randn(2, 3, 6, 6), torch.randn(2, 3, 8, 8)
    views = [small] * 4 + [large] * 4
    (one,) = told(SIGNAL, lambda: sum((conv(view).exp().sum() for view in views), torch.zeros(())))
    assert (one["weights"], one["calls"]) == (1, 4)


def test_results_that_are_put_together_count_once_for_two_layers() -> None:
    """Both layers' calls are read by one ``cat``."""
    one, other, rows = trained(8, 80), trained(8, 80), [torch.randn(4, 8) for _ in range(4)]
    (line,) = told(SIGNAL, lambda: torch.cat([x @ w for x in rows for w in (one, other)]).sum())
    # Eight products, cat and sum: of four products each one is left, and a tenth of cat is.
    assert line["weights"] == 2 and line["forward"] == pytest.approx((2 * 3 + 0.9) / 10)


def test_the_sums_of_a_weights_gradients_are_its_calls() -> None:
    """They are made for its views: a product, its view, the view's and, but for the first, a sum for each call."""
    weight, x = trained(8, 8), torch.randn(4, 8)
    (one,) = told(SIGNAL, lambda: torch.stack([x @ weight.t() for _ in range(6)]).sum())
    (as_it_is,) = told(SIGNAL, lambda: torch.stack([x @ weight for _ in range(6)]).sum())
    assert one["backward"] > as_it_is["backward"] > 0.5


def test_a_sparse_tensor_that_is_copied_ends_no_look() -> None:
    layer, x, sparse = nn.Linear(4, 4), torch.randn(4, 4), torch.eye(4).to_sparse()

    def loss() -> torch.Tensor:
        return copy.deepcopy(sparse).to_dense().sum() + layer(x).sum()

    facts, gaps = looked_at(watchers_of([*layer.parameters()]), loss)
    assert {"computed_again", "never_used", SIGNAL} <= facts.keys() and not gaps


def test_what_the_user_has_under_way_is_not_told_of_what_is_tried() -> None:
    told_of: list[Any] = []

    class Functions(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            told_of.append(func)
            return func(*args, **(kwargs or {}))

    kind = Kind(torch.ops.aten.mm, (), Like((8, 8), (8, 1), torch.float32), (8,), torch.float32, True, True)
    with saved_tensors_hooks(told_of.append, told_of.append), torch.autocast("cpu"), torch.device("meta"), Functions():
        forward, backward = took_s(kind, 4, 2)
    assert forward >= 0 < backward and not told_of
