"""Counted operations and bytes against arithmetic by hand, and against torch's own counter on a real step."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from perf_diagnostics.records import Settings
from perf_diagnostics.trials.count import count_work as counting
from perf_diagnostics.trials.count.count_work import FAKE, REAL, count_work
from perf_diagnostics.trials.count.counts import Work, counting_settings, six_n_disagrees
from perf_diagnostics.trials.count.operators import Operators
from perf_diagnostics.workloads import registry
from perf_diagnostics.workloads.workload import BatchCount, Training

B = 3


def training(model: nn.Module, *batches: Any, **parts: Any) -> Training:
    def loss_of(made: nn.Module, batch: Any) -> torch.Tensor:
        found: torch.Tensor = made(batch).sum()
        return found

    def count(batch: torch.Tensor) -> BatchCount:
        return BatchCount(batch.shape[0], *((batch.numel(), 0) if parts.get("tokens") else ()))

    optimizer = parts.get("optimizer") or torch.optim.SGD(model.parameters(), lr=0.1)
    return Training(model=model, optimizer=optimizer, batches=list(batches), loss_of=loss_of, count=count)


def one_batch(model: nn.Module, batch: torch.Tensor, precision: str = "float32") -> Work:
    """The work of one batch: the same batch comes 64 times, and is counted once."""
    work = count_work(training(model, batch), precision)
    assert work.shapes == 1
    return work


def flops(model: nn.Module, batch: torch.Tensor) -> float:
    work = one_batch(model, batch)
    return work.flops / work.batches


def test_a_perceptron_is_six_times_its_weights_less_the_first_input_gradient() -> None:
    sizes = [16, 32, 8, 4]
    pairs = list(itertools.pairwise(sizes))
    model = nn.Sequential(*(nn.Linear(*pair) for pair in pairs))
    # Forward, input gradient and weight gradient are 2·B·in·out each; nobody wants the gradient of the data.
    by_hand = 6 * B * sum(i * o for i, o in pairs) - 2 * B * 16 * 32
    assert flops(model, torch.ones(B, 16)) == by_hand


def test_frozen_weights_save_their_own_gradient_and_nothing_else() -> None:
    model = nn.Sequential(nn.Linear(8, 8, bias=False), nn.Linear(8, 16, bias=False), nn.Linear(16, 4, bias=False))
    model[1].weight.requires_grad_(False)
    # As with LoRA: the frozen layer keeps its forward and its input gradient.
    by_hand = (2 + 2) * B * 64 + (2 + 2) * B * 128 + 6 * B * 64
    assert flops(model, torch.ones(B, 8)) == by_hand


def test_all_frozen_before_the_trained_head_computes_forward_only() -> None:
    model = nn.Sequential(nn.Linear(8, 16, bias=False), nn.Linear(16, 4, bias=False))
    model[0].weight.requires_grad_(False)
    assert flops(model, torch.ones(B, 8)) == 2 * B * 128 + (2 + 2) * B * 64


class Attention(nn.Module):
    """Causal attention of a learned query, key and value: nothing else computes."""

    def __init__(self, heads: int, length: int, width: int) -> None:
        super().__init__()
        self.parts = nn.Parameter(torch.randn(3, 1, heads, length, width))

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        q, k, v = (part.expand(len(batch), -1, -1, -1) for part in self.parts)
        return functional.scaled_dot_product_attention(q, k, v)


def test_attention_counts_two_products_forward_and_five_backward() -> None:
    # Fused backward computes the scores again: 2 products of 2·L²·d forward, 5 backward, for each head of each row.
    heads, length, width = 2, 16, 8
    assert flops(Attention(heads, length, width), torch.ones(B, 1)) == 7 * 2 * B * heads * length**2 * width


def test_a_convolution_is_its_filters_at_every_pixel() -> None:
    model = nn.Conv2d(3, 5, 3, bias=False)
    # 10 x 10 in, 8 x 8 out; forward and weight gradient, as images want none.
    assert flops(model, torch.ones(B, 3, 10, 10)) == 2 * 2 * B * 5 * 8 * 8 * 3 * 3 * 3


class Checkpointed(nn.Module):
    def __init__(self, *, again: bool) -> None:
        super().__init__()
        self.again = again
        self.head = nn.Linear(8, 8, bias=False)
        self.body = nn.Sequential(nn.Linear(8, 32, bias=False), nn.ReLU(), nn.Linear(32, 8, bias=False))

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        hidden = self.head(batch)
        found: torch.Tensor = checkpoint(self.body, hidden, use_reentrant=False) if self.again else self.body(hidden)
        return found


def test_checkpointing_counts_the_forward_pass_again() -> None:
    plain, again = (one_batch(Checkpointed(again=on), torch.ones(B, 8)) for on in (False, True))
    # What the last layer's backward needs is computed up to its input: one of the body's two products, at least.
    assert plain.recomputed_flops == 0
    assert again.flops - plain.flops == again.recomputed_flops
    assert again.recomputed_flops / again.batches in (2 * B * 256, 2 * B * 512)


@pytest.mark.parametrize("name", ["mlp", "tiny-transformer"])
def test_fake_tensors_count_what_torchs_counter_counts_on_a_real_step(name: str) -> None:
    def build() -> Training:
        settings = counting_settings(Settings(batch_size=4))
        return registry.find(name).build(settings, options={"samples": 64}, seed=0)

    real = build()
    batch = next(iter(real.batches))
    with FlopCounterMode(display=False) as counter:
        real.loss_of(real.model, batch).backward()  # type: ignore[no-untyped-call]
    fake = build()
    fake.batches = [batch]
    work = count_work(fake, "float32")
    assert work.method == FAKE
    assert work.flops / work.batches == counter.get_total_flops()


class LooksAtValues(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 4, bias=False)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        hidden = self.layer(batch)
        found: torch.Tensor = hidden if float(hidden.sum()) > 0 else -hidden
        return found


def test_a_model_that_looks_at_values_costs_a_real_step() -> None:
    work = one_batch(LooksAtValues(), torch.ones(B, 8))
    assert work.method == REAL
    assert work.flops / work.batches == (2 + 2) * B * 32


@pytest.mark.parametrize("model", [nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4)), LooksAtValues()])
def test_counting_leaves_the_training_as_it_was(model: nn.Module) -> None:
    parts = training(model, torch.ones(B, 8))
    before = [(p, p.detach().clone()) for p in model.parameters()]
    count_work(parts, "float32")
    assert all(now is old and torch.equal(now, was) for now, (old, was) in zip(model.parameters(), before, strict=True))
    assert all(p.grad is None for p in model.parameters())
    assert not parts.optimizer.state
    assert parts.optimizer.param_groups[0]["params"] == [p for p, _ in before]
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_a_compiled_model_is_counted_and_not_compiled_again() -> None:
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    layer = nn.Linear(8, 4, bias=False)
    compiled: Any = torch.compile(layer, backend="eager")
    batch = torch.ones(B, 8)
    compiled(batch)
    graphs = counters["stats"]["unique_graphs"]
    assert flops(compiled, batch) == (2 + 2) * B * 32
    compiled(batch)
    assert counters["stats"]["unique_graphs"] == graphs
    torch._dynamo.reset()


def test_each_shape_is_counted_once_and_every_batch_weighs(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, ...]] = []
    whole: Callable[..., Any] = counting._counted_batch

    def watched(parts: Training, batch: torch.Tensor, precision: str) -> Any:
        seen.append(tuple(batch.shape))
        return whole(parts, batch, precision)

    monkeypatch.setattr(counting, "_counted_batch", watched)
    monkeypatch.setattr(counting, "_BATCHES", 4)
    model = nn.Linear(8, 4, bias=False)
    work = count_work(training(model, torch.ones(2, 8), torch.ones(2, 8), torch.ones(5, 8), tokens=True), "float32")
    assert seen == [(2, 8), (5, 8)]
    # The fourth batch is the first one again: 2 + 2 + 5 + 2 rows.
    assert (work.batches, work.shapes, work.samples, work.tokens) == (4, 2, 11, 88)
    assert work.flops == 4 * 11 * 32


def test_the_time_that_is_over_ends_it_after_one_batch() -> None:
    ticks = iter(range(100))
    work = count_work(
        training(nn.Linear(2, 2), torch.ones(1, 2)), "float32", seconds=0.5, clock=lambda: float(next(ticks))
    )
    assert work.batches == 1


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_recurrent_layers_are_counted_by_their_products(kind: Any) -> None:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = kind(4, 4, bias=False, batch_first=True)

        def forward(self, batch: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = self.layer(batch)[0]
            return found

    work = one_batch(Recurrent(), torch.ones(B, 5, 4))
    gates = 4 if kind is nn.LSTM else 3
    # Input and hidden products of all steps forward; backward the gradient of both weights, and that of the state
    # between steps.
    forward = 2 * B * 5 * gates * (16 + 16)
    assert not work.uncounted
    assert 2 * forward <= work.flops / work.batches <= 3 * forward


def test_sixteen_bits_halve_what_activations_move() -> None:
    full, half = (one_batch(nn.Linear(64, 64, bias=False), torch.ones(64, 64), p) for p in ("float32", "bfloat16"))
    assert full.flops == half.flops
    # With a cast of the weight and of the input on top, which a lone layer does not win back.
    assert half.traffic_bytes != full.traffic_bytes


# -- traffic


def traffic(work: Callable[[], object]) -> float:
    with Operators() as operators:
        work()
    return operators.traffic_bytes


X = torch.ones(100)
TABLE = torch.ones(1000, 10)


@pytest.mark.parametrize(
    ("work", "numbers"),
    [
        (lambda: X + X.clone(), 100 + 100 + 300),  # the clone reads and writes; the sum reads two and writes one
        (lambda: X + X, 200),  # one operand, read once
        (lambda: X.view(10, 10).t()[2:], 0),
        (lambda: X.expand(50, 100) * 2.0, 100 + 5000),  # expanded: read from the same place
        (lambda: torch.empty(10_000), 0),
        (lambda: torch.zeros(100), 100),
        (lambda: X.clone().mul_(2.0), 200 + 200),
        (lambda: X.clone().zero_(), 200 + 100),
        (lambda: functional.embedding(torch.tensor([1, 2, 3]), TABLE), 30 + 30 + 2 * 3),  # rows; 64-bit numbers
    ],
)
def test_each_operand_once(work: Callable[[], object], numbers: int) -> None:
    # In float32 numbers of 4 bytes; making the index tensor writes and reads nothing of its own.
    assert traffic(work) == pytest.approx(4 * numbers, abs=4 * 12)


def update_bytes(optimizer: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]) -> float:
    model = nn.Linear(100, 100, bias=False)
    work = count_work(training(model, torch.ones(1, 100), optimizer=optimizer(model.parameters())), "float32")
    assert work.update_bytes is not None
    return work.update_bytes / 10_000


def test_a_fused_adamw_moves_28_bytes_a_parameter() -> None:
    # Parameter, gradient and two moments read, parameter and two moments written, at 4 bytes.
    assert update_bytes(lambda p: torch.optim.AdamW(p, fused=True)) == pytest.approx(28)


def test_plain_sgd_moves_12_and_adamw_by_tensor_more_than_fused() -> None:
    assert update_bytes(lambda p: torch.optim.SGD(p, lr=0.1, foreach=False)) == pytest.approx(12)
    assert update_bytes(lambda p: torch.optim.AdamW(p, foreach=False)) > 28


def test_an_optimizer_that_wants_a_closure_has_no_traffic_and_the_rest_is_counted() -> None:
    model = nn.Linear(8, 4)
    work = count_work(training(model, torch.ones(B, 8), optimizer=torch.optim.LBFGS(model.parameters())), "float32")
    assert work.update_bytes is None
    assert work.flops > 0


# -- 6 N


class Language(nn.Module):
    def __init__(self, *, tied: bool) -> None:
        super().__init__()
        self.table = nn.Embedding(50, 32)
        self.body = nn.Linear(32, 32, bias=False)
        self.scores = nn.Linear(32, 50, bias=False)
        if tied:
            self.scores.weight = self.table.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.scores(self.body(self.table(tokens)))
        return found


@pytest.mark.parametrize("tied", [True, False])
def test_six_n_leaves_out_a_table_that_is_only_looked_up(tied: bool) -> None:
    work = count_work(training(Language(tied=tied), torch.ones(2, 10, dtype=torch.long), tokens=True), "float32")
    assert work.six_n_flops == 6 * (32 * 32 + 32 * 50) * 20 * work.batches
    assert work.flops == work.six_n_flops
    assert six_n_disagrees(work) == ""


class Half(Language):
    """A mixture of experts of sorts: each of two bodies sees half of the tokens."""

    def __init__(self) -> None:
        super().__init__(tied=False)
        self.other = nn.Linear(32, 32, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.table(tokens)
        half = hidden.shape[1] // 2
        found: torch.Tensor = self.scores(torch.cat([self.body(hidden[:, :half]), self.other(hidden[:, half:])], 1))
        return found


def test_parameters_that_do_not_meet_every_token_are_remarked_on() -> None:
    work = count_work(training(Half(), torch.ones(2, 10, dtype=torch.long), tokens=True), "float32")
    # 1024 of 3648 parameters are idle for each token: 2624 / 3648.
    assert f"{2624 / 3648:.2f} times" in six_n_disagrees(work)


def test_six_n_is_for_language_models_with_tokens() -> None:
    assert one_batch(nn.Linear(8, 4), torch.ones(B, 8)).six_n_flops is None
    without_tokens = count_work(training(Language(tied=True), torch.ones(2, 10, dtype=torch.long)), "float32")
    assert without_tokens.six_n_flops is None
