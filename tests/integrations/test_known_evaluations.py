"""Calls in evaluation mode whose answers were known: by the same inputs, weights and answer."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from perf_diagnostics.integrations import attach
from perf_diagnostics.integrations.model.known_evaluations import KnownEvaluations
from perf_diagnostics.records import TrialResult
from perf_diagnostics.store.find import list_runs


class Clock:
    """A call takes as long as a test says."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


class Asked:
    """A model that is asked; each call takes 1 s."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.clock = Clock()
        self.seen = KnownEvaluations(self.clock)
        self.model = model.eval()

    def __call__(self, *args: object, **kwargs: object) -> object:
        call = self.seen.begins(self.model, args, kwargs)
        with torch.no_grad():
            made = self.model(*args, **kwargs)
        if call is None:
            return made
        self.clock.now += 1_000_000_000
        return self.seen.ends(call, made)

    @property
    def known(self) -> tuple[object, object, object]:
        facts = self.seen.facts()
        return facts["evaluation_calls"], facts["evaluation_calls_known"], facts["evaluation_calls_known_s"]


def test_the_same_input_is_known_again_in_a_copy_as_well() -> None:
    asked = Asked(torch.nn.Linear(8, 4))
    x, y = torch.randn(3, 8), torch.randn(3, 8)
    for given in (x, y, x.clone(), x[:2], y):
        asked(given)
    assert asked.known == (5, 2, 2.0)


def test_other_weights_give_other_answers_and_are_seen_by_themselves() -> None:
    model = torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(30)])
    asked, x = Asked(model), torch.randn(3, 8)
    averages = {name: value + 0.01 for name, value in model.state_dict().items()}
    asked(x)
    kept = {name: value.clone() for name, value in model.state_dict().items()}
    for parameter, value in zip(model.parameters(), averages.values(), strict=True):
        parameter.data.copy_(value)  # which no version of the parameter tells
    asked(x)
    model.load_state_dict(kept)
    asked(x)
    assert asked.known == (3, 0, 0.0)


def test_models_that_are_asked_in_turn_have_answers_of_their_own() -> None:
    clock = Clock()
    seen, towers = KnownEvaluations(clock), [torch.nn.Linear(8, 4).eval() for _ in range(2)]
    gallery = torch.randn(20, 8)
    with torch.no_grad():
        for _ in range(5):
            for model, given in zip(towers, (torch.randn(3, 8), gallery), strict=True):
                call = seen.begins(model, (given,), {})
                assert call is not None
                clock.now += 1_000_000_000
                seen.ends(call, model(given))
    facts = seen.facts()
    assert (facts["evaluation_calls"], facts["evaluation_calls_known"]) == (10, 4)


class Functions(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[object] = []

    def __torch_function__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.seen.append(function)
        return function(*args, **(kwargs or {}))


class Operators(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[object] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.seen.append(function)
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("kind", [Functions, Operators])
def test_a_mode_of_the_users_sees_nothing_of_it(kind: type[Functions | Operators]) -> None:
    seen, model, x = KnownEvaluations(), torch.nn.Linear(8, 4).eval(), torch.randn(3, 8)
    with torch.no_grad():
        made = model(x)
    with kind() as mode:
        for _ in range(2):
            call = seen.begins(model, (x,), {})
            assert call is not None
            seen.ends(call, made)
    assert mode.seen == [] and seen.facts()["evaluation_calls_known"] == 1


class Wrapped(torch.Tensor):
    """A kind of tensor of the user's."""


def test_other_kinds_of_tensors_are_left_alone() -> None:
    asked = Asked(torch.nn.Linear(8, 4))
    asked(torch.randn(3, 8).as_subclass(Wrapped))
    assert asked.seen.facts() == {}


