"""Calls without gradients that begin with all that the call before was given, and those that do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from perf_diagnostics.integrations.shield import LoopObservations
from perf_diagnostics.measure.one_step import look as look_module
from perf_diagnostics.measure.one_step.look import StepLook
from perf_diagnostics.measure.one_step.prefixes_again import _AN_OPERATOR_S, SIGNAL, Grown, PrefixesAgain, _Calls
from perf_diagnostics.records import Json

ROWS, PROMPT, NEW, TOKENS, WIDTH = 3, 2, 8, 20, 16


class Generator(nn.Module):
    """Attention over tokens, looking back only where it is ``causal``; it gives all positions, or the ``last``."""

    def __init__(self, *, causal: bool = True, last: bool = False, dropout: float = 0.0) -> None:
        super().__init__()
        self.causal, self.only_last, self.dropout = causal, last, dropout
        self.table, self.places = nn.Embedding(TOKENS, WIDTH), nn.Embedding(32, WIDTH)
        self.inner, self.outer = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, TOKENS)

    def forward(self, tokens: torch.Tensor, kept: list[torch.Tensor] | None = None) -> torch.Tensor:
        at = 0 if kept is None or not kept else kept[0].shape[1]
        x = self.table(tokens) + self.places(torch.arange(at, at + tokens.shape[1]))
        query, key, value = self.inner(functional.dropout(x, self.dropout, self.training)).chunk(3, -1)
        if kept is not None:
            key, value = (torch.cat(both, 1) for both in zip(kept, (key, value), strict=True)) if kept else (key, value)
            kept[:] = [key, value]
        x = functional.scaled_dot_product_attention(query, key, value, is_causal=self.causal and not at)
        out: torch.Tensor = self.outer(x[:, -1:] if self.only_last else x)
        return out


def extended(tokens: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    return torch.cat([tokens, scores[:, -1:].argmax(-1)], 1)


@torch.no_grad()
def generate(model: nn.Module, tokens: torch.Tensor, new: int = NEW) -> torch.Tensor:
    for _ in range(new):
        tokens = extended(tokens, model(tokens))  # the line that is told
    return tokens


def prompt() -> torch.Tensor:
    return torch.randint(TOKENS, (ROWS, PROMPT))


Roll = Callable[[nn.Module], torch.Tensor]


def told(model: nn.Module, roll: Roll, *, around: bool = False, evaluates: bool = False) -> list[Any]:
    """What is told of a step that makes its batch by a rollout; ``around``: what lies around models is seen, too."""
    torch.manual_seed(0)
    observations = LoopObservations()
    looks = StepLook(observations, lambda: [model], elsewhere=(lambda: False) if around else None)
    assert looks.may_begin(look_module.STEADY_STEPS)
    looks.begin(several=False)
    try:
        model.train(not evaluates)
        tokens = roll(model)
        model.train()
        model(tokens).square().mean().backward()
    finally:
        looks.end()
    assert not observations.gaps
    assert torch._C._len_torch_dispatch_stack() == 0
    found = looks.facts[SIGNAL]
    assert isinstance(found, list)
    return found


@pytest.mark.parametrize("evaluates", [False, True])
@pytest.mark.parametrize("around", [False, True])
@pytest.mark.parametrize("last", [False, True])
def test_positions_that_are_computed_again_are_counted(around: bool, evaluates: bool, last: bool) -> None:
    (one,) = told(Generator(last=last), lambda model: generate(model, prompt()), around=around, evaluates=evaluates)
    # Calls of 2 to 9 positions, of which the first has none before it.
    assert (one["calls"], one["rows"], one["longest"]) == (NEW - 1, ROWS, PROMPT + NEW - 1)
    assert one["positions"] == ROWS * sum(range(3, 10)) and one["positions_again"] == ROWS * sum(range(2, 9))
    assert (one["function"], "the line that is told" in one["text"]) == ("generate", True)
    assert 0 <= one["seconds_again_least"] <= one["seconds_again"] <= one["seconds_again_most"] < one["seconds"]


def test_with_dropout_a_mask_says_that_nothing_before_changes() -> None:
    def roll(model: nn.Module) -> torch.Tensor:
        return generate(model, prompt())

    assert len(told(Generator(dropout=0.5), roll)) == 1
    assert told(Generator(dropout=0.5, causal=False), roll) == []


def test_several_rollouts_of_a_line_count_together() -> None:
    def roll(model: nn.Module) -> torch.Tensor:
        return torch.cat([generate(model, prompt()) for _ in range(3)])

    (one,) = told(Generator(), roll)
    assert one["calls"] == 3 * (NEW - 1)


def test_what_is_given_beside_and_stays_the_same_does_not_matter() -> None:
    class Conditional(Generator):
        def forward(self, tokens: torch.Tensor, source: torch.Tensor | None = None, **_: Any) -> torch.Tensor:
            return super().forward(tokens)

    source = torch.randn(ROWS, 4)

    @torch.no_grad()
    def roll(model: nn.Module) -> torch.Tensor:
        tokens = prompt()
        for _ in range(NEW):
            tokens = extended(tokens, model(tokens, source=source, mask=torch.ones_like(tokens)))
        return tokens

    assert len(told(Conditional(), roll)) == 1


def test_numbers_in_the_place_of_tokens_are_compared_as_well() -> None:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = nn.GRU(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.cell(x)[0]
            return out

    @torch.no_grad()
    def roll(model: nn.Module) -> torch.Tensor:
        x = torch.randn(2, ROWS, 4)
        for _ in range(NEW):
            x = torch.cat([x, model(x)[-1:]])
        return x

    (one,) = told(Recurrent(), roll)
    assert one["rows"] == 1 and one["positions_again"] == sum(range(2, 9))


def _quiet() -> dict[str, tuple[nn.Module, Roll]]:
    @torch.no_grad()
    def with_a_cache(model: nn.Module) -> torch.Tensor:
        tokens = new = prompt()
        kept: list[torch.Tensor] = []
        for _ in range(NEW):
            scores = model(new, kept)
            new = scores[:, -1:].argmax(-1)
            tokens = torch.cat([tokens, new], 1)
        return tokens

    @torch.no_grad()
    def others_each_time(model: nn.Module) -> torch.Tensor:
        for more in range(NEW):
            model(torch.randint(TOKENS, (ROWS, 9 + more)))
        return prompt()

    @torch.no_grad()
    def the_last_few(model: nn.Module) -> torch.Tensor:
        tokens = prompt()
        for _ in range(NEW):
            tokens = extended(tokens, model(tokens[:, -PROMPT:]))
        return tokens

    @torch.no_grad()
    def again_and_again(model: nn.Module) -> torch.Tensor:
        tokens = prompt()
        for _ in range(NEW):
            model(tokens)
        return tokens

    @torch.no_grad()
    def more_rows(model: nn.Module) -> torch.Tensor:
        """No sequence: but rows of a batch, of which attention knows none of the others."""
        tokens = prompt()
        for _ in range(2):
            tokens = torch.cat([tokens, torch.randint(TOKENS, (1, PROMPT))])
            model(tokens)
        return tokens

    def with_gradients(model: nn.Module) -> torch.Tensor:
        tokens = prompt()
        for _ in range(NEW):
            tokens = extended(tokens, model(tokens))
        return tokens

    return {
        "looks ahead": (Generator(causal=False), lambda model: generate(model, prompt())),
        "few": (Generator(), lambda model: generate(model, prompt(), 4)),
        "cache": (Generator(), with_a_cache),
        "others": (Generator(), others_each_time),
        "window": (Generator(), the_last_few),
        "the same": (Generator(), again_and_again),
        "rows": (Generator(), more_rows),
        "gradients": (Generator(), with_gradients),
    }


@pytest.mark.parametrize("around", [False, True])
@pytest.mark.parametrize("name", sorted(_quiet()))
def test_other_calls_are_not_told(name: str, around: bool) -> None:
    assert told(*_quiet()[name], around=around) == []


def test_what_a_cache_saves_is_what_earlier_positions_took() -> None:
    calls = _Calls({})
    calls.causal, calls.operators = True, 1000  # of which each takes some microseconds, however few positions
    floor = 1000 * _AN_OPERATOR_S
    # Two calls were looked at and have no time of their own: a position took 1 ms in the others.
    for positions, seconds in ((10, None), (20, None), (30, 0.03), (40, 0.04)):
        calls.grown.append((Grown(5, positions, positions - 2), seconds))
    one = calls.entry()
    assert one is not None
    assert one["seconds"] == pytest.approx(0.1) and one["seconds_again_most"] == pytest.approx(0.1 - 4 * 0.002)
    assert one["seconds_again"] == pytest.approx(0.1 - 4 * floor)
    assert one["seconds_again_least"] == pytest.approx(0.01)  # the shortest timed one took 0.03
    assert (one["positions"], one["positions_again"]) == (500, 460)


def test_why_recurrent_layers_are_not_told_stands_only_where_nothing_is() -> None:
    facts: dict[str, Json] = {SIGNAL: [{"recurrent": "GRU"}], "other": 1}
    gaps = {"another": "no"}
    PrefixesAgain().join(facts, gaps)
    assert facts == {SIGNAL: [{"recurrent": "GRU"}], "other": 1} and gaps == {"another": "no"}
    facts, gaps = {}, {SIGNAL: "too many operators"}
    PrefixesAgain().join(facts, gaps)
    assert facts == {} and gaps == {SIGNAL: "too many operators"}


def test_an_error_of_the_models_passes_and_all_comes_off() -> None:
    class Breaks(Generator):
        def forward(self, tokens: torch.Tensor, kept: Any = None) -> torch.Tensor:
            if tokens.shape[1] == 5:
                raise RuntimeError("too long")
            return super().forward(tokens)

    model = Breaks()
    looks = StepLook(LoopObservations(), lambda: [model])
    looks.begin(several=False)
    with pytest.raises(RuntimeError, match="too long"):
        generate(model, prompt())
    looks.end()
    assert torch._C._len_torch_dispatch_stack() == 0


def test_on_a_device_it_is_said_that_nothing_is_compared() -> None:
    class Elsewhere(nn.Linear):
        def forward(self, _: torch.Tensor) -> torch.Tensor:
            return super().forward(torch.zeros(2, 4))

    model, observations = Elsewhere(4, 4), LoopObservations()
    looks = StepLook(observations, lambda: [model])
    looks.begin(several=False)
    with torch.no_grad():
        model(torch.zeros(2, 4, device="meta"))
    model(torch.zeros(2, 4)).sum().backward()
    looks.end()
    assert SIGNAL not in looks.facts
    assert ["on a device" in gap.why for gap in observations.gaps if gap.signal == SIGNAL] == [True]
