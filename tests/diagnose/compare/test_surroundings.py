"""What must be equal around two runs, and what is only worth a note."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from perf_diagnostics.diagnose.compare.comparing import compare
from perf_diagnostics.diagnose.compare.surroundings import Surroundings, refusal
from perf_diagnostics.records import Environment, Outcome
from perf_diagnostics.testing import run_of
from tests.diagnose.two_runs import ended, machine, on, processes


def around(base: Environment, new: Environment, **trial: Any) -> Surroundings:
    """The surroundings of a trial in one environment against those of the same trial in another."""
    return compare(run_of(*on(base, processes(1.0, **trial))), run_of(*on(new, processes(1.0, **trial)))).surroundings


def test_what_was_seen_of_the_course_is_no_surrounding():
    def seen(**facts):
        return run_of(*processes(1.0, facts={"model": "Net", **facts}))

    base = seen(passes=9, waits_seen={"forward": {"late": 5}}, backward_time_unused=0.1, parts={"rows": [[8, 1]]})
    new = seen(passes=6, waits_seen={"forward": {"late": 13}}, backward_time_unused=0.2, parts={"rows": [[8, 2]]})
    assert compare(base, new).surroundings == Surroundings()
    (note,) = compare(base, seen(compiled=True)).surroundings.notes
    assert note.says == "compiled: not recorded in BASE, True in NEW"


def test_equal_surroundings_say_nothing():
    found = around(machine(numpy="2.0"), machine(numpy="2.0"))
    assert (found.mismatches, found.notes) == ((), ())


def test_another_torch_is_refused_by_name_and_value():
    found = around(machine(torch="2.12.0"), machine(torch="2.13.0"))
    assert [one.says for one in found.mismatches] == ["torch version: 2.12.0 in BASE, 2.13.0 in NEW"]
    told = refusal(found.mismatches)
    assert "2.12.0" in told
    assert "--allow-mismatch" in told


def test_the_device_of_a_trial_on_the_cpu_is_the_processor():
    found = around(machine(cpu="EPYC 9654"), machine(cpu="Xeon 8480"))
    assert [one.says for one in found.mismatches] == ["device name: EPYC 9654 in BASE, Xeon 8480 in NEW"]


def test_the_processor_beside_a_gpu_is_a_note():
    found = around(machine(cpu="EPYC 9654"), machine(cpu="Xeon 8480"), device="cuda:0")
    assert found.mismatches == ()
    assert [one.says for one in found.notes] == ["cpu_model: EPYC 9654 in BASE, Xeon 8480 in NEW"]


def test_another_gpu_is_refused():
    base, new = (
        run_of(*on(machine(), processes(1.0, device="cuda:0"), device_name=name)) for name in ("Tesla T4", "H200")
    )
    (mismatch,) = compare(base, new).surroundings.mismatches
    assert mismatch.says == "device name: Tesla T4 in BASE, H200 in NEW"


def test_a_device_varied_on_purpose_is_a_note():
    base = run_of(*on(machine(), processes(1.0, device="cpu")))
    new = run_of(*on(machine(), processes(1.0, device="cuda:0"), device_name="H200"))
    found = compare(base, new, vary=["device"]).surroundings
    assert found.mismatches == ()
    assert {one.says for one in found.notes} >= {
        "device kind: cpu in BASE, cuda in NEW",
        "device name: EPYC in BASE, H200 in NEW",
    }


def test_what_one_side_did_not_record_is_a_note_and_no_mismatch():
    found = around(machine(torch=None), machine(torch="2.13.0"))
    assert found.mismatches == ()
    assert [one.says for one in found.notes] == ["torch version: not recorded in BASE, 2.13.0 in NEW"]


def test_what_neither_side_recorded_is_nothing():
    assert around(machine(torch=None, cpu=None), machine(torch=None, cpu=None)) == Surroundings()


def test_a_mismatch_in_one_configuration_of_several_is_found():
    same, other = processes(1.0, batch_size=8), processes(1.0, batch_size=16)
    base = run_of(*on(machine(), same), *on(machine(), other))
    new = run_of(*on(machine(), same), *on(machine(torch="2.14.0"), other))
    assert [one.new for one in compare(base, new).surroundings.mismatches] == [("2.14.0",)]


def test_what_else_differs_is_noted_once():
    trials = [*processes(1.0, batch_size=8), *processes(1.0, batch_size=16)]
    one = dataclasses.replace(
        machine(numpy="2.0"),
        threads={"torch_intra_op": 2},
        variables={"OMP_NUM_THREADS": "2"},
        git={"commit": "aaa"},
        devices=({"name": "cuda:0", "driver": "550.1"},),
    )
    other = dataclasses.replace(
        machine(numpy="2.1"),
        threads={"torch_intra_op": 4},
        variables={},
        git={"commit": "bbb"},
        devices=({"name": "cuda:0", "driver": "560.2"},),
    )
    found = compare(
        run_of(*on(one, trials, optimizer="SGD")), run_of(*on(other, trials, optimizer="AdamW"))
    ).surroundings
    assert found.mismatches == ()
    assert sorted(note.says for note in found.notes) == [
        "commit: aaa in BASE, bbb in NEW",
        "device driver: 550.1 in BASE, 560.2 in NEW",
        "numpy: 2.0 in BASE, 2.1 in NEW",
        "optimizer: SGD in BASE, AdamW in NEW",
        "torch_intra_op: 2 in BASE, 4 in NEW",
        "variable OMP_NUM_THREADS: 2 in BASE, not recorded in NEW",
    ]


def test_trials_that_failed_do_not_count_beside_completed_ones():
    done = on(machine(), processes(1.0))
    broken = on(machine(torch="2.14.0"), [ended(Outcome.CRASHED, repeat=1)])
    assert compare(run_of(*done), run_of(*done, *broken)).surroundings == Surroundings()
    assert [one.new for one in compare(run_of(*done), run_of(*broken)).surroundings.mismatches] == [("2.14.0",)]


def test_a_trial_that_never_ran_says_nothing():
    done = on(machine(), processes(1.0))
    assert compare(run_of(*done), run_of(pending=[done[0].trial])).surroundings == Surroundings()


def test_load_and_counters_are_not_worth_a_note():
    one, other = (dataclasses.replace(machine(), host={"cpu_model": "EPYC", "load_1min": load}) for load in (0.1, 2.0))
    assert around(one, other) == Surroundings()


def test_a_varied_setting_is_not_noted_again():
    base = run_of(*on(machine(), processes(1.0, settings={"threads": 1}), threads=1, workers=0))
    new = run_of(*on(machine(), processes(1.0, settings={"threads": 2}), threads=2, workers=0))
    assert compare(base, new, vary=["threads"]).surroundings == Surroundings()


def test_the_run_s_environment_stands_in_for_a_trial_s():
    base, new = (
        dataclasses.replace(run_of(*processes(1.0)), environment=machine(torch=version)) for version in ("2.12", "2.13")
    )
    assert [one.what for one in compare(base, new).surroundings.mismatches] == ["torch version"]


def test_a_trial_in_the_users_own_process_knows_its_devices_and_leaves_the_rest_to_the_run():
    base, new = (
        dataclasses.replace(
            run_of(*on(Environment(devices=({"name": "cuda:0", "driver": driver},)), processes(1.0, device="cuda:0"))),
            environment=machine(),
        )
        for driver in ("550.1", "560.2")
    )
    found = compare(base, new).surroundings
    assert [one.says for one in found.notes] == ["device driver: 550.1 in BASE, 560.2 in NEW"]
    assert found.mismatches == ()


@pytest.mark.parametrize("steps", [5, 50])
def test_other_lengths_are_noted(steps: int):
    base, new = run_of(*processes(1.0)), run_of(*processes(1.0, steps=steps))
    notes = [one.says for one in compare(base, new).surroundings.notes]
    assert notes == ([] if steps == 5 else ["least steps: 5 in BASE, 50 in NEW"])
