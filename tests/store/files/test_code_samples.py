"""Samples of the user's code at rest."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from perf_diagnostics.errors import RecordError
from perf_diagnostics.records import CodePath, CodePlace, CodeSamples, TrialResult
from perf_diagnostics.store.files import codec
from perf_diagnostics.store.files.code_samples import decode_code, encode_code
from perf_diagnostics.store.files.fields import Fields
from perf_diagnostics.testing import trial_of

CODE = CodeSamples(
    places=(
        CodePlace(file="train.py", line=9, function="main", text="loss = model(x)", kinds=((".old", "deque"),)),
        CodePlace(file="model.py", line=3, function="Net.forward"),
    ),
    paths=(
        CodePath(
            phase="forward",
            places=(0, 1),
            looks=7,
            rare=2,
            late=True,
            calls=("torch.nn.functional.linear",),
            via=("a.b",),
        ),
        CodePath(phase="other", part="prepare", places=(), looks=1),
    ),
    interval_s=0.025,
    rare_interval_s=0.1,
    cpu_s=0.002,
)


def test_a_result_keeps_where_its_time_went() -> None:
    result = dataclasses.replace(trial_of(), code=CODE, worker_code=dataclasses.replace(CODE, cpu_s=0.5))
    again = codec.decode(TrialResult, codec.encode(result), where="result.json")
    assert again.code == CODE and again.worker_code == result.worker_code
    assert again.code.looks == 10
    assert [again.code.seconds(path) for path in again.code.paths] == pytest.approx([0.375, 0.025])


def test_what_lines_are_to_the_training_is_kept_and_may_be_missing() -> None:
    roles = ("method", "")
    data: Any = encode_code(dataclasses.replace(CODE, roles=roles))
    assert decode_code(Fields(data, "result.json: code")).roles == roles
    assert "roles" not in encode_code(CODE)  # as in records of before
    with pytest.raises(RecordError, match="'roles' holds 1 of 2 lines"):
        decode_code(Fields(data | {"roles": ["method"]}, "result.json: code"))


def test_when_looks_fell_is_kept_and_may_be_missing() -> None:
    first, second = CODE.paths
    timed = dataclasses.replace(
        CODE,
        paths=(dataclasses.replace(first, course=(4, 5)), dataclasses.replace(second, course=(1, 0))),
        stretch_s=0.5,
    )
    data: Any = encode_code(timed)
    assert decode_code(Fields(data, "result.json: code")) == timed
    assert "stretch_s" not in encode_code(CODE) and "course" not in str(encode_code(CODE))  # as in records of before
    data["paths"][0]["course"] = [4, -5]
    with pytest.raises(RecordError, match="'course' should hold a list of counts"):
        decode_code(Fields(data, "result.json: code"))


def test_a_result_without_any_has_none() -> None:
    encoded = codec.encode(trial_of())
    assert "code" not in encoded
    assert codec.decode(TrialResult, encoded, where="result.json").code is None


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"places": [0, 2]}, r"'places' holds 2; there are 2 lines"),
        ({"places": [True]}, r"'places' holds True"),
        ({"places": 1}, r"'places' should hold a list"),
        ({"calls": [1]}, r"'calls' should hold a list of texts"),
        ({"looks": "7"}, r"'looks' should hold a whole number"),
    ],
)
def test_what_is_no_such_record_is_refused_with_its_place(change: dict[str, Any], says: str) -> None:
    data: Any = encode_code(CODE)
    data["paths"][0] |= change
    with pytest.raises(RecordError, match=rf"result.json: code.*{says}"):
        decode_code(Fields(data, "result.json: code"))
