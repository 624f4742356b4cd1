"""Recurrent layers that read a sequence from its beginning again with each position more, and those that do not."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

from perf_diagnostics.integrations.shield import LoopObservations
from perf_diagnostics.measure.one_step import recurrent_again
from perf_diagnostics.measure.one_step.look import StepLook
from perf_diagnostics.measure.one_step.prefixes_again import SIGNAL, Grown
from perf_diagnostics.measure.one_step.recurrent_again import RecurrentAgain, _Call, _Line
from perf_diagnostics.measure.one_step.watcher import Ran

ROWS, HISTORY, HORIZON, HIDDEN = 3, 5, 6, 4

#: Calls of so many positions took so many seconds.
TIMES = ((10, 0.02), (20, 0.03), (30, 0.04), (40, 0.05))

Roll = Callable[["Forecaster", torch.Tensor], torch.Tensor]


class Forecaster(nn.Module):
    """Feeds what it predicts back in, as ``roll`` says."""

    def __init__(self, roll: Roll, kind: type[nn.RNNBase] = nn.GRU, **more: Any) -> None:
        super().__init__()
        self.roll = roll
        self.time = 1 if more.get("batch_first") else 0
        self.rnn = kind(2, HIDDEN, **more)
        self.out = nn.Linear(HIDDEN * (2 if more.get("bidirectional") else 1), 2)

    def next(self, states: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.out(states.narrow(self.time, -1, 1))
        return made

    def forward(self, history: torch.Tensor) -> torch.Tensor:
        return self.roll(self, history)


def drops_the_state(model: Forecaster, sequence: torch.Tensor) -> torch.Tensor:
    for _ in range(HORIZON):
        states, _ = model.rnn(sequence)  # the line that is told
        sequence = torch.cat([sequence, model.next(states)], model.time)
    return sequence


def looked_at(model: Forecaster) -> tuple[StepLook, LoopObservations]:
    torch.manual_seed(0)
    history = torch.randn((ROWS, HISTORY, 2) if model.time else (HISTORY, ROWS, 2))
    observations = LoopObservations()
    looks = StepLook(observations, lambda: [model])
    looks.begin(several=False)
    try:
        model(history).square().mean().backward()
    finally:
        looks.end()
    assert torch._C._len_torch_dispatch_stack() == 0
    return looks, observations


def told(model: Forecaster) -> list[Any]:
    looks, observations = looked_at(model)
    assert not [gap for gap in observations.gaps if gap.signal == SIGNAL]
    found = looks.facts[SIGNAL]
    assert isinstance(found, list)
    return found


@pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM, nn.RNN])
@pytest.mark.parametrize("batch_first", [False, True])
def test_positions_that_are_computed_again_are_counted(kind: type[nn.RNNBase], batch_first: bool) -> None:
    (one,) = told(Forecaster(drops_the_state, kind, batch_first=batch_first))
    # Calls of 5 to 10 positions, of which the first has none before it.
    assert (one["recurrent"], one["calls"], one["rows"], one["longest"]) == (kind.__name__, 5, ROWS, 10)
    assert one["positions"] == ROWS * sum(range(6, 11)) and one["positions_again"] == ROWS * sum(range(5, 10))
    assert (one["function"], "the line that is told" in one["text"]) == ("drops_the_state", True)
    assert 0 <= one["seconds_again_least"] <= one["seconds_again"] <= one["seconds_again_most"] < one["seconds"]


def test_forward_and_backward_are_those_of_the_layer() -> None:
    """What another layer takes is none of it."""

    def with_more_beside(model: Forecaster, sequence: torch.Tensor) -> torch.Tensor:
        other = torch.ones(600, 600, requires_grad=True)
        for _ in range(4):
            other = other @ other * 1e-3
        return drops_the_state(model, sequence).sum() + other.sum()

    (one,), (little,) = told(Forecaster(drops_the_state)), told(Forecaster(with_more_beside))
    for phase in ("forward", "backward"):
        assert 0.3 < one[phase] < 1 and 0 < little[phase] < one[phase]


def test_in_backward_a_call_has_the_nodes_that_its_forward_made(monkeypatch: pytest.MonkeyPatch) -> None:
    watcher, calls = RecurrentAgain(), [_Call(Grown(1, 3, 2)), _Call(Grown(1, 4, 3))]
    watcher._before, watcher._nodes = [10, 30], [(20, calls[0]), (30, calls[1])]  # the second one made none
    product = Ran(torch.ops.aten.mm, (), {}, None, in_backward=True, seconds=1.0)
    for node in (None, 10, 11, 20, 21, 30, 31):
        monkeypatch.setattr(recurrent_again, "backward_node", lambda node=node: node)
        watcher.see(product)
    assert [one.backward for one in calls] == [2.0, 0.0]


def test_without_gradients_nothing_is_of_backward() -> None:
    def roll(model: Forecaster, sequence: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            sequence = drops_the_state(model, sequence)
        return model.out(model.rnn(sequence)[0])

    (one,) = told(Forecaster(roll))
    assert one["calls"] == 5 and one["forward"] > 0 and one["backward"] == 0


def test_an_initial_state_that_stays_the_same_is_none_that_is_handed_on() -> None:
    def zeros_each_time(model: Forecaster, sequence: torch.Tensor) -> torch.Tensor:
        for _ in range(HORIZON):
            states, _ = model.rnn(sequence, torch.zeros(1, ROWS, HIDDEN))
            sequence = torch.cat([sequence, model.next(states)])
        return sequence

    assert len(told(Forecaster(zeros_each_time))) == 1


def _quiet() -> dict[str, Forecaster]:
    def carries(model: Forecaster, sequence: torch.Tensor) -> torch.Tensor:
        new, state = sequence, None
        for _ in range(HORIZON):
            states, state = model.rnn(new, state)
            new = model.next(states)
        return new

    def hands_on_and_reads_again(model: Forecaster, sequence: torch.Tensor) -> torch.Tensor:
        """No fault of this kind: the state makes another result of it."""
        state = None
        for _ in range(HORIZON):
            states, state = model.rnn(sequence, state)
            sequence = torch.cat([sequence, model.next(states)])
        return sequence

    def slides(model: Forecaster, sequence: torch.Tensor) -> torch.Tensor:
        for _ in range(HORIZON):
            states, _ = model.rnn(sequence[-HISTORY:])
            sequence = torch.cat([sequence, model.next(states)])
        return sequence

    def others(model: Forecaster, _: torch.Tensor) -> torch.Tensor:
        return torch.cat([model.rnn(torch.randn(HISTORY + n, ROWS, 2))[0] for n in range(HORIZON)])

    def more_rows(model: Forecaster, sequence: torch.Tensor) -> torch.Tensor:
        made = []
        for _ in range(HORIZON):
            made.append(model.rnn(sequence)[0])
            sequence = torch.cat([sequence, torch.randn(HISTORY, 1, 2)], 1)
        return torch.cat(made, 1)

    def looks_at_the_end_first(model: Forecaster, sequence: torch.Tensor) -> torch.Tensor:
        """What is new comes before what was there: nothing that is computed then is the same."""
        for _ in range(HORIZON):
            sequence = torch.cat([model.next(model.rnn(sequence)[0]), sequence])
        return sequence

    def packed(model: Forecaster, sequence: torch.Tensor) -> torch.Tensor:
        made = []
        for _ in range(HORIZON):
            lengths = torch.arange(len(sequence), len(sequence) - ROWS, -1)
            states, _ = model.rnn(pack_padded_sequence(sequence, lengths))
            made.append(states.data)
            sequence = torch.cat([sequence, torch.randn(1, ROWS, 2)])
        return torch.cat(made)

    def others_weights(model: Forecaster, sequence: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            for _ in range(HORIZON):
                sequence = torch.cat([sequence, model.next(model.rnn(sequence)[0])])
                model.rnn.weight_hh_l0.mul_(0.9)
        return model.out(model.rnn(sequence)[0])

    def one_call(model: Forecaster, sequence: torch.Tensor) -> torch.Tensor:
        return model.out(model.rnn(sequence)[0])

    def few(model: Forecaster, sequence: torch.Tensor) -> torch.Tensor:
        for _ in range(4):
            sequence = torch.cat([sequence, model.next(model.rnn(sequence)[0])])
        return sequence

    rolls = [carries, hands_on_and_reads_again, slides, others, more_rows, looks_at_the_end_first, packed]
    rolls += [others_weights, one_call, few]
    both_ways = Forecaster(drops_the_state, bidirectional=True)
    return {"both ways": both_ways, **{one.__name__: Forecaster(one) for one in rolls}}


@pytest.mark.parametrize("name", sorted(_quiet()))
def test_other_calls_are_not_told(name: str) -> None:
    assert told(_quiet()[name]) == []


def test_what_the_step_computes_stays_the_same_and_all_comes_off() -> None:
    torch.manual_seed(1)
    model = Forecaster(drops_the_state)
    looked_at(model)
    seen = [one.grad for one in model.parameters()]
    model.zero_grad()
    torch.manual_seed(0)
    model(torch.randn(HISTORY, ROWS, 2)).square().mean().backward()
    assert all(torch.equal(a, b.grad) for a, b in zip(seen, model.parameters(), strict=True))  # type: ignore[arg-type]
    assert model.rnn.__dict__.get("_compiled_call_impl") is None


def test_on_a_device_it_is_said_that_nothing_is_compared() -> None:
    def elsewhere(calls: int, model: Forecaster, sequence: torch.Tensor) -> torch.Tensor:
        for more in range(calls):
            with pytest.raises((RuntimeError, NotImplementedError)):  # for the weights lie elsewhere
                model.rnn(torch.zeros(HISTORY + more, ROWS, 2, device="meta"))
        return model.out(model.rnn(sequence)[0])

    for calls, gaps in ((1, []), (2, [True])):
        looks, observations = looked_at(Forecaster(partial(elsewhere, calls)))
        assert ["on a device" in gap.why for gap in observations.gaps if gap.signal == SIGNAL] == gaps
        assert (SIGNAL in looks.facts) is not bool(gaps)


def test_what_is_saved_is_what_earlier_positions_took() -> None:
    line = _Line({})
    # 10 ms however few positions, and 1 ms, 2 of 3 of it in backward, for each; 5 operators, and 2 for each.
    for positions, seconds in TIMES:
        grown = Grown(4, positions, positions - 2)
        line.calls.append(_Call(grown, 5 + 2 * positions, seconds / 3, seconds * 2 / 3))
    one = line.entry(0.1, 0.2)
    assert one is not None
    assert one["seconds"] == pytest.approx(0.14) and one["seconds_again"] == pytest.approx(0.1 - 4 * 0.002)
    # At the lower end 9 operators stay, each of which takes as long as one of the whole sequence.
    kept = [0.02 * 9 / 25, 0.03 * 9 / 45, 0.04 * 9 / 65, 0.05 * 9 / 85]
    assert one["seconds_again_least"] == pytest.approx(min(0.14 - sum(kept), 0.092))
    most = 0.02 * 8 / 10 + 0.03 * 18 / 20 + 0.04 * 28 / 30 + 0.05 * 38 / 40
    assert one["seconds_again_most"] == pytest.approx(most)
    assert one["forward"] == pytest.approx(0.092 / 3 / 0.1) and one["backward"] == pytest.approx(0.092 * 2 / 3 / 0.2)
    assert one["whole"] == pytest.approx(0.092 / 0.3)
    # Layers in one kernel have no more operators for more positions: 10 positions' time and 40 us an operator stay.
    for call in line.calls:
        call.operators = 50
    one = line.entry(0.1, 0.2)
    kept = [min(0.02, seconds * 12 / positions + 0.002) for positions, seconds in TIMES]
    assert one is not None and one["seconds_again_least"] == pytest.approx(0.14 - sum(kept))
    # Of lengths that are close to each other it is not known what a call takes however few positions it has.
    line.calls = line.calls[1:2] * 4
    one = line.entry(0.1, 0.2)
    assert one is not None and one["seconds_again"] == one["seconds_again_most"] == pytest.approx(0.12 * 18 / 20)
