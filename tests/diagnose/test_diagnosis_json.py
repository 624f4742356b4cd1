"""The JSON of a diagnosis has exactly the shape that programs rely on."""

from __future__ import annotations

import json

from perf_diagnostics.diagnose import diagnose, diagnosis_to_json
from perf_diagnostics.testing import run_of, trial_of


def test_the_shape():
    told = diagnosis_to_json(diagnose(run_of(trial_of(data_wait=0.3, forward=0.7))))
    assert told["schema_version"] == 1
    assert set(told["verdict"]) == {"code", "name", "family", "summary"}
    assert {"findings", "cleared", "unchecked", "no_verdict_because"} < set(told)
    finding = told["findings"][0]
    assert {
        "code",
        "name",
        "family",
        "severity",
        "summary",
        "scope",
        "recoverable_share",
        "recoverable_low",
        "recoverable_high",
        "evidence",
        "remedies",
        "confidence",
    } <= set(finding)
    assert {"metric", "value", "limit", "unit", "n"} <= set(finding["evidence"][0])
    assert set(finding["remedies"][0]) == {"says", "change"}
    assert {"code", "signal", "why"} <= set(told["unchecked"][0])


def test_the_values():
    told = diagnosis_to_json(diagnose(run_of(trial_of(data_wait=0.3, forward=0.7))))
    finding = told["findings"][0]
    assert (finding["code"], finding["family"], finding["severity"]) == ("INP001", "INP", "critical")
    assert finding["recoverable_low"] < finding["recoverable_share"] < finding["recoverable_high"]
    wait = finding["evidence"][0]
    assert (wait["metric"], wait["unit"], round(wait["value"], 6), wait["limit"]) == (
        "exposed data wait",
        "%",
        30.0,
        20.0,
    )
    assert json.loads(json.dumps(told, allow_nan=False)) == told


def test_without_a_verdict_there_is_a_reason():
    told = diagnosis_to_json(diagnose(run_of()))
    assert told["verdict"] is None
    assert told["no_verdict_because"] == "no trial was run"


def test_what_cannot_be_won_back_is_null_and_not_zero():
    told = diagnosis_to_json(diagnose(run_of(trial_of())))
    compute = next(finding for finding in told["findings"] if finding["code"] == "CMP002")
    assert compute["recoverable_share"] is None
