"""How a sweep's configurations are counted: each once, after its trial, within its share of the time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from perf_diagnostics.records import Outcome, Settings, Trial, TrialResult
from perf_diagnostics.store.files.whole_files import to_json, write_atomic
from perf_diagnostics.testing import FakeClock, trial_of
from perf_diagnostics.trials.count.counts import FILE, SHARE, Counts, Work, counting_settings, with_work
from perf_diagnostics.trials.launch.launcher import ForkServer, Request


def work(**change: Any) -> Work:
    """One batch of 8 samples of 10 tokens: 1000 operations and 500 bytes, an update of 70 bytes."""
    numbers: dict[str, Any] = {
        "batches": 1,
        "shapes": 1,
        "samples": 8,
        "tokens": 80,
        "flops": 1000.0,
        "recomputed_flops": 250.0,
        "attention_flops": 0.0,
        "other_operations": 0.0,
        "traffic_bytes": 500.0,
        "update_flops": 0.0,
        "update_bytes": 70.0,
        "six_n_flops": None,
        "method": "by hand",
    }
    return Work(**(numbers | change))


def values(result: TrialResult) -> dict[str, float]:
    return {one.name: one.value for one in result.quantities if one.source.startswith("by hand")}


# -- from batches to steps


def test_counts_are_carried_over_by_tokens() -> None:
    # Steps of 16 samples and 240 tokens: three times the tokens of the counted batch.
    found = values(with_work(trial_of(batch_size=16, columns={"tokens": 240}), work(), exact=True))
    assert found == {
        "flops_per_step": 3000,
        "flops_per_sample": 187.5,
        "flops_per_token": 12.5,
        "flops_matmul_share": 1.0,
        "traffic_bytes_per_step": 3 * 500 + 70,
    }


def test_without_tokens_by_samples() -> None:
    found = values(with_work(trial_of(batch_size=16), work(tokens=None), exact=True))
    assert found["flops_per_step"] == 2000
    assert "flops_per_token" not in found


def test_accumulated_batches_are_one_step_with_one_update() -> None:
    trial = trial_of(batch_size=8, settings={"accumulation_steps": 4})  # 32 samples a step
    found = values(with_work(trial, work(tokens=None), exact=True))
    assert found["flops_per_step"] == 4000
    assert found["traffic_bytes_per_step"] == 4 * 500 + 70


def test_other_arithmetic_lowers_the_share_of_products() -> None:
    found = values(with_work(trial_of(), work(tokens=None, other_operations=1000.0), exact=True))
    assert found["flops_matmul_share"] == 0.5


def test_what_is_done_twice_is_a_fact_and_zero_is_measured() -> None:
    assert with_work(trial_of(), work(), exact=True).facts["recomputed_flops_share"] == 0.25
    assert with_work(trial_of(), work(recomputed_flops=0.0), exact=True).facts["recomputed_flops_share"] == 0.0
    assert "recomputed_flops_share" not in trial_of().facts


def test_another_batch_size_is_an_estimate_and_says_so() -> None:
    result = with_work(trial_of(), work(), exact=False)
    flops = result.quantity("flops_per_step")
    assert flops is not None and flops.estimated and "another batch size" in flops.source
    exact = with_work(trial_of(), work(), exact=True).quantity("flops_per_step")
    assert exact is not None and not exact.estimated


def test_gaps_say_what_was_not_counted() -> None:
    result = with_work(trial_of(), work(update_bytes=None, uncounted=("ours.kernel",)), exact=True)
    assert result.value("traffic_bytes_per_step") is None
    assert result.gap("traffic_bytes_per_step") is not None
    gap = result.gap("flops_uncounted")
    assert gap is not None and "ours.kernel" in gap.why and "lower bound" in gap.why


def test_nothing_but_unknown_operators_is_not_zero() -> None:
    result = with_work(trial_of(), work(flops=0.0, uncounted=("ours.kernel",)), exact=True)
    assert result.value("flops_per_step") is None and result.gap("flops_per_step") is not None
    zero = with_work(trial_of(), work(flops=0.0), exact=True)
    assert zero.value("flops_per_step") == 0


@pytest.mark.parametrize(
    ("flops", "recomputed", "attention", "agrees"),
    [
        (1050.0, 0.0, 0.0, True),
        (1150.0, 0.0, 0.0, False),
        (850.0, 0.0, 0.0, False),
        (1300.0, 0.0, 250.0, True),  # attention's own products are no part of 6 N
        (1330.0, 330.0, 0.0, True),  # nor is what is done twice
    ],
)
def test_six_n_is_off_by_more_than_a_tenth(flops: float, recomputed: float, attention: float, agrees: bool) -> None:
    counted = work(flops=flops, recomputed_flops=recomputed, attention_flops=attention, six_n_flops=1000.0)
    assert (with_work(trial_of(), counted, exact=True).gap("flops_6n") is None) is agrees


# -- who is counted, when, and for how long


def test_the_same_work_is_counted_once() -> None:
    here = Settings(
        batch_size=8, precision="float16", device="cuda:0", num_workers=4, threads=2, compile_mode="default"
    )
    there = Settings(batch_size=8, precision="bfloat16", device="cpu", accumulation_steps=2)
    assert counting_settings(here) == counting_settings(there)
    for change in ({"batch_size": 9}, {"gradient_checkpointing": True}, {"precision": "float32"}):
        assert counting_settings(here) != counting_settings(here.replace(**change))


@dataclass
class FakeProcess:
    clock: FakeClock
    seconds: float
    pid: int = 2**22 + 1  # no such process

    def wait(self, timeout_s: float) -> int | None:
        step = min(timeout_s, self.seconds)
        self.clock.advance(int(step * 1e9) + 1)
        self.seconds -= step
        return 0 if self.seconds <= 0 else None


@dataclass
class FakeLauncher:
    """Counts that take ``seconds`` each and find :func:`work`, or write what ``body`` says."""

    clock: FakeClock
    seconds: float = 1.0
    body: dict[str, Any] | None = None
    requests: list[Request] = field(default_factory=list)

    def start(self, request: Request) -> FakeProcess:
        from dataclasses import asdict

        self.requests.append(request)
        found = asdict(work())
        body = {"work": {**found, "uncounted": []}} if self.body is None else self.body
        if body:
            write_atomic(Path(request.directory) / FILE, to_json(body), fsync=False)
        return FakeProcess(self.clock, self.seconds)

    def close(self) -> None: ...


def counts(launch: FakeLauncher, budget_s: float | None = 240.0, **more: Any) -> Counts:
    return Counts(launch, budget_s, clock=lambda: launch.clock() / 1e9, **more)


def test_repeats_and_devices_share_a_count(tmp_path: Path) -> None:
    launch = FakeLauncher(FakeClock())
    every = counts(launch)
    for trial in (trial_of(), trial_of(repeat=1), trial_of(settings={"num_workers": 2})):
        assert every.added_to(trial, tmp_path).value("flops_per_step") == 1000
    assert [request.task for request in launch.requests] == ["count"]
    assert not (tmp_path / FILE).exists()


def test_within_the_share_each_batch_size_is_counted_beyond_it_estimated(tmp_path: Path) -> None:
    # 5 % of 240 s are 12 s. After two counts of 4 s each, 4 s are left: a third one might take half as long again.
    launch = FakeLauncher(FakeClock(), seconds=4.0)
    every = counts(launch)
    found = [every.added_to(trial_of(batch_size=size), tmp_path).quantity("flops_per_step") for size in (8, 16, 32, 64)]
    assert [one is not None and one.estimated for one in found] == [False, False, True, True]
    assert every.spent_s <= SHARE * 240


def test_a_count_that_would_take_more_is_ended_and_said_to_be(tmp_path: Path) -> None:
    launch = FakeLauncher(FakeClock(), seconds=1000.0)
    every = counts(launch, 100.0)  # 5 s for all counts
    first = every.added_to(trial_of(batch_size=8), tmp_path)
    again = every.added_to(trial_of(batch_size=16), tmp_path)
    for result in (first, again):
        gap = result.gap("flops_per_step")
        assert gap is not None and "ended after 5 s" in gap.why
        assert result.value("flops_per_step") is None
    assert len(launch.requests) == 1  # a group that could not be counted is not tried again


def test_a_tiny_budget_is_not_spent_on_counting(tmp_path: Path) -> None:
    launch = FakeLauncher(FakeClock())
    gap = counts(launch, 2.0).added_to(trial_of(), tmp_path).gap("flops_per_step")
    assert gap is not None and "more than 5%" in gap.why
    assert not launch.requests


def test_without_a_budget_the_first_of_a_group_is_counted(tmp_path: Path) -> None:
    launch = FakeLauncher(FakeClock())
    every = counts(launch, None)
    found = [every.added_to(trial_of(batch_size=size), tmp_path).quantity("flops_per_step") for size in (8, 16)]
    assert [one is not None and one.estimated for one in found] == [False, True]


@pytest.mark.parametrize(
    "left_out",
    [
        trial_of(outcome=Outcome.OUT_OF_MEMORY_DEVICE, steps=0, warmup_steps=0),
        trial_of(settings={"ceiling": "no_optimizer"}),
    ],
)
def test_failed_trials_and_ceiling_experiments_are_left_alone(left_out: TrialResult, tmp_path: Path) -> None:
    launch = FakeLauncher(FakeClock())
    assert counts(launch).added_to(left_out, tmp_path) is left_out
    assert not launch.requests


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"why": "RuntimeError: no such layer"}, "no such layer"),
        ({}, "without a result"),
        ({"work": {"a": 1}}, "no count"),
    ],
)
def test_a_count_that_fails_is_a_gap_with_its_reason(body: dict[str, Any], says: str, tmp_path: Path) -> None:
    gap = counts(FakeLauncher(FakeClock(), body=body)).added_to(trial_of(), tmp_path).gap("flops_per_step")
    assert gap is not None and says in gap.why


def test_an_interrupted_sweep_keeps_its_trial(tmp_path: Path) -> None:
    launch = FakeLauncher(FakeClock(), seconds=100.0)
    result = counts(launch, interrupted=lambda: True).added_to(trial_of(), tmp_path)
    assert result.outcome is Outcome.COMPLETED and result.gap("flops_per_step") is not None


# -- for real


@pytest.fixture(scope="module")
def warm() -> Iterator[ForkServer]:
    launch = ForkServer()
    yield launch
    launch.close()


def small(workload: str = "mlp", **options: Any) -> TrialResult:
    """A trial as it came home, of a perceptron 256 → 16 → 10 that nobody has counted yet."""
    measured = trial_of(batch_size=8, workload=workload)
    options = {"width": 16, "depth": 1, "samples": 64} | options
    trial = Trial(workload=workload, settings=measured.trial.settings, options=options, length=measured.trial.length)
    return TrialResult(trial=trial, outcome=Outcome.COMPLETED, steps=measured.steps)


def test_a_forked_process_counts_a_perceptron(warm: ForkServer, tmp_path: Path) -> None:
    result = Counts(warm).added_to(small(), tmp_path)
    by_hand = 6 * 8 * (256 * 16 + 16 * 10) - 2 * 8 * 256 * 16
    assert result.value("flops_per_step") == by_hand
    assert result.value("flops_matmul_share") == pytest.approx(1, abs=0.05)
    assert {path.name for path in tmp_path.iterdir()} <= {"output.txt"}


def test_a_workload_that_cannot_be_built_is_a_gap(warm: ForkServer, tmp_path: Path) -> None:
    gap = Counts(warm).added_to(small(width=0), tmp_path).gap("flops_per_step")
    assert gap is not None and "width" in gap.why
