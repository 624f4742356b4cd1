"""Rows of a step's products that got no gradient: how many there are, of which line, and how many operations."""

from __future__ import annotations

import types
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from perf_diagnostics.measure.one_step.gradient_rows import SIGNAL
from perf_diagnostics.measure.one_step.operand_zeros import COLUMNS, ROWS, WHOLE_ROWS, Operands
from tests.measure.one_step.test_look import look

N, WIDTH = 64, 8


def told(model: nn.Module, *given: Any) -> list[Any]:
    looks, observations = look(model, *given)
    assert not observations.gaps
    found = looks.facts[SIGNAL]
    assert isinstance(found, list)
    return found


class Labelled(nn.Module):
    """A head for all rows, of which those with a label of -100 are left out by the loss."""

    def __init__(self, *, again: bool = False) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 20)
        self.again = again

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        h = self.body(x[:, None].expand(-1, 2, -1))  # of two positions the second one counts
        logits = checkpoint(self.squashed, h, use_reentrant=False) if self.again else self.squashed(h)
        return functional.cross_entropy(logits[:, 1], labels)

    def squashed(self, h: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.head(h))


def labels(ignored: int) -> torch.Tensor:
    return torch.where(torch.arange(N) < ignored, -100, torch.arange(N) % 20)


def test_a_layer_inside_a_librarys_forward_is_told_with_the_library() -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": 30, "dim": 8, "hidden_dim": 16, "n_layers": 1, "n_heads": 2, "max_position_embeddings": 8}
    model = transformers.DistilBertForSequenceClassification(transformers.DistilBertConfig(num_labels=2, **sizes))

    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedded, self.model = nn.Linear(3, 8), model

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.model(inputs_embeds=self.embedded(x)).logits[:1].sum()

    found = told(Own(), torch.randn(4, 8, 3))
    assert {one["text"]: one.get("library") for one in found} == {
        "return self.model(inputs_embeds=self.embedded(x)).logits[:1].sum()": "transformers"
    }


def test_a_layer_of_ones_own_inside_a_librarys_model_is_told_with_the_library() -> None:
    """As an adapter that is put around each layer: which rows the loss uses is the library's model's own."""
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": 30, "dim": 8, "hidden_dim": 16, "n_layers": 1, "n_heads": 2, "max_position_embeddings": 8}
    model = transformers.DistilBertForSequenceClassification(transformers.DistilBertConfig(num_labels=2, **sizes))

    class Adapter(nn.Module):
        def __init__(self, base: nn.Linear) -> None:
            super().__init__()
            self.base = base

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return functional.linear(x, self.base.weight * 2, self.base.bias)

    model.distilbert.transformer.layer[0].ffn.lin1 = Adapter(model.distilbert.transformer.layer[0].ffn.lin1)

    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedded, self.model = nn.Linear(3, 8), model

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.model(inputs_embeds=self.embedded(x)).logits[:1].sum()

    found = {one["function"].split(".")[-2]: one.get("library") for one in told(Own(), torch.randn(4, 8, 3))}
    assert found == {"Adapter": "transformers", "Own": "transformers"}


def test_what_wraps_a_model_up_is_no_library_of_its_layers() -> None:
    """As accelerate does for mixed precision, by a function, and peft, by a module that has no layers beside."""
    package = types.ModuleType("wrappers")
    source = (
        "import torch\n"
        "class Wrapper(torch.nn.Module):\n"
        "    def __init__(self, model):\n"
        "        super().__init__()\n"
        "        self.model = model\n"
        "    def forward(self, *args):\n"
        "        return self.model(*args)\n"
        "def wrapped(model):\n"
        "    def forward(*args):\n"
        "        return model(*args)\n"
        "    return forward\n"
    )
    file = str(Path(torch.__file__).parents[1] / "wrappers.py")  # where libraries are installed
    exec(compile(source, file, "exec"), package.__dict__)
    model, ignored = Labelled(), labels(48)
    module = package.Wrapper(model)
    by_function = package.wrapped(model)

    class Own(nn.Module):
        def __init__(self, call: Any) -> None:
            super().__init__()
            self.call, self.model = call, model

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.call(x, ignored)

    for call in (module, by_function):
        found = told(Own(call), torch.randn(N, WIDTH))
        assert found and all("library" not in one for one in found)


def test_a_layer_of_ones_own_model_has_no_library() -> None:
    assert all("library" not in one for one in told(Labelled(), torch.randn(N, WIDTH), labels(48)))


