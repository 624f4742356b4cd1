"""The facts about the machine: with units, in as many digits as somebody reads, and with the ends of what varied."""

from __future__ import annotations

import dataclasses

from perf_diagnostics.records import Environment, Json
from perf_diagnostics.report.where import environment_of
from perf_diagnostics.testing import run_of, trial_of


def facts(*hosts: dict[str, Json], line: str = "") -> dict[str, str]:
    """What the sheets say of trials on such hosts, by name."""
    results = [
        dataclasses.replace(trial_of(batch_size=2**i), environment=Environment(host=host, command={"line": line}))
        for i, host in enumerate(hosts)
    ]
    run = dataclasses.replace(run_of(*results), environment=Environment(command={"line": "perf-diagnostics sweep"}))
    return {name: value for sheet in environment_of(run) for name, value in sheet.facts if sheet.title != "Run"}


def test_amounts_have_units_and_their_names_no_second_one() -> None:
    told = facts({"memory_bytes": 2**34, "limit_bytes": None, "psi_cpu_some_avg10": 0.25, "psi_io_some_avg10": 0.0})
    assert told["memory"] == "16.00 GiB" and told["limit"] == "unknown"
    assert told["psi cpu some avg10"] == "0.250 %" and told["psi io some avg10"] == "0 %"
    assert not any("bytes" in name for name in told)


def test_a_variable_of_the_environment_keeps_its_name() -> None:
    one = dataclasses.replace(trial_of(), environment=Environment(variables={"OMP_NUM_THREADS": "1"}))
    told = dict(fact for sheet in environment_of(run_of(one)) for fact in sheet.facts)
    assert told["OMP_NUM_THREADS"] == "1"


def test_of_many_different_values_the_ends_are_told_by_size_and_not_by_time() -> None:
    loads = (1.46533203125, 0.5654296875, 10.25, 9.5)
    told = facts(*({"load_1min": load, "cores": 2} for load in loads))
    assert told["load 1min"] == "0.565 … 10.2 (4 different values)"  # as texts 10.2 would come before 9.50
    assert told["cores"] == "2"


def test_what_some_did_not_record_leaves_no_empty_place() -> None:
    assert facts({"cores": 2})["line"] == "perf-diagnostics sweep"
    assert facts({"cores": 2}, line="other")["line"] == "perf-diagnostics sweep | other"
