"""What stands in for torch's calls passes them on as they were made, and leaves nothing that later ones pay for."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from perf_diagnostics.integrations import attach
from perf_diagnostics.integrations.shield import LoopObservations
from perf_diagnostics.measure.one_step.look import StepLook

#: Of libtorch_cpu: where a thread keeps its stack of torch.func's transforms; it is made when it is first asked for.
STACK = "_ZN2at9functorch20functorchTLSAccessorEv"


def stack_of_this_thread() -> Callable[[], int | None]:
    library = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    if not library.exists() or not hasattr(ctypes.CDLL(str(library)), STACK):
        pytest.skip("this torch does not tell where it keeps the stack")
    accessor = getattr(ctypes.CDLL(str(library)), STACK)
    accessor.restype = ctypes.c_void_p
    return lambda: ctypes.c_void_p.from_address(accessor()).value


def in_a_thread(work: Callable[[], Any]) -> Any:
    """What it gives in a thread that has run nothing yet."""
    came: list[Any] = []
    thread = threading.Thread(target=lambda: came.append(work()))
    thread.start()
    thread.join()
    return came[0]


@pytest.mark.usefixtures("nothing_compiled")
def test_a_step_that_is_looked_through_leaves_no_stack_that_each_later_backward_would_copy() -> None:
    """A thread that has one copies it some ten times a step: 11,700 instructions in steps of two layers."""
    stack = stack_of_this_thread()

    def asked() -> list[bool]:
        before = stack() is None
        torch._C._functorch.peek_interpreter_stack()
        return [before, stack() is None]

    def looked() -> list[bool]:
        model, observations = torch.nn.Linear(4, 2), LoopObservations()
        looks = StepLook(observations, lambda: [model])
        looks.begin(several=False)
        under_way = looks.under_way
        model(torch.randn(3, 4)).sum().backward()
        looks.end()
        return [under_way, stack() is None]

    assert in_a_thread(asked) == [True, False]  # it is known how to see it
    assert in_a_thread(looked) == [True, True]


@pytest.mark.parametrize("own", [True, False])
def test_a_backward_of_somebodys_own_is_called_as_it_was_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, own: bool
) -> None:
    calls: list[tuple[Any, ...]] = []
    torchs = torch.autograd.backward

    def backward(tensors: torch.Tensor, *others: Any, **how: Any) -> None:
        calls.append((tensors.shape, others, how))
        torchs(tensors, *others, **how)

    if own:
        monkeypatch.setattr(torch.autograd, "backward", backward)
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with attach(model, optimizer, results_dir=tmp_path, quiet=True) as seen:
        for _ in range(4):
            losses = model(torch.ones(2, 3))
            torch.autograd.backward(losses, torch.ones(2, 1), retain_graph=True)
            losses.sum().backward()
            optimizer.step()
        made = len(calls)
    backwards = seen.run.results[0].steps[0].columns
    assert backwards["backwards"].tolist() == [2] * 4 and backwards["backwards_keeping"].tolist() == [1] * 4
    assert model.weight.grad.tolist() == [[16.0, 16.0, 16.0]]
    if own:
        kept, last = calls[:2]
        assert kept[0] == (2, 1) and kept[1][0].tolist() == [[1.0], [1.0]] and kept[2] == {"retain_graph": True}
        assert last == (torch.Size([]), (None, None, False), {"inputs": None})
        assert made == 8


@pytest.mark.usefixtures("nothing_compiled")
def test_a_look_that_is_under_way_where_the_training_ends_leaves_torchs_backward(tmp_path: Path) -> None:
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torchs = torch.autograd.backward
    with attach(model, optimizer, results_dir=tmp_path, quiet=True) as seen:
        looks = seen._watch.recording.looks
        for _ in range(4):
            model(torch.ones(2, 3)).sum().backward()
            optimizer.step()
        looks.begin(several=False)
        model(torch.ones(2, 3)).sum().backward()
        assert looks.under_way and torch.autograd.backward is not torchs
    assert torch.autograd.backward is torchs
    assert seen.run.results[0].gap("zero_products").why == "the training ended in the step that was looked through"
