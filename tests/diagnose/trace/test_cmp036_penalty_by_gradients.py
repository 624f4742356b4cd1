"""CMP036 in traces: penalties on the weights as torch's own profiler shows them, and what looks like them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.trace.names import ENGINE
from perf_diagnostics.diagnose.trace.rules.cmp036_penalty_by_gradients import PenaltyInTheLoss
from perf_diagnostics.diagnose.trace.weight_penalties import weight_penalties
from tests.diagnose.answers import clear, found, missing, number
from tests.diagnose.trace.builder import TraceBuilder, ask, repeated
from tests.diagnose.trace.test_nodes_of_torch import recorded

SHARE = "penalties on the weights"
ROWS, IN, HIDDEN, TABLE = 16, 400, 600, (300, 400)

#: Of the table and of both layers, without their biases.
WEIGHTS = 300 * 400 + 400 * 600 + 600 * 8


class Model(nn.Module):
    """A table, a convolution over its rows and two layers behind it, with a copy of their weights."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.first, self.last = nn.Embedding(*TABLE), nn.Linear(IN, HIDDEN), nn.Linear(HIDDEN, 8)
        self.before = [one.detach().clone() for one in self.parameters()]
        self.ids = torch.randint(0, TABLE[0], (ROWS,))

    def forward(self) -> torch.Tensor:
        self.hidden = self.first(self.table(self.ids)).relu()
        out: torch.Tensor = self.last(self.hidden)
        return out.square().mean()


Penalty = Callable[[Model], torch.Tensor]


def matrices(model: Model) -> list[torch.Tensor]:
    return [one for one in model.parameters() if one.dim() > 1]


def total(parts: list[torch.Tensor]) -> torch.Tensor:
    return torch.stack(parts).sum()


def training(penalty: Penalty, optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.SGD) -> Callable[[], None]:
    model = Model()
    update = optimizer(model.parameters(), lr=1e-4)

    def step() -> None:
        update.zero_grad()
        (model() + 1e-6 * penalty(model)).backward()
        update.step()

    return step


@pytest.mark.parametrize(
    ("penalty", "kind", "averaged"),
    [
        (lambda model: total([one.pow(2).sum() for one in matrices(model)]), "squares", False),
        (lambda model: total([(one**2.0).sum() for one in matrices(model)]), "squares", False),
        (lambda model: total([(one**2).mean() for one in matrices(model)]), "squares", True),
        (lambda model: total([torch.sum(one * one) for one in matrices(model)]), "squares", False),
        (lambda model: total([one.square().sum() for one in matrices(model)]), "squares", False),
        (lambda model: total([one.norm() ** 2 for one in matrices(model)]), "norms", False),
        (lambda model: total([one.abs().sum() for one in matrices(model)]), "absolute", False),
        (lambda model: total([one.norm(1) for one in matrices(model)]), "absolute", False),
        (
            lambda model: total(
                [(a - b).pow(2).sum() for a, b in zip(model.parameters(), model.before, strict=True) if a.dim() > 1]
            ),
            "distances",
            False,
        ),
        (
            lambda model: total(
                [(b * (a - b) ** 2).sum() for a, b in zip(model.parameters(), model.before, strict=True) if a.dim() > 1]
            ),
            "distances",
            False,
        ),
    ],
)
def test_penalties_on_whole_weights_are_told_by_kind(
    penalty: Penalty, kind: str, averaged: bool, tmp_path: Path
) -> None:
    facts = recorded(training(penalty), tmp_path)
    told = weight_penalties(facts)
    assert told is not None
    assert (told.kind, told.tensors, told.weights) == (kind, 3, WEIGHTS)
    assert told.averaged is averaged
    share = number(ask(PenaltyInTheLoss(), facts), SHARE).value
    assert isinstance(share, float) and share > 0


EVERY = WEIGHTS + 600 + 8


@pytest.mark.parametrize(
    ("penalty", "kind"),
    [
        (lambda weights: weights.pow(2).sum(), "squares"),
        (lambda weights: torch.norm(weights, 1), "absolute"),
        (lambda weights: weights.norm(), "norms"),
        (lambda weights: weights.abs().sum(), "absolute"),
    ],
)
def test_so_is_one_on_all_weights_joined(
    penalty: Callable[[torch.Tensor], torch.Tensor], kind: str, tmp_path: Path
) -> None:
    def joined(model: Model) -> torch.Tensor:
        return penalty(torch.cat([one.view(-1) for one in model.parameters()]))

    facts = recorded(training(joined), tmp_path)
    told = weight_penalties(facts)
    assert told is not None and (told.kind, told.tensors, told.weights) == (kind, 1, EVERY)
    apart = weight_penalties(
        recorded(training(lambda model: penalty(nn.utils.parameters_to_vector(model.parameters()))), tmp_path)
    )
    assert apart is not None and (apart.kind, apart.weights) == (kind, EVERY)
    joins = facts.trace.of(0).where(facts.trace.named(lambda name: name == "aten::cat")[facts.trace.of(0).name])
    assert (told.forward.containing(joins.start_ns) >= 0).all()  # joining them is a part of it


def of_a_table(model: Model) -> torch.Tensor:
    return model.table.weight.pow(2).sum()


def test_a_single_table_is_a_penalty_as_well(tmp_path: Path) -> None:
    told = weight_penalties(recorded(training(of_a_table), tmp_path))
    assert told is not None and (told.tensors, told.weights) == (1, 300 * 400)


