"""Records survive the way to disk and back, and what is not a record is refused by file and key."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perf_diagnostics.errors import RecordError
from perf_diagnostics.records import (
    COLUMNS,
    Environment,
    Gap,
    Length,
    Quantity,
    Run,
    Series,
    Settings,
    StepTable,
    Trial,
    TrialResult,
)
from perf_diagnostics.store.files import codec, documents, tables
from tests.store import examples
from tests.store.examples import result_of, steps_of, trial_of_batch

quickly = settings(max_examples=40, deadline=None)


def through_text(value: Any) -> Any:
    """A record through the very bytes a file would hold."""
    data = json.dumps(codec.encode(value), ensure_ascii=False, allow_nan=False).encode("utf-8", "backslashreplace")
    return codec.decode(type(value), json.loads(data), where="here")


@quickly
@given(
    st.one_of(
        examples.settings_values,
        examples.lengths,
        examples.trials.filter(lambda t: all(not _surrogate(v) for v in (t.workload, t.settings.device))),
        examples.quantities,
        examples.gaps,
        examples.environments,
    )
)
def test_a_record_is_the_same_after_a_round_trip(record: Any) -> None:
    assert through_text(record) == record


def _surrogate(text: str) -> bool:
    return any("\ud800" <= sign <= "\udfff" for sign in text)


@quickly
@given(examples.trials)
def test_a_trial_keeps_its_id(trial: Trial) -> None:
    assert through_text(trial).id == trial.id


@quickly
@given(examples.results)
def test_a_result_is_the_same_after_a_round_trip(result: TrialResult) -> None:
    assert through_text(result) == result


@quickly
@given(st.lists(examples.trials, max_size=2), examples.environments, st.lists(examples.texts, max_size=2))
def test_a_run_header_is_the_same_after_a_round_trip(
    planned: list[Trial], environment: Environment, notes: list[str]
) -> None:
    run = Run(
        name="a",
        created_at="2026",
        tool_version="1",
        planned=tuple(planned),
        results=(),
        command="x --y",
        environment=environment,
        notes=tuple(notes),
    )
    assert through_text(run) == run


@quickly
@given(examples.step_tables())
def test_a_step_table_is_the_same_after_a_round_trip(table: StepTable) -> None:
    back = tables.steps_from_parquet(tables.steps_to_parquet(table), where="here")
    assert back == table
    assert {name: values.dtype for name, values in back.columns.items()} == {n: COLUMNS[n].dtype for n in table.columns}


@quickly
@given(st.lists(examples.sampled_series(), max_size=4))
def test_series_are_the_same_after_a_round_trip_even_two_of_one_name(series: list[Series]) -> None:
    assert tables.series_from_parquet(tables.series_to_parquet(series), where="here") == tuple(series)


def test_a_series_without_a_sample_leaves_nothing_behind() -> None:
    empty = Series("gpu_power", "W", "NVML", np.empty(0), np.empty(0))
    zero = Series("gpu_power", "W", "NVML", np.array([5]), np.array([0.0]))  # the twin: measured, and it was zero
    assert tables.series_from_parquet(tables.series_to_parquet([empty, zero]), where="here") == (zero,)


def test_a_parquet_column_carries_its_unit_and_dtype() -> None:
    schema = pq.read_schema(pa.BufferReader(tables.steps_to_parquet(steps_of(10, 20))))
    assert schema.field("wall_ns").metadata[b"unit"] == b"ns"
    assert schema.field("wall_ns").type == pa.int64()
    assert schema.field("warmup").type == pa.bool_()


def test_a_column_of_a_later_version_is_left_out() -> None:
    table = pq.read_table(pa.BufferReader(tables.steps_to_parquet(steps_of(10, 20))))
    sink = pa.BufferOutputStream()
    pq.write_table(table.append_column("page_faults", pa.array([1, 2])), sink)
    assert tables.steps_from_parquet(sink.getvalue().to_pybytes(), where="here") == steps_of(10, 20)


def _nulls(table: pa.Table) -> pa.Table:
    return table.set_column(0, "wall_ns", pa.array([1, None], pa.int64()))


def _text(table: pa.Table) -> pa.Table:
    return table.set_column(0, "wall_ns", pa.array(["1", "2"]))


def _none(table: pa.Table) -> pa.Table:
    return table.drop_columns(["wall_ns"])


@pytest.mark.parametrize("spoil", [_nulls, _text, _none])
def test_a_table_that_is_no_step_table_is_refused(spoil: Callable[[pa.Table], pa.Table]) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(spoil(pq.read_table(pa.BufferReader(tables.steps_to_parquet(steps_of(10, 20))))), sink)
    with pytest.raises(RecordError, match=r"here: .*wall_ns"):
        tables.steps_from_parquet(sink.getvalue().to_pybytes(), where="here")


def test_every_truncation_of_a_step_table_is_refused() -> None:
    whole = tables.steps_to_parquet(steps_of(*range(1, 50)))
    for length in range(0, len(whole), 7):
        with pytest.raises(RecordError, match="here is not a whole Parquet file"):
            tables.steps_from_parquet(whole[:length], where="here")


def test_a_flipped_bit_never_comes_back_as_another_measurement() -> None:
    table = steps_of(*range(1_000_000, 1_000_200))
    whole = tables.steps_to_parquet(table)
    data_end = whole.index(b"ARROW:schema")  # the pages lie before the footer
    refused = 0
    for position in range(4, data_end, 5):
        spoiled = bytearray(whole)
        spoiled[position] ^= 0x10
        try:
            assert tables.steps_from_parquet(bytes(spoiled), where="here").wall_ns.tolist() == table.wall_ns.tolist()
        except RecordError:
            refused += 1
    assert refused > 50


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda d: d.pop("workload"), r"^result\.json: trial: the key 'workload' is missing"),
        (lambda d: d["settings"].pop("batch_size"), r"trial: settings: the key 'batch_size' is missing"),
        (lambda d: d["settings"].update(batch_size="8"), r"batch_size='8' must be a whole number"),
        (lambda d: d["settings"].update(pin_memory="yes"), r"'pin_memory' should hold true or false"),
        (lambda d: d["settings"].update(precision=["float32"]), r"precision=\['float32'\] is not one of"),
        (lambda d: d["settings"].update(precision="float8"), r"precision='float8' is not one of"),
        (lambda d: d["length"].update(min_steps=True), r"'min_steps' should hold a whole number, not True"),
        (lambda d: d["length"].update(min_steps=0), r"must rise from at least 1"),
        (lambda d: d.update(options=[1]), r"options should be a JSON object, not list"),
    ],
)
def test_a_broken_trial_is_refused_by_file_and_key(spoil: Callable[[dict[str, Any]], object], message: str) -> None:
    data: dict[str, Any] = codec.encode(result_of(trial_of_batch(8)))
    spoil(data["trial"])
    with pytest.raises(RecordError, match=message):
        codec.decode(TrialResult, data, where="result.json")


def test_what_a_later_version_adds_is_ignored() -> None:
    result = result_of(trial_of_batch(8))
    data: dict[str, Any] = json.loads(json.dumps(codec.encode(result)))
    data["carbon_g"] = 3
    data["trial"]["settings"]["learning_rate"] = 0.1
    data["quantities"][0]["interval"] = [1, 2]
    assert codec.decode(TrialResult, data, where="here") == result


def test_a_newer_schema_is_refused_with_the_version_that_reads_it() -> None:
    document = {**documents.document("result", {}), "schema": documents.SCHEMA + 1, "tool_version": "7.3.0"}
    with pytest.raises(
        documents.NewerSchema, match=r"x/result\.json has schema 2; .*perf-diagnostics 7\.3\.0 or later"
    ):
        documents.open_document("result", document, where="x/result.json")


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "should be a JSON object, not list"),
        ({}, "'schema' is missing"),
        ({"schema": "1", "kind": "run"}, "'schema' should hold a whole number"),
        ({"schema": 0, "kind": "run"}, "the first one is 1"),
        ({"schema": 1, "kind": "result"}, "holds a 'result' record where 'run' was expected"),
    ],
)
def test_a_foreign_document_is_refused(document: Any, message: str) -> None:
    with pytest.raises(RecordError, match=message):
        documents.open_document("run", document, where="run.json")


def test_a_quantity_that_is_nan_becomes_a_gap_and_zero_stays_a_quantity() -> None:
    lost = Quantity("energy_device", math.nan, "J", "NVML")
    zero = Quantity("alloc_retries", 0.0, "1", "allocator")  # the twin
    result = TrialResult(trial=trial_of_batch(8), outcome=result_of(trial_of_batch(8)).outcome, quantities=(lost, zero))
    back = through_text(result)
    assert back.quantities == (zero,)
    assert back.gaps == (Gap("energy_device", "the value was not a number"),)
    with pytest.raises(RecordError, match="'energy_device' is NaN"):
        codec.encode(lost)


def test_nan_and_infinity_in_facts_are_written_as_json_can_hold_them() -> None:
    environment = Environment(host={"load": math.nan, "limit": math.inf, "floor": -math.inf, "cores": np.int64(2)})
    assert through_text(environment).host == {"load": None, "limit": "Infinity", "floor": "-Infinity", "cores": 2}


def test_a_fact_that_is_no_plain_value_is_refused_by_name() -> None:
    with pytest.raises(RecordError, match=r"host\.where\[0\] is a object"):
        codec.encode(Environment(host={"where": [object()]}))  # type: ignore[list-item]


@pytest.mark.parametrize("kind", [Settings, Length, Trial, Quantity, Gap, TrialResult, Run])
def test_an_empty_object_is_no_record(kind: Any) -> None:
    with pytest.raises(RecordError, match=r"^here: .*is missing"):
        codec.decode(kind, {}, where="here")