@pytest.mark.parametrize("again", [False, True])
def test_rows_that_the_loss_leaves_out_are_counted_with_their_operations(again: bool) -> None:
    body, head = told(Labelled(again=again), torch.randn(N, WIDTH), labels(48))[::-1]
    # Of 128 rows 16 have a gradient; the head's products are one in forward (checkpointed: two) and two in backward.
    each = 2 * 2 * N * WIDTH * 20
    assert head["rows"] == body["rows"] == pytest.approx(1 - 16 / 128)
    assert (head["flops_forward"], head["flops_backward"]) == ((1 + again) * 0.875 * each, 2 * 0.875 * each)
    assert head["calls"] == 1 and head["shape"] == [2 * N, 20]
    assert head["text"] == "return torch.tanh(self.head(h))" and head["function"] == "Labelled.squashed"
    # The body's input needs no gradient: its weight's is the only product in backward.
    assert body["flops_backward"] == 0.875 * 2 * 2 * N * WIDTH * WIDTH


class Experts(nn.Module):
    """All experts compute all rows, and a mask of zeros and ones picks; ``routed``: each computes its own."""

    def __init__(self, *, routed: bool) -> None:
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.routed = routed

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        whose, out = torch.arange(N) % 4, torch.zeros(N, WIDTH)
        for number, expert in enumerate(self.experts):
            if self.routed:
                rows = torch.nonzero(whose == number)[:, 0]
                out = out.index_add(0, rows, expert(x[rows]))
            else:
                out = out + expert(x) * (whose == number)[:, None]
        return out


@pytest.mark.parametrize("needs_gradient", [False, True])
def test_experts_that_compute_the_rows_of_others_are_told_at_their_line(needs_gradient: bool) -> None:
    (one,) = told(Experts(routed=False), torch.randn(N, WIDTH, requires_grad=needs_gradient))
    each = 4 * 2 * N * WIDTH * WIDTH
    assert one["rows"] == pytest.approx(0.75) and one["calls"] == 4
    assert (one["flops_forward"], one["flops_backward"]) == (0.75 * each, (1 + needs_gradient) * 0.75 * each)
    assert one["text"].startswith("out = out + expert(x) * ")


def test_experts_with_rows_of_their_own_have_none() -> None:
    assert told(Experts(routed=True), torch.randn(N, WIDTH)) == []