@pytest.mark.parametrize(
    "penalty",
    [
        lambda model: model.hidden.pow(2).sum(),  # of activations
        lambda model: model.table.weight.pow(2).sum(1).amax(),  # lengths of rows
        lambda model: functional.normalize(model.first.weight).mean(),
        lambda model: (model.first.weight.detach() ** 2).sum(),
        lambda model: model.first.weight.pow(3).sum(),
        lambda model: model.first.weight.abs().amax(),
        lambda model: (model.first.weight * model.first.weight.detach().sign()).amax(),
        lambda model: model.last.bias.pow(2).sum(),
        lambda model: torch.cat([model.last.weight.flatten(), model.last.bias]).pow(2).sum(),  # as many as rows may be
        lambda model: torch.cat([model.hidden.flatten(), model.hidden.flatten()]).pow(2).sum(),
        lambda model: torch.cat([one.detach().view(-1) for one in model.parameters()]).pow(2).sum(),
        lambda model: (model.first.weight / model.first.weight.norm()).mean(),  # a layer's own scale
    ],
)
def test_what_is_no_penalty_on_whole_weights_is_not_told(penalty: Penalty, tmp_path: Path) -> None:
    clear(ask(PenaltyInTheLoss(), recorded(training(penalty), tmp_path)))


def test_squares_of_what_has_a_weights_sizes_and_goes_through_layers_are_not_told(tmp_path: Path) -> None:
    first, last = nn.Linear(64, 64), nn.Linear(64, 64)
    given = torch.rand(64, 64)

    def step() -> None:
        hidden = first(given)
        (last(hidden).mean() + hidden.pow(2).sum()).backward()

    clear(ask(PenaltyInTheLoss(), recorded(step, tmp_path)))


@pytest.mark.parametrize("einsum", [True, False])
def test_products_of_features_are_no_weights(einsum: bool, tmp_path: Path) -> None:
    """What Barlow Twins and VICReg square has the sizes of a layer's weight."""
    layer, given = nn.Linear(96, 96), torch.rand(32, 96)

    def step() -> None:
        out = layer(given)
        across = torch.einsum("ni,nj->ij", out, out) if einsum else out.t() @ out
        (across - torch.eye(96)).pow(2).sum().backward()

    clear(ask(PenaltyInTheLoss(), recorded(step, tmp_path)))


def test_an_optimizer_that_compares_losses_needs_it(tmp_path: Path) -> None:
    model = Model()
    update = torch.optim.LBFGS(model.parameters(), lr=1e-3, max_iter=2)

    def closure() -> torch.Tensor:
        update.zero_grad()
        loss = model() + 1e-6 * of_a_table(model)
        loss.backward()
        return loss

    answer = clear(ask(PenaltyInTheLoss(), recorded(lambda: update.step(closure), tmp_path)))
    assert "LBFGS compares losses" in answer.summary


def test_without_sizes_nobody_knows_what_is_a_weight(tmp_path: Path) -> None:
    assert (
        missing(ask(PenaltyInTheLoss(), recorded(training(of_a_table), tmp_path, shapes=False))).signal == "input_dims"
    )


def penalised(square: float, node: float, *, update: str = "SGD") -> TraceBuilder:
    """Steps of 1 ms with a layer, the squares of its weight, their sum, and the nodes that lead back."""
    about = {"Input type": ["float", "float"]}

    def fill(builder: TraceBuilder, start: float) -> None:
        numbered = {"Sequence number": 7}
        builder.operator("aten::linear", start, start + 50, **numbered, **about, **{"Input Dims": [[16, 64], [32, 64]]})
        squares = about | {"Input Dims": [[32, 64], []], "Concrete Inputs": ["", "2"], "Sequence number": 9}
        builder.operator("aten::pow", start + 60, start + 60 + square, **squares)
        summed = about | {"Input Dims": [[32, 64], []], "Sequence number": 10}
        builder.operator("aten::sum", start + 61 + square, start + 61 + 1.5 * square, **summed)
        at = start + 65 + 1.5 * square
        builder.operator(ENGINE + "SumBackward0", at, at + 1, **{"Sequence number": 10})
        builder.operator(ENGINE + "PowBackward0", at + 1, at + 1 + node, **{"Sequence number": 9})
        builder.operator(ENGINE + "AddmmBackward0", at + 1 + node, at + 60 + node, **numbered)
        builder.operator("aten::mm", start + 900, start + 990)
        builder.note(f"Optimizer.step#{update}.step", start + 895, start + 995)

    return repeated(1000, 5, fill, deviceProperties=[])


@pytest.mark.parametrize(
    ("square", "node", "severity"), [(10, 20, None), (20, 40, Severity.INFO), (40, 100, Severity.WARNING)]
)
def test_forward_and_the_way_back_count(square: float, node: float, severity: Severity | None, tmp_path: Path) -> None:
    answer = ask(PenaltyInTheLoss(), penalised(square, node).facts(tmp_path))
    assert number(answer, SHARE).value == pytest.approx((1.5 * square + node + 1) / 10, rel=0.01)
    if severity is None:
        clear(answer)
        return
    finding = found(answer)
    assert finding.severity is severity
    assert "the squares of 2,048 weights in 1 tensor" in finding.summary
    assert "weight_decay=2 * coefficient" in finding.remedies[0].says


def test_an_optimizer_whose_weight_decay_is_another_method_gets_the_other_advice_first(tmp_path: Path) -> None:
    finding = found(ask(PenaltyInTheLoss(), penalised(40, 100, update="AdamW").facts(tmp_path)))
    assert finding.remedies[0].says.startswith("With AdamW")
