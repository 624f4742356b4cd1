"""Whose the time outside of the phases is: a framework's own, or a function of the user's."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from perf_diagnostics.diagnose.facts.facts import TrialFacts
from perf_diagnostics.diagnose.finding import Finding, Severity
from perf_diagnostics.diagnose.rule_parts.whose_work import Framework, OwnFunction, whose_work
from perf_diagnostics.diagnose.rules.hst006_time_outside_phases import TimeOutsidePhases
from perf_diagnostics.diagnose.rules.stb004_periodic_work import PeriodicWork
from perf_diagnostics.records import CodePath, CodePlace, CodeSamples
from perf_diagnostics.testing import trial_of

FIT = CodePlace(file="train.py", line=71, function="<module>")
ROLLOUT = CodePlace(file="train.py", line=52, function="rollout")
SAMPLE = CodePlace(file="train.py", line=53, function="rollout")
HOOK = CodePlace(file="train.py", line=48, function="Net.on_train_batch_end")
PLACES = (FIT, ROLLOUT, SAMPLE, HOOK)

LOOP = ("lightning.pytorch.trainer.trainer.Trainer.fit", "lightning.pytorch.loops.fit_loop._FitLoop.run")
NETWORK = "torch.nn.modules.linear.Linear.forward"


def path(phase: str, places: tuple[int, ...], looks: int, *calls: str, via: tuple[str, ...] = ()) -> CodePath:
    return CodePath(phase=phase, places=places, looks=looks, calls=calls, via=via)


def facts(*others: CodePath, framework: bool = False, **trial: object) -> TrialFacts:
    """A loop that one line starts, in a framework or not; ``others`` are looks outside of the phases."""
    if framework:
        training = tuple(path(one, (0,), 50, *LOOP, f"lightning.{one}") for one in ("forward", "backward", "optimizer"))
    else:
        training = (path("forward", (0,), 100, NETWORK),)
    code = CodeSamples(places=PLACES, paths=(*training, *others), interval_s=0.025, rare_interval_s=0.1, cpu_s=0.0)
    made = trial_of(**({"forward": 0.07, "other": 0.03, "data_wait": 0.001} | trial))  # type: ignore[arg-type]
    return TrialFacts.of(dataclasses.replace(made, code=code))


HOOKS = path("other", (0,), 70, *LOOP, "lightning.pytorch.trainer.call._call_callback_hooks")
OWN = path("other", (0, 3), 30, via=LOOP)


def test_what_runs_below_a_frameworks_line_without_one_of_the_users_is_the_frameworks() -> None:
    whose = whose_work(facts(HOOKS, OWN, framework=True), "other")
    assert isinstance(whose, Framework) and whose.package == "lightning"
    assert whose.part.value == pytest.approx(0.7)


def test_a_frameworks_own_time_is_only_mentioned_and_nothing_is_said_of_saving() -> None:
    answer = TimeOutsidePhases().check(facts(HOOKS, OWN, framework=True))
    assert isinstance(answer, Finding) and answer.severity is Severity.INFO
    assert "70 % of that is work of lightning itself" in answer.summary
    assert answer.recoverable is not None and answer.recoverable.low == 0.0
    assert not any("sav" in remedy.says or "evaluat" in remedy.says for remedy in answer.remedies)


def test_a_hook_of_the_users_own_is_not_the_frameworks() -> None:
    answer = TimeOutsidePhases().check(
        facts(dataclasses.replace(HOOKS, looks=30), dataclasses.replace(OWN, looks=70), framework=True)
    )
    assert isinstance(answer, Finding) and answer.severity is Severity.CRITICAL  # 30 % of a step
    assert "70 % of that is in Net.on_train_batch_end (train.py:48)" in answer.summary


def rolling(**trial: object) -> TrialFacts:
    return facts(path("other", (0, 1), 30), path("other", (0, 2), 60), path("other", (0,), 10), **trial)


def test_a_function_of_ones_own_is_named_with_its_main_line_and_no_guess_is_made() -> None:
    whose = whose_work(rolling(), "other")
    assert isinstance(whose, OwnFunction)
    assert (whose.name, whose.part.value, whose.line.line) == ("rollout", pytest.approx(0.9), 53)
    answer = TimeOutsidePhases().check(rolling())
    assert isinstance(answer, Finding) and answer.severity is Severity.CRITICAL
    assert [remedy.says.split(":")[0] for remedy in answer.remedies] == ["Look at rollout"]


def test_what_a_function_calls_that_the_training_runs_in_is_named_and_not_that_function() -> None:
    backward = path("backward", (0, 1), 50, "torch._tensor.Tensor.backward")  # rollout() is the loop
    whose = whose_work(facts(backward, path("other", (0, 1, 3), 60), path("other", (0,), 40)), "other")
    assert isinstance(whose, OwnFunction)
    assert (whose.name, whose.line.line, whose.part.value) == ("Net.on_train_batch_end", 48, pytest.approx(0.6))
    whose = whose_work(facts(backward, path("other", (0, 1), 60), path("other", (0,), 40)), "other")
    assert isinstance(whose, OwnFunction) and (whose.name, whose.line.line) == ("rollout", 52)


@pytest.mark.parametrize(
    ("evaluated_ms", "remedies"),
    [
        (0.2, ["Look at rollout"]),  # 0.02 of 3.0 s outside of the phases
        (9.0, ["Look at rollout", "26 % of that time is 8 calls of the model in some steps"]),  # 0.9 of 3.5 s
        (90.0, ["In some steps the model is called 8 times"]),  # 9.0 of 11.6 s
    ],
)
def test_an_evaluation_is_answered_by_its_share_of_the_time(evaluated_ms: float, remedies: list[str]) -> None:
    each = (np.arange(100) % 20 == 19) * 1.0  # every 20th step evaluates
    longer = each * evaluated_ms * 20 * 1e6
    calls = {"forwards": 1, "forwards_without_gradients": each * 8}
    columns = {"wall_ns": 100e6 + longer, "host_wall_ns": 100e6 + longer, **calls}
    answer = TimeOutsidePhases().check(
        rolling(steps=100, columns=columns, forward=0.04, backward=0.03, optimizer=0.003, data_wait=0.001, other=0.026)
    )
    assert isinstance(answer, Finding)
    told = [remedy.says for remedy in answer.remedies]
    assert len(told) == len(remedies) and all(one.startswith(start) for one, start in zip(told, remedies, strict=True))


def test_periodic_work_names_the_function_too() -> None:
    steps = 120
    wall = [int(1e8 + (4e7 if step % 4 == 0 else 0)) for step in range(steps)]
    columns = {"wall_ns": wall, "host_forward_ns": 100_000_000, "host_data_wait_ns": 0}
    answer = PeriodicWork().check(rolling(steps=steps, columns=columns, other=0.01, forward=0.1, data_wait=0.0))
    assert isinstance(answer, Finding) and answer.severity is Severity.WARNING
    assert "90 % of what is outside is in rollout (train.py:53)" in answer.summary
    assert [remedy.says.split(":")[0] for remedy in answer.remedies] == ["Look at rollout"]


def test_nobody_is_named_for_less_than_half_or_by_few_looks() -> None:
    assert whose_work(facts(path("other", (0, 1), 49), path("other", (0,), 51)), "other") is None
    assert whose_work(facts(path("other", (0, 1), 19)), "other") is None
