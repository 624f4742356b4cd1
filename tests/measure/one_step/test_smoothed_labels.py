"""Which losses are told as made of labels for every class, and what of the step is for these."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from perf_diagnostics.measure.one_step.operator_graph import OperatorGraph
from perf_diagnostics.measure.one_step.operator_lines import OperatorLines
from perf_diagnostics.measure.one_step.smoothed_labels import SIGNAL, SmoothedLabels
from tests.measure.one_step.looking import Loss, looked_at
from tests.measure.one_step.test_weight_penalties import OneSecondEach

ROWS, CLASSES = 64, 1000
HEAD = nn.Linear(8, CLASSES)
X, TARGET = torch.rand(ROWS, 8), torch.randint(1, CLASSES, (ROWS,))
MASK = (torch.rand(ROWS, CLASSES) < 0.5).float()


def told(loss: Loss, *, timed: bool = False) -> tuple[list[Any], OperatorGraph]:
    """What the look tells, with the operators' true times or as if each had taken a second."""
    graph = OperatorGraph()
    watchers = [graph, SmoothedLabels(graph, OperatorLines())]
    facts, gaps = looked_at(watchers if timed else [OneSecondEach(*watchers)], loss)
    assert not gaps
    found = facts[SIGNAL]
    assert isinstance(found, list)
    return found, graph


def smoothed(target: torch.Tensor = TARGET) -> torch.Tensor:
    return torch.full((ROWS, CLASSES), 0.1 / (CLASSES - 1)).scatter_(1, target.unsqueeze(1), 0.9)


def with_kl() -> torch.Tensor:
    logp = HEAD(X).log_softmax(-1)
    labels = logp.data.clone()
    labels.fill_(0.1 / (CLASSES - 2))
    labels.scatter_(1, TARGET.unsqueeze(1), 0.9)
    labels[:, 0] = 0
    labels.index_fill_(0, torch.nonzero(TARGET == 3).squeeze(-1), 0.0)
    return nn.KLDivLoss(reduction="sum")(logp, labels)


def with_product() -> torch.Tensor:
    return -(smoothed() * HEAD(X).log_softmax(-1)).sum(-1).mean()


def with_one_hot() -> torch.Tensor:
    labels = functional.one_hot(TARGET, CLASSES).float() * 0.9 + 0.1 / CLASSES
    return -(HEAD(X).log_softmax(-1) * labels).sum(-1).mean()


def with_two_parts() -> torch.Tensor:
    hot = functional.one_hot(TARGET, CLASSES).float()
    labels = hot * 0.9 + (1 - hot) * (0.1 / (CLASSES - 1))
    return functional.cross_entropy(HEAD(X), labels)


def with_index_put() -> torch.Tensor:
    labels = torch.full((ROWS, CLASSES), 0.1 / (CLASSES - 1))
    labels[torch.arange(ROWS), TARGET] = 0.9
    return -(labels * HEAD(X).log_softmax(-1)).sum(-1).mean()


def with_mixed_labels() -> torch.Tensor:
    mixed = 0.7 * smoothed() + 0.3 * smoothed(TARGET.flip(0))
    return -(mixed * HEAD(X).log_softmax(-1)).sum(-1).mean()


@pytest.mark.parametrize(
    ("loss", "seconds"),
    [
        # clone, fill_, scatter_, fill_ of a class, index_fill_; mul, xlogy, sub. The sum stays.
        (with_kl, 8),
        (with_index_put, 3),  # full, index_put_; mul
        (with_product, 3),  # full, scatter_; mul
        (with_one_hot, 6),  # zeros, scatter_, to, mul, add; mul
        (with_mixed_labels, 8),  # twice full, scatter_, mul; add; mul
        (with_two_parts, 8),  # zeros, scatter_, to, mul, rsub, mul, add; mul
    ],
)
def test_what_makes_and_multiplies_the_labels_is_told(loss: Loss, seconds: int) -> None:
    (one,), graph = told(loss)
    assert one["shape"] == [ROWS, CLASSES] and one["calls"] == 1 and one["backward"] == 0.0
    assert one["forward"] * graph.forward == pytest.approx(seconds)
    assert one["whole"] * graph.seconds == pytest.approx(one["forward"] * graph.forward)


