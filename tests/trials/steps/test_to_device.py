"""Batches of any form on their way to the device."""

from __future__ import annotations

from collections import UserDict, namedtuple
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from perf_diagnostics.trials.steps.to_device import move

Pair = namedtuple("Pair", "x y")
META = torch.device("meta")


@dataclass(frozen=True)
class Record:
    x: torch.Tensor
    name: str


class Plain:
    def __init__(self) -> None:
        self.x = torch.ones(2)
        self.n = 3


@pytest.mark.parametrize(
    ("batch", "tensor_of"),
    [
        (torch.ones(2), lambda b: b),
        ((torch.ones(2), 1), lambda b: b[0]),
        ([torch.ones(2), "text"], lambda b: b[0]),
        ({"x": torch.ones(2), "id": ["a"]}, lambda b: b["x"]),
        (UserDict(x=torch.ones(2)), lambda b: b["x"]),
        (Pair(torch.ones(2), None), lambda b: b.x),
        (Record(torch.ones(2), "a"), lambda b: b.x),
        (Plain(), lambda b: b.x),
        ({"inner": [(torch.ones(2),)]}, lambda b: b["inner"][0][0]),
    ],
)
def test_batches_of_any_form_are_moved_and_keep_their_form(batch: Any, tensor_of: Any) -> None:
    moved = move(batch, META, non_blocking=False)
    assert type(moved) is type(batch)
    assert tensor_of(moved).device == META
    assert tensor_of(batch).device == torch.device("cpu")  # the user's batch is as it was


def test_what_moves_itself_is_asked_not_to_wait_where_it_can() -> None:
    class Either:
        def to(self, device: torch.device, *, non_blocking: bool = False) -> tuple[str, bool]:
            return str(device), non_blocking

    class DeviceOnly:
        def to(self, device: torch.device) -> str:
            return str(device)

    assert [move(Either(), META, non_blocking=wanted) for wanted in (True, False)] == [("meta", True), ("meta", False)]
    assert [move(DeviceOnly(), META, non_blocking=wanted) for wanted in (True, False)] == ["meta", "meta"]
