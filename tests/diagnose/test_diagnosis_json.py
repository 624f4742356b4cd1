"""The JSON of a diagnosis has exactly the shape that programs rely on."""

from __future__ import annotations

import dataclasses
import json

from perf_diagnostics.diagnose import diagnose, diagnosis_to_json
from perf_diagnostics.testing import run_of, trial_of
from tests.code_lines import ITEM, LOOPING, WAITING, diagnosis_of, waiting


def test_the_shape():
    told = diagnosis_to_json(diagnose(run_of(trial_of(data_wait=0.3, forward=0.7))))
    assert told["schema_version"] == 1
    assert set(told["verdict"]) == {"code", "name", "family", "summary", "fault", "note"}
    assert {"findings", "cleared", "unchecked", "no_verdict_because", "suspected", "looks", "lines"} < set(told)
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


def test_the_looks_at_the_code_are_told_line_by_line_with_their_intervals():
    told = diagnosis_to_json(diagnosis_of(waiting(ITEM), LOOPING, ITEM))
    assert told["looks"] == 360
    loop, item = told["lines"]
    assert (item["file"], item["line"], item["first_line"], item["last_line"]) == ("train.py", 9, 9, 9)
    assert (item["phase"], item["share"], item["low"], item["high"]) == ("data_wait", 0.23, 0.205, 0.248)
    assert (item["looks"], item["text"], item["within"]) == (64, "x = x * 1.01", [])
    assert [caller["line"] for caller in item["callers"]] == [51, 41]
    assert (loop["line"], loop["first_line"], loop["last_line"]) == (22, 21, 24)
    assert [(one["line"], one["looks"]) for one in loop["within"]] == [(21, 12), (22, 40), (24, 12)]
    assert set(loop["within"][0]) == {"line", "text", "share", "low", "high", "looks"}
    assert told["findings"][0]["lines"] == [item]
    assert diagnosis_to_json(diagnose(run_of(trial_of())))["looks"] == 0


def test_a_suspicion_and_a_verdict_without_fault_are_marked():
    assert diagnosis_to_json(diagnose(run_of(trial_of(data_wait=0.3, forward=0.7))))["verdict"]["fault"] is True
    healthy = diagnosis_to_json(diagnose(run_of(trial_of())))
    assert healthy["verdict"]["fault"] is False and healthy["suspected"] is None
    assert healthy["verdict"]["note"].endswith("was not profiled (--deep does).")
    suspected = dataclasses.replace(WAITING, verdict=None, suspected="INP001", would_decide="Look.")
    told = diagnosis_to_json(suspected)
    assert (told["suspected"], told["would_decide"]) == ("INP001", "Look.")


def test_without_a_verdict_there_is_a_reason():
    told = diagnosis_to_json(diagnose(run_of()))
    assert told["verdict"] is None
    assert told["no_verdict_because"] == "no trial was run"


def test_what_cannot_be_won_back_is_null_and_not_zero():
    told = diagnosis_to_json(diagnose(run_of(trial_of())))
    compute = next(finding for finding in told["findings"] if finding["code"] == "CMP002")
    assert compute["recoverable_share"] is None
