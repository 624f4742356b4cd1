"""Calls of a step in another type: what is made again, and what is left of a call's time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from perf_diagnostics.measure.one_step.tried_again import Left, Tried, layer_of, left_of


def test_an_lstm_is_tried_as_a_whole_packed_or_not() -> None:
    lstm = nn.LSTM(3, 4, batch_first=True, dtype=torch.float64)
    options = {"input_size": 3, "hidden_size": 4, "num_layers": 1, "bias": True, "bidirectional": False, "proj_size": 0}
    known: dict[str, Any] = {"self": lstm, "input": torch.ones(2, 6, 3, dtype=torch.float64), "batch_sizes": None}
    layer = layer_of(known)
    assert (
        dict(layer.options) == {**options, "batch_first": True}
        and layer.shape == (2, 6, 3)
        and layer.dtype is torch.float64
    )
    packed = nn.utils.rnn.pack_sequence([torch.ones(6, 3), torch.ones(4, 3)])
    layer = layer_of({"self": lstm, "input": packed.data, "batch_sizes": packed.batch_sizes})
    assert dict(layer.options)["batch_first"] is False and layer.shape == (5, 2, 3)  # ten rows of two sequences


@pytest.mark.parametrize(
    ("before_ns", "other_ns", "casts_ns", "once_s", "left"),
    [
        (100, 25, 10, 100e-9, Left(0.25, 0.1)),
        (200, 125, 10, 100e-9, Left(0.25, 0.1)),  # trying it is 100 ns of calling it; 75 of its 100 go
        (100, 25, 10, 300e-9, Left(0.25, 0.1)),  # in the step its numbers came from memory
        (100, 400, 400, 100e-9, Left(1.5, 1.5)),
        (100, 1, 0, 100e-9, Left(0.05, 0.0)),
    ],
)
def test_what_is_left_is_a_part_of_its_time_in_the_step(
    monkeypatch: pytest.MonkeyPatch, before_ns: int, other_ns: int, casts_ns: int, once_s: float, left: Left
) -> None:
    now = [0]
    monkeypatch.setattr(time, "thread_time_ns", lambda: now[0])

    def takes(ns: int) -> Callable[[], None]:
        return lambda: now.__setitem__(0, now[0] + ns)

    found = left_of(Tried(takes(before_ns), takes(other_ns), takes(casts_ns)), once_s)
    assert found.other == pytest.approx(left.other)
    assert found.casts == pytest.approx(left.casts)
