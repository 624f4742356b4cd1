"""CMP045 in traces: products that are cut directly afterwards, as torch's own profiler shows them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.cmp045_mostly_unread import MostlyUnread
from perf_diagnostics.diagnose.trace.cut_products import cut_products
from perf_diagnostics.diagnose.trace.names import ENGINE
from perf_diagnostics.diagnose.trace.rules.cmp045_mostly_unread import ProductsMostlyUnread
from tests.diagnose.answers import clear, found, missing, number
from tests.diagnose.trace.builder import TraceBuilder, ask, repeated
from tests.diagnose.trace.test_nodes_of_torch import recorded

SHARE, CALLS = "products that are mostly unread", "such products a step"


class Towers(nn.Module):
    """Two of them, and a layer over places."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.layer = nn.Linear(32, 24), nn.Linear(32, 24), nn.Linear(32, 40)
        self.given, self.places = torch.rand(256, 32), torch.rand(8, 30, 32)

    def pairs(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self.one(self.given), self.two(self.given)

    def scores(self) -> torch.Tensor:
        one, two = self.pairs()
        return one @ two.t()


Loss = Callable[[Towers], torch.Tensor]


def training(loss: Loss) -> Callable[[], None]:
    towers = Towers()
    optimizer = torch.optim.SGD(towers.parameters(), lr=0.01)

    def step() -> None:
        optimizer.zero_grad()
        loss(towers).backward()
        optimizer.step()

    return step


@pytest.mark.parametrize(
    "loss",
    [
        lambda towers: -functional.logsigmoid(torch.diagonal(towers.scores() / 0.1)).mean(),
        lambda towers: towers.scores().diag().sum(),
        lambda towers: torch.trace(towers.scores()),
        lambda towers: torch.einsum("id,jd->ij", *towers.pairs()).diagonal().square().mean(),
        lambda towers: torch.cdist(*towers.pairs()).diagonal().mean(),
        lambda towers: towers.scores().sigmoid().diagonal().log().mean(),
    ],
)
def test_a_diagonal_that_alone_is_read_is_told(loss: Loss, tmp_path: Path) -> None:
    facts = recorded(training(loss), tmp_path)
    cut = cut_products(facts)
    assert cut is not None and cut.diagonal
    assert (cut.calls, cut.size, cut.part) == (1, 256, 1 / 256)
    share = number(ask(ProductsMostlyUnread(), facts), SHARE).value
    assert isinstance(share, float) and share > 0


def test_of_a_diagonal_no_sizes_need_be_told_and_of_places_they_do(tmp_path: Path) -> None:
    diagonal = cut_products(recorded(training(lambda one: one.scores().diagonal().mean()), tmp_path, shapes=False))
    assert diagonal is not None and (diagonal.part, diagonal.size) == (0, 0)
    places = recorded(training(lambda one: one.layer(one.places)[:, -1].mean()), tmp_path, shapes=False)
    assert cut_products(places) is None


@pytest.mark.parametrize(
    ("loss", "part", "size"),
    [
        (lambda towers: towers.layer(towers.places)[:, -1].square().mean(), 1 / 30, 30),
        (lambda towers: towers.layer(towers.places).relu()[:, 10:25].mean(), 0.5, 30),
        (lambda towers: (towers.layer(towers.places) * 3).exp()[..., :4].mean(), 0.1, 40),
    ],
)
def test_places_that_are_cut_off_behind_a_layer_are_told(loss: Loss, part: float, size: int, tmp_path: Path) -> None:
    cut = cut_products(recorded(training(loss), tmp_path))
    assert cut is not None and not cut.diagonal
    assert (cut.calls, cut.part, cut.size) == (1, pytest.approx(part), size)


#: Every sixth place is labelled, of 8 times 30.
LABELLED = torch.arange(240).reshape(8, 30) % 6 == 0


@pytest.mark.parametrize(
    "loss",
    [
        lambda towers: functional.cross_entropy(
            towers.layer(towers.places)[LABELLED], torch.zeros(40, dtype=torch.long)
        ),
        lambda towers: towers.layer(towers.places).view(-1, 40)[torch.arange(40)].square().mean(),
        lambda towers: towers.layer(towers.places).view(-1, 40).index_select(0, torch.arange(40)).square().mean(),
    ],
)
def test_so_are_rows_that_are_taken_behind_a_layer(loss: Loss, tmp_path: Path) -> None:
    facts = recorded(training(loss), tmp_path)
    cut = cut_products(facts)
    assert cut is not None and cut.rows and not cut.diagonal
    assert (cut.calls, cut.part, cut.size) == (1, pytest.approx(1 / 6), 240)
    finding = found(ask(ProductsMostlyUnread(MostlyUnread(info_share=1e-9)), facts))
    assert "only 40 of 240 rows go on" in finding.summary and "layer(x[mask])" in finding.remedies[0].says


def contrastive(towers: Towers) -> torch.Tensor:
    scores = towers.scores()
    return (scores.logsumexp(1) - scores.diagonal()).mean()


def retrieved(towers: Towers) -> torch.Tensor:
    """All scores are read without a gradient, for a metric."""
    scores = towers.scores()
    loss = -functional.logsigmoid(scores.diagonal()).mean()
    towers.right = (scores.detach().argmax(1) == torch.arange(256)).sum()
    return loss


def gates(towers: Towers) -> torch.Tensor:
    whole = towers.layer(towers.places)
    return (whole[..., :10].sigmoid() * whole[..., 10:20]).mean()


def stopped(towers: Towers) -> torch.Tensor:
    """The other part is read without a gradient."""
    both = towers.layer(towers.places)
    return (both[:4] - both[4:].detach()).square().mean()


def kept_for_later(towers: Towers) -> torch.Tensor:
    whole = towers.layer(towers.places)
    towers.before = whole.detach()
    return whole[:, -1].mean()


@pytest.mark.parametrize(
    "loss",
    [
        stopped,
        kept_for_later,
        contrastive,
        retrieved,
        gates,
        lambda towers: towers.layer(towers.places)[:, :16].mean(),  # more than a half
        lambda towers: towers.layer(towers.places[:, -1]).square().mean(),
        lambda towers: (towers.pairs()[0] * towers.pairs()[1]).sum(1).mean(),
        lambda towers: towers.scores().softmax(1).diagonal().log().mean(),  # the others are in the sum
        lambda towers: towers.layer(towers.places).mean(1)[0].mean(),
        lambda towers: towers.layer(towers.places)[~LABELLED].square().mean(),  # most of them
        lambda towers: towers.layer(towers.places).view(-1, 40)[torch.arange(480) % 240].square().mean(),  # all, twice
        lambda towers: towers.layer(towers.given)[torch.arange(256), torch.arange(256) % 40].square().mean(),  # of each
    ],
)
def test_what_goes_on_somewhere_is_not_told(loss: Loss, tmp_path: Path) -> None:
    facts = recorded(training(loss), tmp_path)
    assert cut_products(facts) is None
    clear(ask(ProductsMostlyUnread(), facts))


def test_a_pass_that_is_derived_itself_has_nodes_as_makers(tmp_path: Path) -> None:
    towers, given = Towers(), torch.rand(8, 32, requires_grad=True)

    def penalised() -> None:
        scores = towers.layer(torch.cat([given, given + 1])).sum()
        (slope,) = torch.autograd.grad(scores, given, create_graph=True)
        (towers.layer(given).tanh()[:, :4].mean() + slope.norm()).backward()

    cut_products(recorded(penalised, tmp_path))


def test_without_nodes_nobody_knows(tmp_path: Path) -> None:
    towers = Towers()

    def step() -> None:
        towers.scores()

    assert missing(ask(ProductsMostlyUnread(), recorded(step, tmp_path)))


def cut_at(product: float, node: float, *, count: int = 2, size: int = 20) -> TraceBuilder:
    """Steps of 1 ms: a layer over so many places that takes so long, of which ``count`` are cut out."""

    def fill(builder: TraceBuilder, start: float) -> None:
        about, number = {"Input type": ["float"]}, int(start) // 100  # of each node its own
        layer = about | {"Input Dims": [[8, size, 32], [40, 32]], "Sequence number": number + 4}
        builder.operator("aten::linear", start, start + product, **layer)
        cut = {
            "Input Dims": [[8, size, 40]],
            "Concrete Inputs": ["", "1", "0", str(count), "1"],
            "Sequence number": number + 7,
        }
        builder.operator("aten::slice", start + product, start + product + 1, **about, **cut)
        builder.operator("aten::mean", start + product + 5, start + product + 6, **{"Sequence number": number + 8})
        at = start + product + 20
        builder.operator(ENGINE + "MeanBackward0", at, at + 1, **{"Sequence number": number + 8})
        builder.operator(ENGINE + "SliceBackward0", at + 1, at + 2, **{"Sequence number": number + 7})
        builder.operator(ENGINE + "ViewBackward0", at + 2, at + 3, **{"Sequence number": number + 6})
        builder.operator(ENGINE + "AddmmBackward0", at + 3, at + 1 + node, **{"Sequence number": number + 5})
        builder.operator("aten::mm", start + 900, start + 990)

    return repeated(1000, 5, fill, deviceProperties=[])


@pytest.mark.parametrize(
    ("product", "node", "severity"), [(19, 30, None), (29, 40, Severity.INFO), (49, 100, Severity.WARNING)]
)
def test_the_part_of_forward_and_backward_that_is_not_read_counts(
    product: float, node: float, severity: Severity | None, tmp_path: Path
) -> None:
    answer = ask(ProductsMostlyUnread(), cut_at(product, node).facts(tmp_path))
    assert number(answer, SHARE).value == pytest.approx(0.9 * (product + 1 + node) / 10, rel=0.01)
    if severity is None:
        clear(answer)
        return
    finding = found(answer)
    assert finding.severity is severity and number(finding, CALLS).value == 1
    assert "only 2 of 20 places go on" in finding.summary
    assert "layer(x[:, -1]) in place of layer(x)[:, -1]" in finding.remedies[0].says
