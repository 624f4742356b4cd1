"""COM012, and COM002 where ranks wait for each other before their backward pass."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from perf_diagnostics.diagnose.engine import diagnose
from perf_diagnostics.diagnose.facts.facts import NotApplicable, NotMeasured, TrialFacts
from perf_diagnostics.diagnose.finding import Cleared, Finding, Severity
from perf_diagnostics.diagnose.loaders.preparation import prepared_ns
from perf_diagnostics.diagnose.ranks.rank_facts import RankFacts
from perf_diagnostics.diagnose.rules.com002_straggler import Straggler
from perf_diagnostics.diagnose.rules.com012_collectives_in_the_loop import CollectivesInTheLoop
from perf_diagnostics.diagnose.rules.hst006_time_outside_phases import TimeOutsidePhases
from perf_diagnostics.records import ALL_PHASES, Phase, StepTable, TrialResult
from perf_diagnostics.testing import run_of, trial_of
from tests.diagnose.rules.rank_trials import of_ranks

#: Each rank computes for 60 ms in forward and backward, and steps take 100.
FORWARD_S, BACKWARD_S, STEP_S = 0.02, 0.04, 0.1


def rank(own: dict[Phase, float], waits: dict[Phase, float]) -> dict[str, Any]:
    """A rank's columns: what it takes longer itself, and what it waits in collectives, in s of a step by phase."""
    took = {Phase.DATA_WAIT: 0.0, Phase.FORWARD: FORWARD_S, Phase.BACKWARD: BACKWARD_S, Phase.OPTIMIZER: 0.0}
    for phase in took:
        took[phase] += own.get(phase, 0.0) + waits.get(phase, 0.0)
    collective = {f"collective_{phase}_ns": 1e9 * waits.get(phase, 0.0) for phase in ALL_PHASES}
    return {f"host_{phase}_ns": 1e9 * s for phase, s in took.items()} | collective | {"wall_ns": 1e9 * STEP_S}


def late_for(phase: Phase, *, seen: bool = True, late: int = 1) -> TrialResult:
    """One rank waits 40 ms for its data, and the other one for it: in a collective in this phase."""
    columns = [rank({}, {phase: 0.04}), rank({}, {phase: 0.04})]
    columns[late] = rank({Phase.DATA_WAIT: 0.04}, {})
    if not seen:
        columns = [one | {f"collective_{each}_ns": None for each in ALL_PHASES} for one in columns]
    return of_ranks(*columns)


def check(rule: Any, result: TrialResult) -> Finding | Cleared:
    answer = rule.check(TrialFacts.of(result))
    assert isinstance(answer, Finding | Cleared)
    return answer


@pytest.mark.parametrize("phase", [Phase.FORWARD, Phase.OTHER])
def test_a_late_rank_is_named_that_the_others_wait_for_before_their_backward(phase: Phase) -> None:
    # Batch normalisation under DistributedDataParallel, a loss that is reduced (forward), a barrier (other).
    found = check(Straggler(), late_for(phase))
    assert isinstance(found, Finding)
    assert found.summary.startswith("Rank 1 of 2 is last in 100 % of the steps, by 40 % of a step, mostly in data wait")
    assert found.recoverable is not None and found.recoverable.high == pytest.approx(0.4)
    # Without the waits all ranks take equally long before backward, and nobody can tell.
    assert isinstance(check(Straggler(), late_for(phase, seen=False)), Cleared)


def test_its_seconds_are_those_in_which_the_first_rank_waits_or_is_late_itself() -> None:
    waiting, late = (check(Straggler(), late_for(Phase.OTHER, late=rank)) for rank in (1, 0))
    assert isinstance(waiting, Finding) and isinstance(late, Finding)
    assert {phase: share for phase, share in waiting.claims.items() if share > 1e-9} == {"other": pytest.approx(0.4)}
    assert late.claims == {"data_wait": pytest.approx(0.4)}


def test_what_is_waited_in_no_collective_before_backward_is_waited_in_it() -> None:
    ranks = RankFacts.of(late_for(Phase.FORWARD))
    # Of 60 ms 40 are waited for in forward's collectives.
    claims = ranks.seconds_of(1, {Phase.DATA_WAIT: 0.6})
    assert claims == {"forward": pytest.approx(0.4), "backward": pytest.approx(0.2)}


def test_the_late_rank_stands_before_the_time_that_others_wait_for_it_outside_of_the_phases() -> None:
    codes = [finding.code for finding in diagnose(run_of(late_for(Phase.OTHER))).findings]
    assert codes.index("COM002") < codes.index("HST006")


@pytest.mark.parametrize(("share", "severity"), [(0.08, None), (0.15, Severity.WARNING), (0.3, Severity.CRITICAL)])
def test_what_all_ranks_wait_for_collectives_is_their_cost(share: float, severity: Severity | None) -> None:
    # Half of it in forward, half outside of the phases, on both ranks.
    waits = {Phase.FORWARD: share * STEP_S / 2, Phase.OTHER: share * STEP_S / 2}
    answer = check(CollectivesInTheLoop(), of_ranks(rank({}, waits), rank({}, waits)))
    assert (answer.severity if isinstance(answer, Finding) else None) is severity
    shares = {number.metric: number.value for number in answer.evidence}
    assert shares["wait for collectives outside of backward"] == pytest.approx(100 * share)
    assert shares["of it in forward"] == shares["of it in other"] == pytest.approx(50 * share)


