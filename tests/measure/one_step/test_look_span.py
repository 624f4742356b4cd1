"""The look at a step covers forward, loss and backward, and disturbs nothing of what a loop may do in between."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils import _python_dispatch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset
from torch.utils.flop_counter import FlopCounterMode

from perf_diagnostics.integrations.shield import LoopObservations
from perf_diagnostics.measure.one_step.dispatch_mode import OperatorMode
from perf_diagnostics.measure.one_step.look import StepLook
from perf_diagnostics.measure.one_step.operator_lines import in_backward
from perf_diagnostics.measure.one_step.step_totals import StepTotals
from perf_diagnostics.measure.one_step.watcher import Ran, Watcher

_INNER: Any = torch._C

ROWS, WIDTH = 16, 8


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool]]:
    """The operators that are shown, and whether backward asked for them."""
    seen: list[tuple[str, bool]] = []

    class Notes(Watcher):
        def see(self, ran: Ran) -> None:
            seen.append((ran.operator.__name__, ran.in_backward))

        @property
        def told(self) -> dict[str, Any]:
            return {}

    monkeypatch.setattr("perf_diagnostics.measure.one_step.look.watchers_of", lambda _parameters: [Notes()])
    return seen


def stack() -> list[Any]:
    return [_INNER._get_dispatch_stack_at(at) for at in range(_INNER._len_torch_dispatch_stack())]


def looking(*models: nn.Module) -> StepLook:
    looks = StepLook(LoopObservations(), lambda: list(models))
    looks.begin(several=False)
    assert looks.under_way and stack() == []
    return looks


class Doubles(torch.autograd.Function):
    """An operator of the user's own."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return gradients[0] * 2