def test_the_line_that_multiplies_is_named() -> None:
    (one,), _ = told(with_product, timed=True)
    assert one["text"] == "return -(smoothed() * HEAD(X).log_softmax(-1)).sum(-1).mean()"


def gathered() -> torch.Tensor:
    logp = HEAD(X).log_softmax(-1)
    picked = logp.gather(1, TARGET.unsqueeze(1)).sum()
    return -0.8999 * picked - 0.0001 * logp.sum()


def by_torch() -> torch.Tensor:
    return functional.cross_entropy(HEAD(X), TARGET, label_smoothing=0.1)


def one_hot_alone() -> torch.Tensor:
    """Nearly all zeros: another fault, which has a rule of its own."""
    return -(functional.one_hot(TARGET, CLASSES).float() * HEAD(X).log_softmax(-1)).sum()


def a_mask() -> torch.Tensor:
    """Of what was there before the step nobody knows how it was made."""
    return (HEAD(X).log_softmax(-1) * MASK).sum()


def a_teacher() -> torch.Tensor:
    """Another model's answers differ from class to class."""
    with torch.no_grad():
        answers = HEAD(X + 0.1).softmax(-1)
    return functional.kl_div(HEAD(X).log_softmax(-1), answers, reduction="sum")


def read_elsewhere() -> torch.Tensor:
    """The products themselves are used, and not only added up."""
    products = smoothed() * HEAD(X).log_softmax(-1)
    return products.sum() + products.amax(-1).sum()


def small() -> torch.Tensor:
    labels = torch.full((4, 10), 0.01).scatter_(1, TARGET[:4, None] % 10, 0.9)
    return -(labels * HEAD(X[:4])[:, :10].log_softmax(-1)).sum()


def a_table_of_weights() -> torch.Tensor:
    """Weights of all entries that differ from each other."""
    weights = torch.rand(ROWS, CLASSES)
    weights.scatter_(1, TARGET.unsqueeze(1), 0.9)
    return (weights * HEAD(X)).sum()


def weights_where() -> torch.Tensor:
    """Errors that count more where something is."""
    x = torch.rand(ROWS, CLASSES)
    weights = torch.ones_like(x)
    weights[x > 0.5] = 10
    return (weights * (HEAD(X) - x).square()).mean()


def weighted_logarithms() -> torch.Tensor:
    """By a mask of as many numbers, and not by one index a row."""
    weights = torch.ones(ROWS, CLASSES)
    weights[torch.rand(ROWS, CLASSES) > 0.5] = 5
    return -(weights * HEAD(X).log_softmax(-1)).mean()


def labels_beside_scores() -> torch.Tensor:
    """No logarithm of a probability: a difference to targets that are near 0 and 1."""
    return (smoothed() * HEAD(X)).sum()


def few_classes() -> torch.Tensor:
    """A mask of four classes a pixel, as Dice and focal losses have."""
    labels = torch.full((ROWS * 250, 4), 0.03).scatter_(1, torch.randint(4, (ROWS * 250, 1)), 0.91)
    return -(labels * HEAD(X).view(-1, 4).log_softmax(-1)).sum()


def two_of_each_row() -> torch.Tensor:
    """The experts that were chosen for each token."""
    chosen = torch.full((ROWS, CLASSES), 0.1).scatter_(1, torch.randint(CLASSES, (ROWS, 2)), 1.0)
    return -(chosen * HEAD(X).log_softmax(-1)).sum()


_OTHERS = (gathered, by_torch, one_hot_alone, a_mask, a_teacher, read_elsewhere, small, a_table_of_weights)
_MASKS = (weights_where, weighted_logarithms, labels_beside_scores, few_classes, two_of_each_row)


@pytest.mark.parametrize("loss", [*_OTHERS, *_MASKS])
def test_what_it_is_not(loss: Loss) -> None:
    found, _ = told(loss)
    assert found == []
