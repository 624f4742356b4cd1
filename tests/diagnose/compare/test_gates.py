"""Gates: what they take, and when they fail, hold or cannot decide."""

from __future__ import annotations

import pytest

from perf_diagnostics.diagnose.compare.comparing import compare
from perf_diagnostics.diagnose.compare.gates import Check, Gate, State, check, failing, parse_gates, share_of
from perf_diagnostics.errors import InvalidSettings
from perf_diagnostics.records import Outcome, TrialResult
from perf_diagnostics.testing import run_of
from tests.diagnose.two_runs import ended, processes, times


def checked(base: list[TrialResult], new: list[TrialResult], *gates: str) -> tuple[Check, ...]:
    return check(compare(run_of(*base), run_of(*new)), parse_gates(gates))


def states(checks: tuple[Check, ...]) -> list[tuple[str, str]]:
    return [(one.gate.metric, str(one.state)) for one in checks]


# -- what they take


def test_gates_are_read():
    assert parse_gates(["step_time:5%", "peak-memory:12.5%", "throughput: 3 %", "missing", "step_time:5%"]) == (
        Gate("step_time", 0.05),
        Gate("peak_memory", 0.125),
        Gate("throughput", 0.03),
        Gate("missing"),
    )


@pytest.mark.parametrize(
    "text",
    ["", "step_time", "step_time:", "step_time:5", "step_time:0.05", "steptime:5%", "step_time:-5%", "step_time:nan%",
     "step_time:inf%", "step_time:5%%", "step_time:5%x", "missing:5%", "step_time:x%", ":5%"],
)  # fmt: skip
def test_anything_else_is_refused_with_the_form(text: str):
    with pytest.raises(InvalidSettings, match=r"METRIC:SHARE%, such as step_time:5%"):
        parse_gates([text])


def test_two_limits_for_one_metric_are_refused():
    with pytest.raises(InvalidSettings, match="step_time:5% was given too"):
        parse_gates(["step_time:5%", "step_time:10%"])


def test_a_throughput_cannot_fall_by_all_of_it():
    with pytest.raises(InvalidSettings, match="cannot fall by 100 %"):
        parse_gates(["throughput:100%"])
    assert parse_gates(["step_time:100%"]) == (Gate("step_time", 1.0),)


@pytest.mark.parametrize(("text", "share"), [("2%", 0.02), ("0%", 0.0), (" 2.5 % ", 0.025), ("2", None), ("%", None)])
def test_percentages(text: str, share: float | None):
    assert share_of(text) == share


# -- what they say


@pytest.mark.parametrize(
    ("factor", "state"),
    [
        (1.0, State.HELD),  # the interval ends about 1 % above 1
        (0.5, State.HELD),  # twice as fast
        (1.02, State.HELD),  # worse, and surely by less than 5 %
        (1.045, State.UNDECIDED),  # surely worse, perhaps by more than 5 %
        (1.06, State.FAILED),  # surely worse, by more than 5 % as observed, though perhaps by 4.9 %
        (1.5, State.FAILED),
    ],
)
def test_a_limit_of_five_percent_on_step_time(factor: float, state: State):
    completed, step_time = checked(times(1.0), times(factor), "step_time:5%")
    assert completed.state is State.HELD
    assert step_time.state is state


def test_less_throughput_is_worse():
    # 1 / 1.04 is 3.8 % less; 1 / 0.9 is 11 % more.
    assert states(checked(times(1.0), times(1.04), "throughput:3%"))[1:] == [("throughput", "failed")]
    assert states(checked(times(1.0), times(0.9), "throughput:3%"))[1:] == [("throughput", "held")]


def test_more_memory_is_worse():
    def run(*memory_mib: float) -> list[TrialResult]:
        return processes(1.0, 1.0, 1.0, memory_mib=memory_mib)

    assert states(checked(run(100, 101, 99), run(120, 121, 119), "peak_memory:10%"))[1:] == [("peak_memory", "failed")]
    assert states(checked(run(120, 121, 119), run(100, 101, 99), "peak_memory:10%"))[1:] == [("peak_memory", "held")]


