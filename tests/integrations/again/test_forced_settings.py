"""Settings that are put into torch in place of a script's own."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from perf_diagnostics.errors import InvalidSettings
from perf_diagnostics.integrations.again import forced_settings
from perf_diagnostics.integrations.again.again import Again
from perf_diagnostics.integrations.again.forced_settings import ForcedSettings
from perf_diagnostics.integrations.again.forcible import (
    FORCIBLE,
    check_forced,
    note_of,
    steps_until_effect,
    why_not_forced,
)
from perf_diagnostics.records import Outcome, Settings


@pytest.fixture
def patches() -> Iterator[ExitStack]:
    with ExitStack() as patches:
        yield patches


def forced(patches: ExitStack, **settings: Any) -> ForcedSettings:
    made = ForcedSettings(settings)
    made.install(patches)
    return made


def numbers() -> TensorDataset:
    return TensorDataset(torch.arange(8.0))


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(4))


def test_loaders_take_the_workers_that_are_forced_and_no_longer_afterwards(patches: ExitStack) -> None:
    original = DataLoader.__init__
    made = forced(patches, num_workers=2, persistent_workers=True, prefetch_factor=3)
    assert made.without_effect()
    named, by_place = DataLoader(numbers(), batch_size=2), DataLoader(numbers(), 2, False, None, None, 1)
    for loader in (named, by_place):
        assert (loader.num_workers, loader.persistent_workers, loader.prefetch_factor) == (2, True, 3)
        assert loader.batch_size == 2
    assert not made.without_effect()
    patches.close()
    assert DataLoader.__init__ is original
    assert DataLoader(numbers()).num_workers == 0


@pytest.mark.parametrize(
    ("settings", "steps"),
    [
        ({"threads": 2}, 0),
        ({"num_workers": 4}, 8),
        ({"num_workers": 4, "prefetch_factor": 3}, 12),
        ({"num_workers": 0}, 0),
        ({"ceiling": "cached_batches"}, 16),
        ({"compile_mode": "default"}, 5),
        ({"precision": "bfloat16"}, 0),
    ],
)
def test_what_was_loaded_before_the_first_step_is_no_gain(settings: dict[str, Any], steps: int) -> None:
    assert steps_until_effect(settings) == steps


def test_without_workers_what_only_workers_take_goes_too(patches: ExitStack) -> None:
    forced(patches, num_workers=0)
    loader = DataLoader(numbers(), num_workers=2, prefetch_factor=4, persistent_workers=True, timeout=5)
    assert (loader.num_workers, loader.prefetch_factor, loader.persistent_workers, loader.timeout) == (
        0,
        None,
        False,
        0,
    )
    assert len(list(loader)) == 8


def test_a_stream_keeps_its_workers_or_each_would_read_all_of_it(patches: ExitStack) -> None:
    made = forced(patches, num_workers=2)
    assert DataLoader(Stream()).num_workers == 0
    assert "num_workers=2 changed nothing" in made.without_effect()


def test_a_loader_refuses_wrong_arguments_in_the_words_of_torch(patches: ExitStack) -> None:
    forced(patches, num_workers=2)
    with pytest.raises(TypeError, match="unexpected keyword argument 'batchsize'"):
        DataLoader(numbers(), batchsize=2)  # type: ignore[call-arg]


def test_without_an_accelerator_pinning_changes_nothing(patches: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    made = forced(patches, pin_memory=True)
    assert not DataLoader(numbers()).pin_memory
    assert made.without_effect()
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    assert DataLoader(numbers()).pin_memory
    assert not made.without_effect()


def test_the_script_cannot_take_the_threads_back(patches: ExitStack) -> None:
    before = torch.get_num_threads()
    try:
        made = forced(patches, threads=2)
        torch.set_num_threads(1)
        assert torch.get_num_threads() == 2
        assert not made.without_effect()
        patches.close()
        torch.set_num_threads(1)
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("implementation", "flags"), [("single", (False, False)), ("foreach", (True, False)), ("fused", (False, True))]
)
def test_optimizers_take_the_implementation(implementation: str, flags: tuple[bool, bool], patches: ExitStack) -> None:
    made = forced(patches, optimizer_implementation=implementation)
    for kind in (torch.optim.AdamW, torch.optim.SGD):
        optimizer = kind([torch.nn.Parameter(torch.ones(2))], lr=0.1, foreach=True)
        assert (optimizer.defaults["foreach"], optimizer.defaults["fused"]) == flags
        assert optimizer.defaults["lr"] == 0.1
    assert not made.without_effect()


def test_an_optimizer_that_has_no_such_implementation_stays_as_it_is(patches: ExitStack) -> None:
    made = forced(patches, optimizer_implementation="fused")
    optimizer = torch.optim.Adadelta([torch.nn.Parameter(torch.ones(2))])
    assert "fused" not in optimizer.defaults
    assert "optimizer_implementation=fused changed nothing" in made.without_effect()


def test_the_collector_is_frozen_after_two_steps(patches: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    assert gc.isenabled()
    frozen: list[bool] = []
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(gc.isenabled()))
    parameter = torch.nn.Parameter(torch.ones(2))
    parameter.grad = torch.ones(2)
    optimizer = torch.optim.SGD([parameter])
    made = forced(patches, freeze_gc=True)
    try:
        optimizer.step()
        assert gc.isenabled() and not frozen
        optimizer.step()
        assert not gc.isenabled() and frozen
        assert not made.without_effect()
    finally:
        gc.enable()


def test_freed_memory_is_kept_or_said_to_be_given_back_as_before(
    patches: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[bool] = []
    monkeypatch.setattr(forced_settings, "keep_freed_memory", lambda: kept.append(True))
    assert not forced(patches, keep_freed_memory=True).without_effect() and kept

    def cannot() -> None:
        raise InvalidSettings("keep_freed_memory=True needs glibc's mallopt")

    monkeypatch.setattr(forced_settings, "keep_freed_memory", cannot)
    assert "keep_freed_memory=True changed nothing" in forced(patches, keep_freed_memory=True).without_effect()


def test_denormal_numbers_count_as_zero(patches: ExitStack) -> None:
    tiny = torch.full((4,), torch.finfo(torch.float32).tiny)
    try:
        assert not forced(patches, flush_denormals=True).without_effect()
        assert (tiny / 2 == 0).all()
    finally:
        torch.set_flush_denormal(False)


def test_masks_come_from_words_until_the_script_is_over_and_no_mask_is_no_effect(patches: ExitStack) -> None:
    x = torch.ones(64)
    torch.manual_seed(2)
    plain = torch.nn.functional.dropout(x)
    made = forced(patches, masks_from_bits=True)
    assert "masks_from_bits=True changed nothing" in made.without_effect()
    torch.manual_seed(2)
    assert not torch.equal(torch.nn.functional.dropout(x), plain) and not made.without_effect()
    patches.close()
    torch.manual_seed(2)
    assert torch.equal(torch.nn.functional.dropout(x), plain)


@pytest.mark.parametrize(
    "settings",
    [{"batch_size": 4}, {"num_workers": -1}, {"workers": 2}, {"precision": "float16"}, {"ceiling": "no_optimizer"}],
)
def test_what_cannot_be_forced_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidSettings, match=next(iter(settings))):
        check_forced(settings)


def test_every_setting_is_one_of_a_trial_and_says_why_if_it_cannot_be_forced() -> None:
    names = Settings.__dataclass_fields__.keys()
    assert names >= FORCIBLE.keys()
    for name in names - FORCIBLE.keys():
        assert why_not_forced({name: 1}).startswith(f"{name} is your script's own to choose")


def test_a_run_in_which_nothing_could_be_changed_is_no_trial_of_it(patches: ExitStack) -> None:
    again = Again({"num_workers": 2}, None)
    whole = (Outcome.COMPLETED, "", "script_ended")
    assert again.judged(whole) == whole
    again._forced = forced(patches, num_workers=2)
    assert again.judged(whole)[0] is Outcome.INVALID_SETTINGS
    assert "changed nothing" in again.judged(whole)[1]
    crashed = (Outcome.CRASHED, "RuntimeError: no", "crashed")
    assert again.judged(crashed) == crashed
    DataLoader(numbers())
    assert again.judged(whole) == whole


def test_what_is_forced_on_models_is_told_where_no_model_was_called(patches: ExitStack) -> None:
    made = forced(patches, threads=torch.get_num_threads(), precision="bfloat16")
    put_into = made.install_in_calls(lambda _dtype: None, patches)
    assert put_into is not None
    assert made.without_effect() == "precision=bfloat16 changed nothing: no call of a trained model was met"
    model = torch.nn.Linear(2, 2)
    put_into(model)
    model(torch.ones(1, 2))
    assert not made.without_effect()


def test_models_that_convolve_are_turned_around_where_that_is_forced(patches: ExitStack) -> None:
    made = forced(patches, channels_last=True)
    put_into = made.install_in_calls(lambda _dtype: None, patches)
    assert put_into is not None
    model = torch.nn.Conv2d(3, 4, 3)
    put_into(model)
    assert model(torch.ones(1, 3, 8, 8)).is_contiguous(memory_format=torch.channels_last)
    assert not made.without_effect()


def test_models_stay_as_they_are_where_nothing_is_forced_on_them(patches: ExitStack) -> None:
    assert forced(patches, num_workers=0).install_in_calls(lambda _dtype: None, patches) is None


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"threads": 2}, "The script ran with threads=2 in place of its own."),
        (
            {"compile_mode": "default", "threads": 2},
            "with compile_mode=default, threads=2 in place of its own. What is ",
        ),
        ({"precision": "tf32"}, "Its products are rounded more coarsely than the script's own."),
    ],
)
def test_a_run_says_what_was_forced_and_what_that_does_to_its_numbers(settings: dict[str, Any], says: str) -> None:
    assert says in note_of(settings)


def test_half_precision_that_needs_a_scaler_is_the_scripts_own() -> None:
    why = why_not_forced({"precision": "float16"})
    assert "small gradients become 0" in why and "scaler.step(optimizer)" in why and "torch.autocast" in why
    with pytest.raises(
        InvalidSettings, match=r"precision=float16 cannot be forced on a script: float16 needs a GradSc"
    ):
        check_forced({"precision": "float16"})
    assert not why_not_forced({"precision": "bfloat16"})