def test_samples_without_a_gradient_are_rows_of_convolutions() -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convolution = nn.Conv2d(3, 4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.convolution(x).mean((1, 2, 3)) * (torch.arange(len(x)) % 4 == 0)

    (one,) = told(Masked(), torch.randn(16, 3, 6, 6))
    assert one["rows"] == pytest.approx(0.75) and one["operation"] == "convolution"
    assert one["flops_forward"] == 0.75 * 2 * 16 * 4 * 4 * 4 * 3 * 3 * 3


def test_zeros_inside_of_rows_are_no_rows_without_a_gradient() -> None:
    """A maximum over positions picks one of them for each feature, and leaves the others without by chance."""

    class Sparse(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = nn.Linear(WIDTH, 64), nn.Linear(64, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(functional.relu(self.body(x) - 1.0).amax(0, keepdim=True).expand(N, -1))

    assert told(Sparse(), torch.randn(N, WIDTH)) == []


def test_weights_shared_by_calls_and_by_layers_keep_each_gradient_at_its_line() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            used = self.first(x)
            left_out = self.second(x)  # three of four rows
            return used.sum() + left_out[::4].sum()

    (one,) = told(Twice(), torch.randn(N, WIDTH))
    assert one["text"].startswith("left_out = self.second(x)") and one["rows"] == pytest.approx(0.75)
    assert one["flops_backward"] == 0.75 * 2 * N * WIDTH * 4


def test_a_row_in_a_thousand_is_not_taken_for_none() -> None:
    """The last position of each of four samples, say: that all rows are without a gradient has another reason."""
    rows = torch.zeros(4096, 32)
    assert Operands(1 << 20).zero_rows(rows, 0) == 1.0
    rows[:4] = 1.0
    assert Operands(1 << 20).zero_rows(rows, 0) == 1 - 4 / 4096
    # Where that is too much to look at, it is not said to be all.
    assert Operands(ROWS * COLUMNS + WHOLE_ROWS * 32).zero_rows(rows, 0) == pytest.approx(ROWS / (ROWS + 1))


def test_rows_are_drawn_and_those_that_seem_empty_are_looked_at_whole() -> None:
    operands = Operands(1 << 30)
    tensor = torch.zeros(4 * ROWS, 4 * COLUMNS)
    assert operands.zero_rows(tensor, 0) == operands.zero_rows(tensor, 1) == 1.0
    tensor[::2] = 1.0
    assert operands.zero_rows(tensor, 0) == pytest.approx(0.5, abs=0.2)
    assert operands.zero_rows(tensor.T, 1) == pytest.approx(0.5, abs=0.2)
    assert operands.zero_rows(tensor, 1) == 0.0
    # One number a row is hardly ever drawn, but seen in the rows that are looked at whole.
    one = torch.zeros(4 * ROWS, 1 << 16)
    one[:, 77] = 1.0
    assert operands.zero_rows(one, 0) == 0.0


def test_rows_are_not_looked_at_without_a_budget_or_where_there_are_none() -> None:
    wide = torch.zeros(16, 64)
    assert Operands(ROWS * COLUMNS + WHOLE_ROWS * 64 - 1).zero_rows(wide, 0) is None
    assert Operands(ROWS * COLUMNS + WHOLE_ROWS * 64).zero_rows(wide, 0) == 1.0
    many = Operands(1 << 30)
    assert many.zero_rows(torch.zeros(64), 0) is None and many.zero_rows(torch.zeros(1, 64), 0) is None
    assert many.zero_rows(torch.zeros(16, 64, dtype=torch.int64), 0) is None
    assert many.zero_rows(torch.zeros(16, 0), 0) is None


class Pooled(nn.Module):
    """A layer for 32 points of each sample, of which what is pooled over the points is used."""

    def __init__(self, pool: Any) -> None:
        super().__init__()
        self.first, self.inner, self.pool = nn.Linear(3, WIDTH), nn.Linear(WIDTH, WIDTH), pool

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.pool(torch.tanh(self.inner(torch.relu(self.first(x))))).square().sum()


@pytest.mark.parametrize(
    "pool",
    [
        lambda h: h.amax(1),
        lambda h: torch.aminmax(h, dim=1)[0],
        lambda h: h.new_zeros(4, h.shape[-1]).scatter_reduce(0, _group(h), h.flatten(0, 1), "amax"),
        lambda h: h.max(1)[0],
        lambda h: functional.max_pool1d(h.transpose(1, 2), 32),
        lambda h: functional.adaptive_max_pool1d(h.transpose(1, 2), 1),
        lambda h: functional.max_pool2d(h.transpose(1, 2)[..., None], (32, 1)),
        lambda h: h.topk(2, 1)[0],
        lambda h: h.sort(1)[0][:, :2],
        lambda h: h.kthvalue(9, 1)[0],
        lambda h: h.median(1)[0],
    ],
)
def test_rows_that_a_maximum_did_not_choose_are_told_as_such(pool: Any) -> None:
    found = told(Pooled(pool), torch.randn(16, 32, 3))
    assert found and all(one["rows"] > 0.3 and one["chosen"] == 1 for one in found)


def _group(h: torch.Tensor) -> torch.Tensor:
    return (torch.arange(h.shape[0] * h.shape[1]) % 4)[:, None].expand(-1, h.shape[-1])


@pytest.mark.parametrize(
    "loss",
    [
        lambda h: h.new_zeros(4, WIDTH).scatter_reduce(0, _group(h), h.flatten(0, 1) * _some(h).flatten(0, 1), "sum"),
        lambda h: ((h - h.max(-1, keepdim=True)[0]).exp() * _some(h)).sum(),  # a softmax's, whose gradients are added
    ],
)
def test_rows_that_are_masked_beside_a_choice_are_not_chosen(loss: Any) -> None:
    found = told(Pooled(loss), torch.randn(16, 32, 3))
    assert found and all(one["rows"] > 0.3 and one["chosen"] == 0 for one in found)


def _some(h: torch.Tensor) -> torch.Tensor:
    return (torch.arange(h.shape[1]) % 4 == 0).float()[:, None].expand_as(h)


def test_rows_that_are_left_out_otherwise_are_not_chosen() -> None:
    first = told(Pooled(lambda h: h[:, 0]), torch.randn(16, 32, 3))
    larger = told(Pooled(lambda h: torch.maximum(h[:, :1], h[:, 1:2])), torch.randn(16, 32, 3))
    found = [*first, *larger, *told(Labelled(), torch.randn(N, WIDTH), labels(48))]
    assert found and all(one["rows"] > 0.3 and one["chosen"] == 0 for one in found)


def test_what_lies_where_a_chosen_gradient_lay_is_not_chosen() -> None:
    """A maximum whose gradient is let go before the labelled layer's backward begins."""
    pooled, labelled = Pooled(lambda h: h.amax(1)), Labelled()

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.pooled, self.labelled = pooled, labelled

        def forward(self, x: torch.Tensor, points: torch.Tensor) -> torch.Tensor:
            return self.labelled(x, labels(48)) + self.pooled(points)

    parts = {one["chosen"] for one in told(Both(), torch.randn(N, WIDTH), torch.randn(16, 32, 3))}
    assert parts == {0.0, 1.0}
