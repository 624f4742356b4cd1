"""Of which tensors it is told that their parts are taken one by one, and what taking them at once saves."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from perf_diagnostics.measure.one_step import parts_one_by_one
from perf_diagnostics.measure.one_step.every_watcher import watchers_of
from perf_diagnostics.measure.one_step.parts_one_by_one import SIGNAL, UNTRIED
from perf_diagnostics.measure.one_step.tried_again import Like
from perf_diagnostics.measure.one_step.watcher import Ran
from tests.measure.one_step.looking import Loss, looked_at
from tests.measure.one_step.test_needless_operators import told, trained

STEPS = 6

#: Seconds in forward and backward of one by one, and of all at once.
SLOW, QUICK = parts_one_by_one._Took(1.0, 8.0), parts_one_by_one._Took(1.0, 1.0)


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    kinds: list[Any] = []

    def took(do: Any, kind: Any) -> Any:
        kinds.append(kind)
        return SLOW if do is parts_one_by_one._one_by_one else QUICK

    monkeypatch.setattr(parts_one_by_one, "_took", took)
    monkeypatch.setattr("perf_diagnostics.measure.one_step.operator_graph.seconds_or_bytes", lambda _ran: 1e-3)
    return kinds


def _taken() -> dict[str, tuple[int, bool, Loss]]:
    """How many parts, whether they are rows, and a loss."""
    x, time_first = trained(4, STEPS, 8), trained(STEPS, 4, 8)

    def recurrent() -> torch.Tensor:
        state = torch.zeros(4, 8)
        given = x.exp()
        for t in range(STEPS):
            state = torch.tanh(given[:, t] + state)
        return state.sum()

    def backwards() -> torch.Tensor:
        given, state = time_first.exp(), torch.zeros(4, 8)
        for t in reversed(range(STEPS)):
            state = torch.tanh(given[t] + state)
        return state.sum()

    def slices() -> torch.Tensor:
        given = x.exp()
        return torch.stack([given[:, :, i * 2 : (i + 1) * 2].sin().sum() for i in range(4)]).sum()

    def narrowed() -> torch.Tensor:
        given = x.exp()
        return torch.stack([given.narrow(2, i, 1).sin().sum() for i in range(0, 8, 2)]).sum()

    return {
        "x[:, t]": (STEPS, True, recurrent),
        "x[t], backwards": (STEPS, True, backwards),
        "slices": (4, False, slices),
        "narrow, with gaps": (4, False, narrowed),
    }


@pytest.mark.parametrize("words", _taken())
def test_parts_that_a_loop_takes_are_told_with_the_first_line(words: str, tried: list[Any]) -> None:
    parts, single, loss = _taken()[words]
    (one,) = told(SIGNAL, loss)
    assert (one["parts"], one["single"], one["calls"]) == (parts, single, 1) and one["line"]
    # Seven of eight of the backward of these, and none of their forward.
    assert one["forward"] == 0 < one["backward"] < 1 and len(tried) == 6


def test_it_is_seven_of_eight_of_what_their_backward_takes(tried: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    x, backward = trained(4, STEPS, 8), []

    def counted(ran: Ran) -> float:
        backward.extend([ran.operator] if ran.in_backward else [])
        return 1e-3

    monkeypatch.setattr("perf_diagnostics.measure.one_step.operator_graph.seconds_or_bytes", counted)
    (one,) = told(SIGNAL, lambda: torch.stack([x[:, t] for t in range(STEPS)]).square().exp().sum())
    # One for each part, which makes it as large as all, and one for each that is added, of as many as there are.
    assert tried and one["parts"] == STEPS
    assert one["backward"] == pytest.approx(7 / 8 * (2 * STEPS - 1) / len(backward))


def _others() -> dict[str, Loss]:
    x, fixed = trained(4, STEPS, 8), torch.randn(4, STEPS, 8)

    def again() -> torch.Tensor:
        given = x.exp()
        return torch.stack([given[:, t] * given[:, t - 1] for t in range(1, STEPS)]).sum()

    def changed() -> torch.Tensor:
        # Of another tensor each, in the memory that the one before has left.
        return torch.stack([(x + 1.0)[:, t].sum() for t in range(STEPS)]).sum()

    def overlapping() -> torch.Tensor:
        given = x.exp()
        return torch.stack([given[:, t : t + 2].sin().sum() for t in range(STEPS - 1)]).sum()

    def every_second() -> torch.Tensor:
        given = x.exp()
        return torch.stack([given[:, :, 2 * t : 2 * t + 2 : 2].sin().sum() for t in range(4)]).sum()

    def without() -> torch.Tensor:
        with torch.no_grad():
            first = torch.stack([x[:, t] for t in range(STEPS)]).sum()
        return x.exp().sum() * first

    return {
        "at once": lambda: torch.stack([one.sin() for one in x.exp().unbind(1)]).sum(),
        "few": lambda: (x[:, 0] + x[:, 1] * x[:, 2]).exp().sum(),
        "without a gradient": lambda: (torch.stack([fixed[:, t] for t in range(STEPS)]) * x.exp().mean()).exp().sum(),
        "windows that overlap": overlapping,
        "taken twice": again,
        "of another each": changed,
        "under no_grad": without,
        "every second": every_second,
    }


@pytest.mark.usefixtures("tried")
@pytest.mark.parametrize("words", [one for one in _others() if one != "taken twice"])
def test_other_taking_is_not(words: str) -> None:
    assert told(SIGNAL, _others()[words]) == []


@pytest.mark.usefixtures("tried")
def test_tensors_in_the_same_memory_one_after_the_other_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts_one_by_one, "memory", lambda _tensor: 0)
    assert told(SIGNAL, _others()["of another each"]) == []


@pytest.mark.usefixtures("tried")
def test_a_part_that_is_taken_twice_is_had_from_the_same_list() -> None:
    (one,) = told(SIGNAL, _others()["taken twice"])
    assert one["parts"] == 2 * (STEPS - 1)


@pytest.mark.parametrize(("part", "tells"), [(0.85, False), (0.75, True)])
def test_what_is_nearly_as_long_is_not_told(
    tried: list[Any], monkeypatch: pytest.MonkeyPatch, part: float, tells: bool
) -> None:
    monkeypatch.setitem(globals(), "QUICK", parts_one_by_one._Took(1.0, part * SLOW.backward))
    assert bool(told(SIGNAL, _taken()["x[:, t]"][2])) is tells and tried


def test_what_there_was_no_time_to_try_is_told_as_such(tried: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts_one_by_one, "_BUDGET_S", 0.0)
    facts, gaps = looked_at(watchers_of([]), _taken()["x[:, t]"][2])
    assert facts[SIGNAL] == [] and SIGNAL not in gaps and tried == []
    assert 0.1 < float(str(facts[UNTRIED])) < 1


@pytest.mark.parametrize(
    ("dim", "single", "parts"),
    [
        (1, True, ((0, 1), (2, 3), (5, 6))),
        (0, True, tuple((t, t + 1) for t in range(4))),
        (2, False, ((0, 2), (2, 4), (4, 6), (6, 8))),
        (2, False, ((1, 2), (4, 6), (7, 8))),
        (1, False, ((0, 1), (1, 3), (4, 5))),
        (1, False, ((0, 1), (1, 3), (1, 3), (4, 5))),
        (1, True, ((0, 1), (2, 3), (2, 3))),
    ],
)
def test_at_once_are_the_same_parts_with_the_same_gradient(dim: int, single: bool, parts: Any) -> None:
    kind = parts_one_by_one._Kind(Like((4, STEPS, 8), (48, 8, 1), torch.float64), dim, single, parts)
    torch.manual_seed(0)
    whole = torch.randn(4, STEPS, 8, dtype=torch.float64, requires_grad=True)
    made = []
    for do in (parts_one_by_one._one_by_one, parts_one_by_one._at_once):
        taken = do(kind, whole)
        (gradient,) = torch.autograd.grad(sum((n + 1) * one.square().sum() for n, one in enumerate(taken)), whole)
        made.append(([one.detach() for one in taken], gradient))
    torch.testing.assert_close(*made)
    assert all(time >= 0 for time in parts_one_by_one._took(parts_one_by_one._at_once, kind))


@pytest.mark.parametrize("words", _taken())
def test_both_are_really_tried(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """How long each takes is another matter."""
    really, seen = parts_one_by_one._took, []

    def took(do: Any, kind: Any) -> Any:
        seen.append(really(do, kind))
        return SLOW if do is parts_one_by_one._one_by_one else QUICK

    monkeypatch.setattr(parts_one_by_one, "_took", took)
    (one,) = told(SIGNAL, _taken()[words][2])
    assert one["whole"] > 0 and len(seen) == 6


def test_a_recurrent_layer_takes_packed_sequences_apart_itself(tried: list[Any]) -> None:
    layer, given = torch.nn.GRU(8, 8, batch_first=True), trained(4, STEPS, 8)

    def packed() -> torch.Tensor:
        lengths = torch.tensor([STEPS, STEPS - 1, STEPS - 2, STEPS - 3])
        sequences = torch.nn.utils.rnn.pack_padded_sequence(given.exp(), lengths, batch_first=True)
        return layer(sequences)[0].data.sum()

    def by_hand() -> torch.Tensor:
        made = layer(given.exp())[0]
        return torch.stack([made[:, t].sin().sum() for t in range(STEPS)]).sum()

    assert any(one["packed"] for one in told(SIGNAL, packed))
    assert [one["packed"] for one in told(SIGNAL, by_hand)] == [False]
