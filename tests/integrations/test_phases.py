"""Watched and attached loops against scripts that know where their time went."""

from __future__ import annotations

import pytest

from perf_diagnostics.records import Phase

HOWS = ["run", "attach"]


@pytest.mark.parametrize("how", HOWS)
def test_a_plain_loop_with_the_loss_outside_and_clipping(watched, how: str) -> None:
    seen = watched("plain", how)
    seen.compare("data_wait", "forward", "backward", "optimizer", "other")
    seen.closes()
    assert seen.table.samples.tolist() == [4] * 24
    assert seen.result.trial.settings.batch_size == 4
    assert seen.result.facts["optimizer"] == "PausedSGD" and seen.result.facts["model"] == "Net"
    assert seen.result.facts["num_workers"] == 0


@pytest.mark.parametrize("how", HOWS)
def test_accumulation_is_one_step(watched, how: str) -> None:
    seen = watched("accumulation", how)
    seen.compare("data_wait", "forward", "backward", "optimizer", "other", slack_s=0.003)
    seen.closes()
    assert seen.table.samples.tolist() == [12] * 15
    assert seen.result.trial.settings.batch_size == 4
    assert seen.result.facts["accumulation_steps"] == 3


@pytest.mark.parametrize("how", HOWS)
def test_a_closure_is_not_counted_twice(watched, how: str) -> None:
    seen = watched("lbfgs", how)
    seen.compare("data_wait", "forward", "backward", "optimizer", slack_s=0.004)
    seen.closes()
    assert seen.table.samples.tolist() == [4] * 16


@pytest.mark.parametrize("how", HOWS)
def test_two_optimizers_make_one_step(watched, how: str) -> None:
    seen = watched("gan", how)
    assert seen.table.samples.tolist() == [4] * 24
    seen.compare("data_wait", "forward", "backward", "optimizer", "other", slack_s=0.003)
    seen.closes()
    # Under `run` the models are looked for when their optimizer has stepped: the first step lacks forwards, and that
    # search is no part of it.
    first = {phase: seen.table.host_ns(phase)[0] / 1e9 for phase in ("backward", "optimizer", "data_wait")}
    for phase, measured_s in first.items():
        assert measured_s >= seen.planted[0][phase] * 0.999


@pytest.mark.parametrize("how", HOWS)
def test_gradients_that_are_asked_for_are_the_backward_where_nobody_calls_another(watched, how: str) -> None:
    seen = watched("tasks", how)
    seen.compare("data_wait", "forward", "backward", "optimizer", "other", slack_s=0.003)
    seen.closes()
    assert seen.table.samples.tolist() == [4] * 24
    assert seen.result.gap("host_backward_ns") is None
    # None was seen until the first optimizer had stepped.
    assert seen.table.columns["host_backward_ns"][0] == 0


@pytest.mark.parametrize("how", HOWS)
def test_a_penalty_is_the_losss_although_an_optimizer_stepped_before_any_backward(watched, how: str) -> None:
    seen = watched("penalty", how)
    steady = seen.table.steady
    assert steady.columns["backwards"].tolist() == [1] * len(steady) and len(steady) >= 6
    # The pause between the loss and its slope lies before the backward.
    assert (steady.columns["host_forward_ns"] >= 6e6).all()
    seen.closes()


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("script", ["evaluation", "evaluation_in_training_mode"])
def test_an_evaluation_is_neither_input_nor_forward(watched, script: str, how: str) -> None:
    seen = watched(script, how)
    seen.compare("data_wait", "forward", "backward", "optimizer", "other", slack_s=0.002)
    seen.closes()
    assert seen.table.samples.tolist() == [4] * 32
    other_ns = seen.table.host_ns(Phase.OTHER)
    assert other_ns[10] > 60e6 and other_ns[20] > 60e6  # 16 rows of 4 ms, 4 calls of 3 ms
    assert seen.table.columns["host_data_wait_ns"][10] < 30e6


@pytest.mark.parametrize("how", HOWS)
def test_a_batch_fetched_inside_the_step_and_epochs_that_end(watched, how: str) -> None:
    seen = watched("batch_inside", how)
    seen.compare("data_wait", "forward", "optimizer", "other", slack_s=0.002)
    seen.closes()
    assert seen.table.columns["epoch"].tolist() == [0] * 7 + [1] * 7 + [2] * 7 + [3] * 3


@pytest.mark.parametrize("how", HOWS)
def test_a_model_of_which_only_the_parts_are_called(watched, how: str) -> None:
    seen = watched("parts_only", how)
    # No loader: that the whole model is never called is known after the first step; `run` finds the model in that step.
    unseen = {"attach": 1, "run": 2}[how]
    seen.compare("forward", "backward", "optimizer", "other", slack_s=0.002, unseen=unseen)
    seen.closes()
    assert seen.table.get("host_data_wait_ns") is None and seen.result.gap("host_data_wait_ns") is not None


@pytest.mark.parametrize("how", HOWS)
def test_a_list_of_modules_beside_one_that_is_called(watched, how: str) -> None:
    """The list itself is never called, whatever else is; its parts are forward's from the first step that is seen."""
    seen = watched("list_of_parts", how)
    seen.compare("forward", "backward", "optimizer", "other", slack_s=0.002, unseen={"attach": 0, "run": 1}[how])
    seen.closes()


def test_a_loader_of_the_users_own_class(watched) -> None:
    seen = watched("own_iterable", "attach")
    seen.compare("data_wait", "forward", "optimizer")
    seen.closes()
    assert seen.table.get("host_transfer_ns") is None and seen.result.gap("host_transfer_ns") is not None


@pytest.mark.parametrize("how", HOWS)
def test_compiled_models_are_watched_and_stay_whole(watched, capsys, how: str) -> None:
    import torch

    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    seen = watched("compiled", how)
    assert capsys.readouterr().out.splitlines()[-1] == "graphs 2 {} {}"
    assert len(seen.table) == 8
    assert (seen.table.steady.columns["host_forward_ns"] > 0).all()
    seen.closes()
