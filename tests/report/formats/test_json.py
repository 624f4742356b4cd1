"""The report as JSON."""

from __future__ import annotations

import dataclasses
import json
import math

from perf_diagnostics.report.formats.json import SCHEMA_VERSION, report_json


def test_it_is_json_with_a_schema_number_and_sorted_names(report):
    text = report_json(report)
    value = json.loads(text)
    assert value["schema_version"] == SCHEMA_VERSION
    assert list(value) == sorted(value)
    assert text == report_json(report)


def test_every_trial_is_there_in_full_precision(report, run):
    trials = json.loads(report_json(report))["data"]["trials"]
    assert len(trials) == len(run.results)
    shown = {trial["id"]: trial for trial in trials}
    for result in run.completed:
        steady = result.steps[0].steady
        rate = float(steady.samples.sum()) / float(steady.wall_ns.sum()) * 1e9
        assert math.isclose(shown[result.trial.id]["throughput_samples_per_s"]["value"], rate, rel_tol=1e-12)


def test_what_was_not_measured_is_null_and_zero_is_zero(report):
    trials = json.loads(report_json(report))["data"]["trials"]
    lost = next(trial for trial in trials if trial["outcome"] == "out_of_memory_host")
    assert lost["throughput_samples_per_s"] is None
    assert lost["energy_per_sample_j"] is None
    assert lost["steps"] == 0


def test_numbers_that_are_none_become_null(report):
    odd = dataclasses.replace(report, data={"nan": math.nan, "inf": [math.inf], "zero": 0.0})
    data = json.loads(report_json(odd))["data"]
    assert data == {"inf": [None], "nan": None, "zero": 0.0}