def test_the_loss_is_seen_and_what_lies_around_is_not(shown: list[tuple[str, bool]]) -> None:
    model = nn.Linear(WIDTH, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    looks = looking(model)
    x = torch.randn(ROWS, WIDTH).cosh()
    loss = functional.cross_entropy(model(x), torch.zeros(ROWS, dtype=torch.int64)).sinh()
    assert len(stack()) == 1
    loss.backward()
    assert stack() == []
    optimizer.step()
    looks.end()
    forward = [name for name, backward in shown if not backward]
    assert [name for name in forward if name in ("cosh", "addmm", "_log_softmax", "nll_loss_forward", "sinh")] == [
        *("addmm", "_log_softmax", "nll_loss_forward", "sinh"),
    ]
    assert ("nll_loss_backward", True) in shown and not any("add_" in name for name, _ in shown)


def test_micro_batches_are_seen_each_and_the_loader_between_them_is_not(shown: list[tuple[str, bool]]) -> None:
    model = nn.Linear(WIDTH, 4)
    looks = looking(model)
    for _ in range(2):
        batch = torch.randn(ROWS, WIDTH).erf()
        model(batch).sinh().sum().backward()
    looks.end()
    assert Counter(name for name, _ in shown)["sinh"] == 2 and "erf" not in dict(shown)


def test_gradients_that_a_loss_asks_for_are_backward(shown: list[tuple[str, bool]]) -> None:
    model = nn.Linear(WIDTH, 4)
    looks = looking(model)
    x = torch.randn(ROWS, WIDTH, requires_grad=True)
    (slope,) = torch.autograd.grad(model(x).sinh().sum(), x, create_graph=True)
    slope.square().sum().backward()
    looks.end()
    assert ("cosh", True) in shown and ("cosh", False) not in shown  # the derivative of sinh


@pytest.mark.parametrize("by_hand", [False, True])
def test_their_time_is_that_of_the_phase_which_the_loop_is_in(by_hand: bool) -> None:
    """A gradient penalty's pass lies in forward; that of a loop which updates by hand is its backward."""
    model, totals = nn.Linear(WIDTH, 1), StepTotals()
    mode = OperatorMode([totals])
    mode.goes_back = lambda: by_hand and in_backward()
    mode.open()
    made = model(torch.randn(ROWS, WIDTH)).square().sum()
    torch.autograd.grad(made, [*model.parameters()])
    mode.close()
    facts, _ = mode.conclude()
    forward, backward = (facts[f"operator_seconds_{phase}"] for phase in ("forward", "backward"))
    assert forward and bool(backward) is by_hand
    assert bool(facts["around_operators_seconds_backward"]) is by_hand


def test_a_mode_of_the_users_that_outlasts_the_backward_stays_and_torch_is_told_nothing() -> None:
    flags = [name for name in vars(_python_dispatch) if name.startswith("_is_in_")]
    before = [getattr(_python_dispatch, name) for name in flags]
    model = nn.Linear(WIDTH, 4)
    looks = looking(model)
    out = model(torch.randn(ROWS, WIDTH))
    own = FlopCounterMode(display=False)
    with own:
        (out @ torch.ones(4, 3)).sum().backward()
        assert len(stack()) == 1 and not isinstance(stack()[0], OperatorMode)
        torch.ones(2, 2) @ torch.ones(2, 2)
    looks.end()
    # The product, its backward and the linear layer's, and the one after that.
    assert own.get_total_flops() == 2 * 2 * ROWS * 4 * 3 + 2 * ROWS * WIDTH * 4 + 2 * 2 * 2 * 2
    assert stack() == [] and [getattr(_python_dispatch, name) for name in flags] == before


def test_a_mode_entered_before_keeps_the_look_away_and_sees_all(shown: list[tuple[str, bool]]) -> None:
    class Names(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.names: list[str] = []

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.names.append(func._overloadpacket.__name__)
            return func(*args, **(kwargs or {}))

    model = nn.Linear(WIDTH, 4)
    looks = looking(model)
    with Names() as own:
        model(torch.randn(ROWS, WIDTH)).sum().backward()
        assert stack() == [own]
    looks.end()
    assert "addmm" in own.names and shown == []


def _losses() -> dict[str, Callable[[nn.Module, torch.Tensor], torch.Tensor]]:
    def dropout(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return functional.dropout(model(x), 0.5).square().mean()

    def autocast(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(model(x)).float().square().mean()

    def own_function(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return Doubles.apply(model(x)).sum()

    def checkpointed(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(lambda h: functional.dropout(torch.tanh(h)), model(x), use_reentrant=False).sum()

    def reentrant(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(lambda h: functional.dropout(torch.tanh(h)), model(x), use_reentrant=True).sum()

    def inference(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode():
            scale = model(x).abs().mean().item()
        with torch.no_grad():
            target = model(x) + torch.randn(ROWS, WIDTH)
        return scale * functional.mse_loss(model(x), target)

    def transforms(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        inner = torch.func.vmap(torch.func.grad(lambda row: torch.tanh(row).square().sum()))(model(x))
        return torch.func.vmap(torch.dot)(inner, x).sum()

    def penalised(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        x = x.clone().requires_grad_()
        (slope,) = torch.autograd.grad(model(x).square().sum(), x, create_graph=True)
        return slope.norm()

    def sparse(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return torch.sparse.mm(torch.eye(ROWS).to_sparse(), model(x)).square().sum()

    def by_numpy(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        out = model(x)
        chosen = torch.from_numpy(out.detach().numpy().copy()) + torch.tensor(x.tolist())
        return (out * chosen).sum() * out.mean().item()

    def fourier(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return torch.fft.irfft(torch.fft.rfft(model(x), n=17), n=17).square().sum()

    def gathered(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return model(x[torch.arange(ROWS).repeat(4)]).view(4, ROWS, WIDTH).mean(0).square().sum()

    def in_place(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        h = model(x).clone()
        h[:, 0].mul_(2)
        return h.t_().relu_().sum()

    return {name: one for name, one in locals().items() if callable(one)}


@pytest.mark.parametrize("name", sorted(_losses()))
def test_losses_gradients_and_draws_are_the_same_bits_and_no_watcher_fails(name: str) -> None:
    outcomes = []
    for looked in (False, True):
        torch.manual_seed(1)
        model, x = nn.Linear(WIDTH, WIDTH), torch.randn(ROWS, WIDTH)
        looks = looking(model) if looked else None
        loss = _losses()[name](model, x)
        loss.backward()
        if looks is not None:
            looks.end()
            gaps = [(gap.signal, gap.why) for gap in looks._observations.gaps]
            assert gaps == [] and looks.facts["operators"]
        outcomes.append([loss.detach(), *(one.grad for one in model.parameters()), torch.rand(4)])
    for one, other in zip(*outcomes, strict=True):
        assert torch.equal(one, other)
    assert stack() == []


def test_a_model_with_a_sparse_buffer_is_looked_through() -> None:
    """The adjacency of a graph, as many keep it."""

    class Graph(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(WIDTH, WIDTH)
            self.register_buffer("adjacency", torch.eye(ROWS).to_sparse())

        def forward(self, x: torch.Tensor) -> Any:
            return torch.sparse.mm(self.adjacency, self.layer(x))

    model = Graph()
    looks = looking(model)
    model(torch.randn(ROWS, WIDTH)).square().sum().backward()
    looks.end()
    assert [(gap.signal, gap.why) for gap in looks._observations.gaps] == [] and looks.facts["operators"]


def test_an_error_in_the_loss_that_somebody_catches_leaves_nothing_for_good() -> None:
    model = nn.Linear(WIDTH, 4)
    looks = looking(model)
    for _ in range(2):
        with pytest.raises(ValueError, match="batch_size"):
            functional.cross_entropy(model(torch.randn(ROWS, WIDTH)), torch.zeros(ROWS + 1, dtype=torch.int64))
    looks.training_ended()
    assert stack() == []


def test_an_evaluation_before_any_backward_ends_the_look(shown: list[tuple[str, bool]]) -> None:
    model = nn.Linear(WIDTH, 4)
    looks = looking(model)
    model(torch.randn(ROWS, WIDTH))
    model.eval()
    with torch.no_grad():
        model(torch.randn(ROWS, WIDTH)).cosh()
    assert stack() == [] and "cosh" not in dict(shown)
    looks.end()


def test_other_threads_are_not_seen(shown: list[tuple[str, bool]]) -> None:
    model = nn.Linear(WIDTH, 4)
    looks = looking(model)
    loss = model(torch.randn(ROWS, WIDTH)).sum()
    found: list[Any] = []

    def beside() -> None:
        model(torch.randn(ROWS, WIDTH)).cosh()
        found.extend(stack())

    thread = threading.Thread(target=beside)
    thread.start()
    thread.join()
    loss.backward()
    looks.end()
    assert found == [] and "cosh" not in dict(shown)


def test_several_models_and_backwards_take_turns(shown: list[tuple[str, bool]]) -> None:
    made, judged = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 1)
    looks = looking(made, judged)
    fake = made(torch.randn(ROWS, WIDTH))
    judged(fake.detach()).sinh().sum().backward()
    judged(fake).cosh().sum().backward()
    looks.end()
    assert stack() == [] and {("sinh", False), ("cosh", False)} <= set(shown)
    assert Counter(name for name, _ in shown)["addmm"] == 3


class Depths(Dataset[int]):
    """Tells how many modes a worker has."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> int:
        return len(stack())


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="nothing is forked there")
def test_workers_forked_in_the_midst_of_it_see_nothing() -> None:
    model = nn.Linear(WIDTH, 4)
    looks = looking(model)
    loss = model(torch.randn(ROWS, WIDTH)).sum()
    assert len(stack()) == 1
    depths = [*DataLoader(Depths(), num_workers=1, multiprocessing_context="fork")]
    loss.backward()
    looks.end()
    assert [int(one) for one in depths] == [0, 0]


def test_a_watcher_that_fails_is_a_gap_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    class Fails(Watcher):
        signals = ("made_up",)

        def see(self, _ran: Ran) -> None:
            raise ValueError("cannot see")

    class Counts(Watcher):
        seen = 0

        def see(self, _ran: Ran) -> None:
            self.seen += 1

        @property
        def told(self) -> dict[str, Any]:
            return {"seen": self.seen}

    monkeypatch.setattr("perf_diagnostics.measure.one_step.look.watchers_of", lambda _parameters: [Fails(), Counts()])
    model = nn.Linear(WIDTH, 4)
    looks = looking(model)
    model(torch.randn(ROWS, WIDTH)).sum().backward()
    looks.end()
    assert [(gap.signal, "cannot see" in gap.why) for gap in looks._observations.gaps] == [("made_up", True)]
    assert looks.facts["seen"] > 5  # type: ignore[operator]
