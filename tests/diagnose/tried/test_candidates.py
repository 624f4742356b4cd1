"""What is worth trying: remedies with a change, at the right batch, best first, ceilings after what they bound."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from perf_diagnostics.diagnose.engine import diagnose
from perf_diagnostics.diagnose.finding import Diagnosis, Family, Finding, Remedy, Severity, Share
from perf_diagnostics.diagnose.rule_parts.experiments import About, Candidate
from perf_diagnostics.diagnose.tried.candidates import candidates
from perf_diagnostics.errors import InvalidSettings
from perf_diagnostics.records import Json, Run
from perf_diagnostics.testing import run_of, sweep_of, trial_of
from tests.diagnose.tried_runs import GROUP, waiting_run


def finding(code: str, family: Family, *changes: dict[str, Json], low: float = 0.1, **more: Any) -> Finding:
    values = {"severity": Severity.WARNING, "group": GROUP, "recoverable": Share(max(low, 0.2), low, 0.5)} | more
    return Finding(
        code=code,
        name=code.lower(),
        family=family,
        summary="",
        scope="",
        evidence=(),
        remedies=tuple(Remedy(f"try {change}", change) for change in changes),
        **values,
    )


def found(run: Run, *findings: Finding, **more: Any) -> tuple[Candidate, ...]:
    return candidates(run, Diagnosis(verdict=None, findings=findings), **more)


def changes(found: tuple[Candidate, ...]) -> list[dict[str, Json]]:
    return [dict(one.change) for one in found]


def test_a_real_diagnosis_gives_its_remedy_then_its_ceiling() -> None:
    run = waiting_run()
    workers, ceiling = candidates(run, diagnose(run))
    assert workers.change["persistent_workers"] is True and not workers.ceiling
    assert ceiling.change == {"ceiling": "cached_batches"} and ceiling.ceiling
    assert workers.base == run.results[0].trial
    assert workers.step_s == pytest.approx(1.0, rel=0.01) and workers.start_s == 3.0  # 2 s to set up, 1 s first step
    assert workers.about[0] == About("INP001", GROUP, diagnose(run).findings[0].recoverable)
    assert workers.predicted == diagnose(run).findings[0].recoverable  # that beside which the report shows the change


def test_the_surest_gain_comes_first_and_infos_last() -> None:
    run = waiting_run()
    told = found(
        run,
        finding("A", Family.COMPUTE, {"threads": 2}, low=0.05),
        finding("B", Family.COMPUTE, {"threads": 3}, low=0.5, severity=Severity.INFO),
        finding("C", Family.COMPUTE, {"threads": 4}, low=0.2),
    )
    assert changes(told) == [{"threads": 4}, {"threads": 2}, {"threads": 3}]


def test_a_change_that_two_findings_ask_for_is_tried_once_for_both() -> None:
    (one,) = found(
        waiting_run(),
        finding("A", Family.COMPUTE, {"threads": 2}, low=0.05),
        finding("B", Family.COMPUTE, {"threads": 2}, low=0.2),
    )
    assert [each.code for each in one.about] == ["A", "B"]
    assert one.predicted.low == 0.05  # of the finding that comes first, as in the report; never two for one change


def test_what_is_so_already_or_cannot_be_set_is_not_tried() -> None:
    run = waiting_run()
    assert found(run, finding("A", Family.COMPUTE, {"batch_size": 8}, {"threads": 0}, {"colour": 1}, {})) == ()


def test_copies_have_no_ceiling_on_the_cpu_and_one_on_a_device() -> None:
    assert found(waiting_run(), finding("XFR001", Family.TRANSFER)) == ()
    run = run_of(trial_of(device="cuda:0", transfer=0.3, forward=0.7))
    (one,) = found(run, finding("XFR001", Family.TRANSFER, group="synthetic on cuda:0"))
    assert one.change == {"ceiling": "no_transfer"}


def test_memory_and_the_experiment_itself_are_tried_only_by_name() -> None:
    memory = finding("MEM001", Family.MEMORY, {"gradient_checkpointing": True})
    assert found(waiting_run(), memory) == ()
    assert len(found(waiting_run(), memory, only=["mem001"])) == 1


def test_an_unknown_code_is_told_with_those_there_are() -> None:
    with pytest.raises(InvalidSettings, match=r"XYZ999 is no finding.*INP001"):
        found(waiting_run(), finding("INP001", Family.INPUT), only=["XYZ999"])


def test_tried_is_at_the_recommended_batch_or_else_at_the_largest_it_holds_for() -> None:
    run = sweep_of(a_s=0.0, b_s=0.01, batch_sizes=(4, 8, 16, 32))  # all equally fast: batch 4 is recommended
    everywhere = finding("A", Family.COMPUTE, {"threads": 2}, batch_sizes=(4, 8))
    large = finding("B", Family.COMPUTE, {"threads": 3}, batch_sizes=(8, 16), at_recommended=False)
    hint = dataclasses.replace(large, code="C", severity=Severity.INFO)
    told = found(run, everywhere, large, hint)
    assert [(one.base.settings.batch_size, one.change["threads"]) for one in told] == [(4, 2), (16, 3)]


def test_a_ceiling_experiment_is_no_base_to_start_from() -> None:
    run = run_of(trial_of(settings={"ceiling": "cached_batches"}))
    assert found(run, finding("A", Family.COMPUTE, {"threads": 2}, group="")) == ()