def test_a_large_change_without_evidence_is_undecided():
    (_, step_time) = checked(processes(0.5, 1.0, 2.0), processes(1.0, 2.0, 4.0), "step_time:5%")
    assert step_time.state is State.UNDECIDED
    assert step_time.why.startswith("100 % worse (")
    assert "too much scatter" in step_time.why


def test_not_enough_runs_is_undecided():
    (_, step_time) = checked(processes(1.0), processes(9.0), "step_time:5%")
    assert (step_time.state, step_time.why) == (
        State.UNDECIDED,
        "not enough runs to compare (1 against 1): measure each several times (sweep --repeats 5)",
    )


def test_a_metric_nobody_measured_is_undecided():
    (_, energy) = checked(times(1.0), times(1.0), "energy:5%")
    assert (energy.state, energy.why) == (State.UNDECIDED, "not measured in either run")


def test_a_metric_one_side_lacks_is_undecided_with_the_reason():
    base, new = processes(1.0, 1.0, memory_mib=(1, 1)), processes(1.0, 1.0, gaps={"host_memory_peak": "no /proc"})
    (_, memory) = checked(base, new, "peak_memory:5%")
    assert (memory.state, memory.why) == (State.UNDECIDED, "not measured in NEW: no /proc")


@pytest.mark.parametrize("gate", ["step_time:5%", "missing"])
def test_what_no_longer_completes_fails_any_gate(gate: str):
    base = [*times(1.0), *times(1.0, batch_size=64)]
    new = [*times(1.0), *(ended(Outcome.OUT_OF_MEMORY_HOST, repeat=r, batch_size=64) for r in range(5))]
    failed = failing(checked(base, new, gate), strict=False)
    assert [(one.gate.metric, one.configuration, one.why) for one in failed] == [
        ("missing", "synthetic cpu batch 64", "0 of 5 trials completed in NEW, 5 of 5 in BASE")
    ]


def test_what_is_not_in_new_at_all_fails():
    failed = failing(checked([*times(1.0), *times(1.0, batch_size=64)], times(1.0), "missing"), strict=False)
    assert [one.why for one in failed] == ["it is not in NEW, 5 of 5 in BASE"]


def test_what_completes_only_in_part_is_undecided():
    new = [*times(1.0)[:4], ended(Outcome.CRASHED, repeat=4)]
    (missing,) = checked(times(1.0), new, "missing")
    assert (missing.state, missing.why) == (State.UNDECIDED, "4 of 5 trials completed in NEW, 5 of 5 in BASE")


def test_what_failed_before_or_is_new_is_not_held_against_new():
    broken = [ended(Outcome.CRASHED, repeat=r, batch_size=64) for r in range(5)]
    base = [*times(1.0), *broken]
    assert states(checked(base, [*times(1.0), *broken], "missing")) == [("missing", "held")]
    assert states(checked(base, [*times(1.0), *times(1.0, batch_size=64)], "missing")) == [("missing", "held")]
    assert states(checked(times(1.0), [*times(1.0), *times(1.0, batch_size=128)], "missing")) == [("missing", "held")]


def test_a_gate_with_nothing_to_compare_is_undecided():
    broken = [ended(Outcome.CRASHED)]
    (one,) = checked(broken, broken, "step_time:5%")
    assert (one.state, one.configuration, one.why) == (State.UNDECIDED, "", "no configuration completed in both runs")


def test_strict_fails_on_what_could_not_be_decided():
    checks = checked(processes(1.0), processes(1.0), "step_time:5%")
    assert failing(checks, strict=False) == ()
    assert [one.gate.metric for one in failing(checks, strict=True)] == ["step_time"]
    assert failing(checked(times(1.0), times(1.0), "step_time:5%"), strict=True) == ()


def test_without_gates_nothing_is_checked():
    assert checked(times(1.0), [ended(Outcome.CRASHED)]) == ()
