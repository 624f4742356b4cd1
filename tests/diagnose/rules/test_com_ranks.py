"""COM002 and COM004 for runs: who is late, or whether it is somebody else each time."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from perf_diagnostics.diagnose.facts.facts import NotApplicable, NotMeasured, TrialFacts
from perf_diagnostics.diagnose.finding import Cleared, Finding, Severity
from perf_diagnostics.diagnose.ranks.rank_facts import RankFacts
from perf_diagnostics.diagnose.rules.com002_straggler import Straggler
from perf_diagnostics.diagnose.rules.com004_rank_imbalance import RankImbalance
from perf_diagnostics.diagnose.rules.com006_data_parallel import DataParallel
from perf_diagnostics.diagnose.rules.com008_ddp_options import DdpOptions
from perf_diagnostics.records import Phase, StepTable, TrialResult
from perf_diagnostics.testing import trial_of

STEPS = 60


def job(*ranks: dict[str, object]) -> TrialResult:
    """Ranks in step: each takes its own time, and waits in its backward for the last, so that all take 100 ms.

    ``own`` is the time in ``phase`` beside 10 ms of forward, in s, one value or one a step.
    """
    results = []
    for seed, rank in enumerate(ranks):
        noise = np.random.default_rng(seed).normal(0, 0.0005, STEPS)
        own = np.asarray(rank.get("own", 0.0)) + np.zeros(STEPS)
        phase = rank.get("phase", Phase.DATA_WAIT)
        columns = {f"host_{phase}_ns": (own + (0.01 if phase is Phase.FORWARD else 0)) * 1e9}
        forward = 0.01 * np.ones(STEPS) + noise + (own if phase is Phase.FORWARD else 0)
        columns["host_forward_ns"] = forward * 1e9
        columns["host_backward_ns"] = (0.1 - own - 0.01 - noise) * 1e9
        columns |= {"wall_ns": 0.1e9 * np.ones(STEPS)}
        if "tokens" in rank:
            columns["tokens"] = np.asarray(rank["tokens"]) + np.zeros(STEPS)
        results.append(trial_of(forward=0.01, backward=0.09, steps=STEPS, warmup_steps=0, columns=columns))
    return dataclasses.replace(results[0], steps=tuple(result.steps[0] for result in results))


def check(rule: object, result: TrialResult) -> object:
    return rule.check(TrialFacts.of(result))  # type: ignore[attr-defined]


def test_the_rank_that_waits_for_its_data_is_named_and_not_the_one_with_the_long_backward() -> None:
    # rank 1 waits 30 ms for data in each step of 100 ms; rank 0 has the longer backward, because it waits for rank 1
    found = check(Straggler(), job({}, {"own": 0.03}))
    assert isinstance(found, Finding)
    assert found.severity is Severity.WARNING
    assert found.summary.startswith("Rank 1 of 2 is last in 100 %")
    assert "mostly in data wait" in found.summary
    assert found.recoverable is not None and found.recoverable.high == pytest.approx(0.3, abs=0.01)
    assert isinstance(check(RankImbalance(), job({}, {"own": 0.03})), Cleared)


def test_one_stall_does_not_hide_who_is_late_in_every_other_step() -> None:
    result = job({}, {"own": 0.03})
    walls = [np.where(np.arange(STEPS) == 20, 5e9, table.wall_ns) for table in result.steps]  # 5 s in steps of 100 ms
    stalled = tuple(
        StepTable(
            {
                **table.columns,
                "wall_ns": wall,
                "host_backward_ns": wall - table.wall_ns + table.columns["host_backward_ns"],
            }
        )
        for table, wall in zip(result.steps, walls, strict=True)
    )
    found = check(Straggler(), dataclasses.replace(result, steps=stalled))
    assert isinstance(found, Finding) and "by 30 % of a step" in found.summary


def test_where_ranks_are_missing_nobody_is_cleared() -> None:
    told = dataclasses.replace(job({}, {}), facts={"ranks": 4})
    for rule in (Straggler(), RankImbalance()):
        with pytest.raises(NotMeasured, match="of 4 ranks 2 were recorded"):
            check(rule, told)


def test_a_step_whose_timing_event_was_lost_is_left_out_and_hides_nobody() -> None:
    result = job({}, {"own": 0.03})
    tables = []
    for rank, table in enumerate(result.steps):
        device = {
            f"device_{phase}_ns": table.columns[f"host_{phase}_ns"].astype(np.float64)
            for phase in Phase
            if f"host_{phase}_ns" in table.columns
        }
        if rank == 0:
            device["device_forward_ns"][7] = np.nan
        tables.append(StepTable({**table.columns, **device}))
    facts = RankFacts.of(dataclasses.replace(result, steps=tuple(tables)))
    assert facts.steps == STEPS - 1 and np.isfinite(facts.own_ns).all()


def test_a_slow_device_shows_in_its_forward() -> None:
    found = check(Straggler(), job({}, {}, {"own": 0.02, "phase": Phase.FORWARD}, {}))
    assert isinstance(found, Finding) and "Rank 2 of 4" in found.summary and "mostly in forward" in found.summary


def test_equal_ranks_are_clear() -> None:
    for rule in (Straggler(), RankImbalance()):
        assert isinstance(check(rule, job({}, {}, {})), Cleared)


def test_uneven_batches_make_ranks_late_in_turn() -> None:
    # of two ranks, one at a time takes 40 ms more for twice the tokens: each waits 20 ms of 100 on average
    turn = np.arange(STEPS) % 2
    result = job(
        {"own": 0.04 * turn, "phase": Phase.FORWARD, "tokens": 100 + 100 * turn},
        {"own": 0.04 * (1 - turn), "phase": Phase.FORWARD, "tokens": 200 - 100 * turn},
    )
    found = check(RankImbalance(), result)
    assert isinstance(found, Finding) and found.severity is Severity.WARNING
    assert "20 %" in found.summary  # (40 + 0) / 2 = 20 ms of 100
    assert "their tokens differ by 33 %" in found.summary  # 200 over the mean of 150
    # forward and backward of the longer batch take its 100 ms, of which a quarter is beyond the mean load: 150 of 200
    assert found.recoverable is not None and found.recoverable.high == pytest.approx(0.25, abs=0.005)
    assert found.recoverable.low == pytest.approx(0.3 * 0.2, abs=0.005)
    assert isinstance(check(Straggler(), result), Cleared)


def test_lateness_in_turn_with_even_loads_is_only_an_observation() -> None:
    turn = np.arange(STEPS) % 2
    found = check(RankImbalance(), job({"own": 0.04 * turn, "tokens": 100}, {"own": 0.04 * (1 - turn), "tokens": 100}))
    assert isinstance(found, Finding) and found.severity is Severity.INFO
    assert "the loads are even" in found.summary and found.recoverable is None


def test_one_rank_is_no_question_and_few_shared_steps_no_answer() -> None:
    with pytest.raises(NotApplicable, match="one rank"):
        check(Straggler(), trial_of())
    short = dataclasses.replace(trial_of(), steps=(trial_of().steps[0], trial_of(steps=4).steps[0]))
    with pytest.raises(NotMeasured, match="4 steady steps; 10 are needed"):
        check(Straggler(), short)


def test_a_rank_without_a_phase_is_named() -> None:
    whole, part = trial_of(), trial_of(without=["host_forward_ns"])
    with pytest.raises(NotMeasured, match="rank 1 did not record forward"):
        RankFacts.of(dataclasses.replace(whole, steps=(whole.steps[0], part.steps[0]))).own_ns  # noqa: B018


def wrapped(**facts: object) -> TrialResult:
    return trial_of(facts={"matmul_precision": "highest", **facts})  # type: ignore[arg-type]


def test_one_process_for_all_gpus_is_a_warning_and_one_a_gpu_is_clear() -> None:
    found = check(DataParallel(), wrapped(data_parallel="DataParallel"))
    assert isinstance(found, Finding) and found.severity is Severity.WARNING and found.recoverable is None
    assert isinstance(check(DataParallel(), wrapped(data_parallel="DistributedDataParallel")), Cleared)
    with pytest.raises(NotApplicable, match="one device"):
        check(DataParallel(), wrapped())
    with pytest.raises(NotMeasured, match="nobody looked"):
        check(DataParallel(), trial_of())


def test_looking_for_unused_parameters_is_said() -> None:
    ddp = {"data_parallel": "DistributedDataParallel"}
    found = check(DdpOptions(), wrapped(**ddp, ddp_find_unused_parameters=True))
    assert isinstance(found, Finding) and found.severity is Severity.INFO
    assert isinstance(check(DdpOptions(), wrapped(**ddp, ddp_find_unused_parameters=False)), Cleared)
    none = check(DdpOptions(), wrapped(**ddp, ddp_find_unused_parameters=True, ddp_unused_parameter_bytes=0))
    assert isinstance(none, Finding) and none.summary.endswith("and found none.")
    some = check(DdpOptions(), wrapped(**ddp, ddp_find_unused_parameters=True, ddp_unused_parameter_bytes=2_000_000))
    assert isinstance(some, Cleared) and "2 MB of them found" in some.summary
    first = check(DdpOptions(), wrapped(**ddp, ddp_find_unused_parameters=True, unused_parameters=8))
    assert isinstance(first, Cleared) and "CMP018" in first.summary
    assert "not the same" not in some.summary  # nobody knows
    all_used = check(DdpOptions(), wrapped(**ddp, ddp_find_unused_parameters=True, unused_parameters=0))
    assert isinstance(all_used, Finding)
    with pytest.raises(NotApplicable):
        check(DdpOptions(), wrapped(data_parallel="DataParallel"))
    with pytest.raises(NotMeasured, match="options were not recorded"):
        check(DdpOptions(), wrapped(**ddp))
    with pytest.raises(NotMeasured, match="nobody looked"):
        check(DdpOptions(), trial_of())


def searching(**facts: object) -> TrialResult:
    """DDP that looks for unused parameters, and what it found."""
    return wrapped(data_parallel="DistributedDataParallel", ddp_find_unused_parameters=True, **facts)


def test_the_same_unused_parameters_in_every_step_are_a_static_graph_that_nobody_declared() -> None:
    for unused in ({"ddp_unused_parameter_bytes": 2_000_000}, {"unused_parameters": 8}):
        found = check(DdpOptions(), searching(**unused, ddp_can_set_static_graph=True))
        assert isinstance(found, Finding) and found.severity is Severity.INFO and found.recoverable is None
        assert "the same in each so far" in found.summary and "static_graph=True" in found.remedies[0].says
    changing = check(DdpOptions(), searching(ddp_unused_parameter_bytes=2_000_000, ddp_can_set_static_graph=False))
    assert isinstance(changing, Cleared) and changing.summary.endswith("2 MB of them found, not the same in all steps")


def test_a_static_graph_is_advised_only_where_it_saves_the_search() -> None:
    declared = check(DdpOptions(), searching(ddp_unused_parameter_bytes=2_000_000, ddp_static_graph=True))
    assert isinstance(declared, Cleared) and "first step alone" in declared.summary
    all_used = check(DdpOptions(), searching(ddp_unused_parameter_bytes=0, ddp_can_set_static_graph=True))
    assert isinstance(all_used, Finding) and "Leave find_unused_parameters out" in all_used.remedies[0].says
    assert not any("static_graph" in remedy.says for remedy in all_used.remedies)