def test_what_one_waits_longer_is_for_the_other_one_and_no_cost() -> None:
    # Rank 1 waits 40 ms, and rank 0, which is late, 5 of 100 ms.
    late, waiting = rank({Phase.DATA_WAIT: 0.035}, {Phase.OTHER: 0.005}), rank({}, {Phase.OTHER: 0.04})
    answer = check(CollectivesInTheLoop(), of_ranks(late, waiting))
    assert isinstance(answer, Cleared) and answer.evidence[0].value == pytest.approx(5.0)


def test_waits_in_backward_are_those_of_the_exchange() -> None:
    waits = {Phase.BACKWARD: 0.04}
    answer = check(CollectivesInTheLoop(), of_ranks(rank({}, waits), rank({}, waits)))
    assert isinstance(answer, Cleared) and answer.evidence[0].value == 0.0


def test_buffers_are_advised_against_only_where_forward_waits() -> None:
    for phase, advised in ((Phase.FORWARD, True), (Phase.OTHER, False)):
        found = check(CollectivesInTheLoop(), of_ranks(*[rank({}, {phase: 0.03})] * 2))
        assert isinstance(found, Finding)
        assert any("broadcast_buffers=False" in remedy.says for remedy in found.remedies) is advised
    known = {"ddp_buffer_bytes": 31e6, "ddp_largest_buffer": "items.table", "ddp_largest_buffer_bytes": 30e6}
    found = check(CollectivesInTheLoop(), of_ranks(*[rank({}, {Phase.FORWARD: 0.03})] * 2, facts=known))
    assert isinstance(found, Finding)
    assert found.remedies[0].says.endswith("Here that is 31 MB, 30 MB of it items.table.")
    tiny = {"ddp_buffer_bytes": 40, "ddp_largest_buffer": "norm.running_mean", "ddp_largest_buffer_bytes": 16}
    found = check(CollectivesInTheLoop(), of_ranks(*[rank({}, {Phase.FORWARD: 0.03})] * 2, facts=tiny))
    assert isinstance(found, Finding) and "MB" not in found.remedies[0].says


def test_a_barrier_between_a_batch_and_its_forward_prepares_nothing() -> None:
    facts = TrialFacts.of(late_for(Phase.OTHER))
    columns = {**facts.result.steps[0].columns, "prepare_ns": np.full(len(facts.result.steps[0]), 41e6)}
    waiting = dataclasses.replace(facts.result, steps=(StepTable(columns), *facts.result.steps[1:]))
    assert prepared_ns(TrialFacts.of(waiting)) == pytest.approx(1e6)  # of 41 ms rank 0 waits 40 for rank 1


def test_where_nobody_looked_or_a_device_waits_nothing_is_said() -> None:
    with pytest.raises(NotMeasured, match="not timed"):
        check(CollectivesInTheLoop(), late_for(Phase.OTHER, seen=False))
    waits = {f"collective_{phase}_ns": np.full(60, 4e7) for phase in ALL_PHASES}
    on_device = of_ranks(waits, waits, device="cuda:0")
    with pytest.raises(NotMeasured, match="a device waits"):
        check(CollectivesInTheLoop(), on_device)
    assert not RankFacts.of(on_device).collective_ns(Phase.FORWARD).any()
    with pytest.raises(NotApplicable):
        check(CollectivesInTheLoop(), dataclasses.replace(trial_of(), facts={}))


def crowded(waits_s: Sequence[float], *, waiting: float = 0.4) -> TrialResult:
    """Two ranks that wait like this outside of the phases, step by step in turn, while something waits for a core."""
    columns = rank({}, {})
    columns |= {"collective_other_ns": 1e9 * np.resize(waits_s, 60)}
    return of_ranks(columns, columns, quantities={"cpu_pressure_s": waiting * 6.0, "measured_wall_s": 6.0})


def test_where_cores_are_lacking_only_what_most_steps_wait_is_the_collectives() -> None:
    now_and_then = [0.003, 0.003, 0.003, 0.08]
    crowding = check(CollectivesInTheLoop(), crowded(now_and_then))
    assert isinstance(crowding, Finding) and crowding.severity is Severity.INFO
    assert "so the ranks may wait for cores instead. Most steps wait 3.0 %." in crowding.summary
    assert crowding.recoverable is not None and crowding.recoverable.low < 0.03
    roomy = check(CollectivesInTheLoop(), crowded(now_and_then, waiting=0.1))
    assert isinstance(roomy, Finding) and roomy.severity is Severity.WARNING and "cores" not in roomy.summary
    always = check(CollectivesInTheLoop(), crowded([0.03, 0.04]))
    assert isinstance(always, Finding) and always.severity is Severity.CRITICAL


def test_what_is_waited_for_ranks_is_no_time_that_the_loop_spends_otherwise() -> None:
    # Rank 0 waits 30 of 100 ms for the other one, and its loop does something else for 5 or 15.
    def outside(own_s: float) -> TrialResult:
        waiting = rank({Phase.FORWARD: 0.01 - own_s}, {})
        waiting["collective_other_ns"] = 3e7
        return of_ranks(waiting, rank({Phase.DATA_WAIT: 0.03}, {}))

    little, much = (check(TimeOutsidePhases(), outside(own_s)) for own_s in (0.005, 0.015))
    assert isinstance(little, Finding) and isinstance(much, Finding)
    assert (little.severity, much.severity) == (Severity.INFO, Severity.WARNING)
    assert "Of it 86 % is waiting for other ranks." in little.summary
    assert much.recoverable is not None and much.recoverable.high == pytest.approx(0.15)
    # Of a rank that was recorded alone no other rule tells what it waits for.
    both = outside(0.005)
    alone = check(TimeOutsidePhases(), dataclasses.replace(both, steps=both.steps[:1]))
    assert isinstance(alone, Finding) and alone.severity is Severity.CRITICAL and "ranks" not in alone.summary