def test_an_answer_that_is_drawn_is_never_known() -> None:
    class Samples(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + torch.randn_like(x)

    asked, x = Asked(Samples()), torch.randn(3, 8)
    asked(x)
    asked(x)
    assert asked.known == (2, 0, 0.0)


def test_all_that_a_call_is_given_counts() -> None:
    class Two(torch.nn.Module):
        def forward(self, x: torch.Tensor, *, state: object = None, wide: bool = False) -> dict[str, torch.Tensor]:
            return {"out": x * 2 if wide else x}

    asked, x = Asked(Two()), torch.randn(3, 8)
    asked(x, wide=False)
    asked(x, wide=True)
    asked(x, wide=True)
    assert asked.known == (3, 1, 1.0)
    asked(x, state=object())  # what an object holds is not known
    assert asked.known[0] == 3


def test_large_inputs_are_read_in_part_and_other_rows_are_other_inputs() -> None:
    asked = Asked(torch.nn.Flatten())
    images = torch.randn(64, 3, 64, 64).to(memory_format=torch.channels_last)
    asked(images)
    asked(images.flip(0))
    asked(images.clone())
    assert asked.known == (3, 1, 1.0)


@pytest.mark.parametrize("kind", ["16 bits", "gradients"])
def test_what_cannot_be_read_is_left_alone_and_soon_not_looked_at(kind: str) -> None:
    model = torch.nn.Linear(8, 4)
    asked, x = Asked(model.bfloat16() if kind == "16 bits" else model), torch.randn(3, 8)
    x = x.bfloat16() if kind == "16 bits" else x.requires_grad_()
    for _ in range(60):
        assert asked(x) is not None
    assert asked.seen.facts() == {} and not asked.seen.wanted


def test_quick_calls_are_not_looked_at_for_long() -> None:
    seen, model, x = KnownEvaluations(), torch.nn.Linear(8, 4).eval(), torch.randn(3, 8)
    with torch.no_grad():
        for _ in range(60):
            call = seen.begins(model, (x,), {})
            assert call is not None
            seen.ends(call, model(x))
    assert not seen.wanted and seen.facts() == {}


def test_where_reading_is_dear_the_other_calls_are_only_timed() -> None:
    class Slowly(Clock):
        def __call__(self) -> int:
            self.now += 1_000_000  # so long each reading of the clock takes
            return self.now

    clock, model = Slowly(), torch.nn.Linear(8, 4).eval()
    seen, inputs = KnownEvaluations(clock), [torch.randn(3, 8) for _ in range(5)]
    with torch.no_grad():
        for number in range(200):
            call = seen.begins(model, (inputs[number % 5],), {})
            assert call is not None
            seen.ends(call, model(inputs[number % 5]))
    facts = seen.facts()
    # Five of the fifty that were read were new.
    assert facts["evaluation_calls_read"] == 50
    assert seen.wanted and facts["evaluation_calls"] == 200 and facts["evaluation_calls_known"] == 180
    assert facts["evaluation_calls_known_s"] == pytest.approx(0.9 * 200 * 1e-3)


@pytest.mark.parametrize("again", [True, False])
def test_a_gallery_that_is_encoded_for_each_batch_of_queries_is_told(again: bool, tmp_path: Path) -> None:
    encoder = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(4)])
    optimizer = torch.optim.SGD(encoder.parameters(), lr=0.01)
    gallery, queries = torch.randn(2000, 256), [torch.randn(100, 256) for _ in range(5)]
    with attach(encoder, optimizer, name="one", results_dir=tmp_path):
        for step in range(12):
            encoder(torch.randn(32, 256)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            if step % 4 == 3:
                encoder.eval()
                with torch.no_grad():
                    kept = encoder(gallery)
                    for one in queries:
                        (encoder(one) @ (encoder(gallery) if again else kept).T).topk(5)
                encoder.train()
    (result,) = _results(tmp_path)
    assert result.facts["evaluation_calls"] == 3 * (11 if again else 6)
    assert result.facts["evaluation_calls_known"] == (3 * 5 if again else 0)
    known_s = result.facts["evaluation_calls_known_s"]
    assert isinstance(known_s, float) and (known_s > 0) is again


def _results(folder: Path) -> list[TrialResult]:
    (run,) = list_runs(folder)
    return list(run.read().results)
