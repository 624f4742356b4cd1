"""The garbage collector out of the steps, and afterwards as it was."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from perf_diagnostics.records import Length, Outcome, Settings, Trial
from perf_diagnostics.trials.measurement import measure
from perf_diagnostics.trials.steps.garbage_collector import collector
from perf_diagnostics.workloads.registry import find
from perf_diagnostics.workloads.workload import Training

FROZEN = Settings(batch_size=8, freeze_gc=True)


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    enabled = gc.isenabled()
    gc.unfreeze()  # what all tests have frozen
    yield
    gc.unfreeze()
    if enabled:
        gc.enable()


def test_after_the_first_call_nothing_is_collected_by_itself() -> None:
    with collector(FROZEN) as between_blocks:
        assert gc.isenabled()  # set-up collects as ever
        between_blocks()
        assert not gc.isenabled() and gc.get_freeze_count() > 0
        between_blocks()
        assert not gc.isenabled()
    assert gc.isenabled() and gc.get_freeze_count() == 0


def test_between_blocks_circles_are_collected() -> None:
    class Circle:
        gone = 0

        def __del__(self) -> None:
            Circle.gone += 1

    with collector(FROZEN) as between_blocks:
        between_blocks()
        one = Circle()
        one.itself = one  # type: ignore[attr-defined]
        del one
        assert Circle.gone == 0
        between_blocks()
        assert Circle.gone == 1


def test_without_the_setting_nothing_changes() -> None:
    with collector(Settings(batch_size=8)) as between_blocks:
        between_blocks()
        assert gc.isenabled() and gc.get_freeze_count() == 0


def test_who_turned_the_collector_off_finds_it_off() -> None:
    gc.disable()
    with collector(FROZEN) as between_blocks:
        between_blocks()
    assert not gc.isenabled()


@pytest.mark.usefixtures("small_ceilings")
@pytest.mark.parametrize("frozen", [True, None])
def test_in_a_trial_the_collector_pauses_during_the_steps_only(frozen: bool | None) -> None:
    seen: list[bool] = []
    trial = Trial(
        workload="mlp",
        settings=Settings(batch_size=8, freeze_gc=frozen),
        options={"width": 8, "depth": 1, "samples": 64},
        length=Length.exactly(4, warmup_steps=1),
    )

    def build(settings: Settings) -> Training:
        training = find("mlp").build(settings, options=trial.options, seed=0)
        loss_of = training.loss_of

        def watched(model: object, batch: object) -> object:
            seen.append(gc.isenabled())
            return loss_of(model, batch)  # type: ignore[arg-type]

        training.loss_of = watched  # type: ignore[assignment]
        return training

    assert measure(trial, build).result.outcome is Outcome.COMPLETED
    assert seen[:5] == [not frozen] * 5
    assert gc.isenabled()
