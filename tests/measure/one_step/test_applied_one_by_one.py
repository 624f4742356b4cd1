"""Which layers are told as applied one by one, where one call for all of them would do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from perf_diagnostics.measure.one_step import applied_one_by_one as module
from perf_diagnostics.measure.one_step import operator_graph
from perf_diagnostics.measure.one_step.applied_one_by_one import SIGNAL
from perf_diagnostics.measure.one_step.dispatch_mode import OperatorMode
from perf_diagnostics.measure.one_step.every_watcher import watchers_of
from tests.measure.one_step.looking import Loss
from tests.measure.one_step.test_needless_operators import told, trained


@pytest.fixture(autouse=True)
def _by_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each operator takes a second, and so does a call however many rows it has, there and back."""
    monkeypatch.setattr(operator_graph, "seconds_or_bytes", lambda _ran: 1.0)
    monkeypatch.setattr(module, "_took", lambda _kind, _rows, calls: module._Took(1.0 * calls, 1.0 * calls))
    monkeypatch.setattr(module, "_BUDGET_S", 1e9)


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
    assert one["shape"] == [8, 8]


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


def test_calls_that_are_written_out_are_told_at_the_dearest_one() -> None:
    layer, rows = nn.Linear(8, 8), [torch.randn(4, 8) for _ in range(4)]

    def loss() -> torch.Tensor:
        first = layer(rows[0])
        second = layer(rows[1])
        third = layer(rows[2])
        fourth = layer(rows[3])
        return (first + second + third + fourth).exp().sum()

    (one,) = told(SIGNAL, loss)
    assert one["text"].endswith("= layer(rows[0])") and one["calls"] == 4


@pytest.mark.parametrize("part", [0.79, 0.81])
def test_what_one_call_hardly_saves_is_not_told(monkeypatch: pytest.MonkeyPatch, part: float) -> None:
    def took(_kind: Any, rows: int, calls: int) -> module._Took:
        return module._Took(rows * calls * (1.0 if rows == 4 else part), 0.0)

    monkeypatch.setattr(module, "_took", took)
    assert len(told(SIGNAL, decoded())) == (part < 0.8)


def test_what_takes_long_or_much_room_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("_BUDGET_S", 0.0), ("_MOST_BYTES", 1000)):
        with monkeypatch.context() as change:
            change.setattr(module, name, value)
            assert told(SIGNAL, decoded()) == []


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
    tried, took = [], module._took

    def tries(kind: Any, rows: int, calls: int) -> module._Took:
        forward, backward = took(kind, rows, calls)
        assert forward >= 0 and backward >= 0
        tried.append((rows, calls))
        return module._Took(1.0 * calls, 1.0 * calls)

    monkeypatch.setattr(module, "_took", tries)
    monkeypatch.setattr(module, "_LEAST_PART", 0.0)
    monkeypatch.setattr(module, "_BUDGET_S", 1e9)
    call = _tried()[name]
    (one,) = told(SIGNAL, lambda: torch.stack([call() for _ in range(6)]).exp().sum())
    rows = one["rows"]
    assert tried == [(rows, 4), (6 * rows, 1)] * 3 and one["calls"] == 6


def test_the_remedy_gives_the_same() -> None:
    torch.manual_seed(0)
    layer, rows = nn.Linear(8, 5), [torch.randn(4, 8) for _ in range(6)]
    apart = torch.stack([layer(one) for one in rows], 1)
    torch.testing.assert_close(layer(torch.stack(rows, 1)), apart)
