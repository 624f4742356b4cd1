"""Small records to store, and hypothesis strategies that make any record."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
from hypothesis import strategies as st

from perf_diagnostics.records import (
    COLUMNS,
    COMPILE_MODES,
    OPTIMIZER_IMPLEMENTATIONS,
    PRECISIONS,
    Environment,
    Gap,
    Length,
    Outcome,
    Quantity,
    Series,
    Settings,
    StepTable,
    Trial,
    TrialResult,
)

NOW = datetime(2026, 11, 21, 2, 31, 5, tzinfo=UTC)


def trial_of_batch(batch_size: int) -> Trial:
    return Trial(workload="mlp", settings=Settings(batch_size=batch_size), length=Length.exactly(4))


def steps_of(*wall_ns: int, samples: int = 8, warmup: int = 0) -> StepTable:
    count = len(wall_ns)
    return StepTable(
        {"wall_ns": wall_ns, "samples": np.full(count, samples), "warmup": np.arange(count) < warmup}  # type: ignore[dict-item]
    )


def result_of(trial: Trial, *, steps: tuple[StepTable, ...] = (), series: tuple[Series, ...] = ()) -> TrialResult:
    return TrialResult(
        trial=trial,
        outcome=Outcome.COMPLETED,
        steps=steps,
        series=series,
        quantities=(Quantity("setup_s", 1.5, "s", "perf_counter_ns"),),
        gaps=(Gap("gpu_power", "NVML library not found"),),
        facts={"model": "mlp"},
        provenance={"host_clock": "perf_counter_ns"},
        environment=Environment(host={"cores": 2}),
        started_at="2026-11-21T02:31:05+00:00",
        finished_at="2026-11-21T02:31:09+00:00",
        stop_reason="max_steps",
    )


# Any text JSON can carry, lone surrogates included: a trial's output may hold undecodable bytes.
texts = st.text(alphabet=st.characters(exclude_categories=()), max_size=12)
finite = st.floats(allow_nan=False, allow_infinity=False)
plain_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | finite | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
mappings = st.dictionaries(texts, plain_values, max_size=3)
counts = st.integers(1, 2**40)

settings_values = st.builds(
    Settings,
    batch_size=counts,
    device=texts.filter(bool),
    precision=st.sampled_from(PRECISIONS),
    accumulation_steps=st.none() | counts,
    sequence_length=st.none() | st.integers(3, 10**6),
    num_workers=st.none() | st.integers(0, 64),
    prefetch_factor=st.none() | counts,
    persistent_workers=st.none() | st.booleans(),
    pin_memory=st.none() | st.booleans(),
    threads=st.none() | counts,
    compile_mode=st.none() | st.sampled_from(COMPILE_MODES),
    optimizer_implementation=st.none() | st.sampled_from(OPTIMIZER_IMPLEMENTATIONS),
    gradient_checkpointing=st.none() | st.booleans(),
)
lengths = st.builds(
    lambda warmup, floor, more, most, share: Length(
        warmup_steps=warmup, floor_steps=floor, min_steps=floor + more, max_steps=floor + more + most, half_width=share
    ),
    counts,
    counts,
    st.integers(0, 100),
    st.integers(0, 100),
    st.floats(0, 0.99),
)
trials = st.builds(
    Trial,
    workload=texts,
    settings=settings_values,
    # An empty-string key would do too; ids hash options, so they hold finite numbers only.
    options=st.dictionaries(
        st.text(max_size=8), st.none() | st.booleans() | st.integers() | finite | st.text(max_size=8)
    ),
    length=lengths,
    seed=st.integers(),
    repeat=st.integers(0, 100),
)
quantities = st.builds(
    Quantity,
    name=texts,
    value=st.floats(allow_nan=False) | st.integers(),
    unit=texts,
    source=texts,
    estimated=st.booleans(),
)
gaps = st.builds(Gap, texts, texts)
environments = st.builds(
    Environment,
    **dict.fromkeys(("host", "python", "limits", "threads", "variables", "git", "command"), mappings),
    devices=st.lists(mappings, max_size=2).map(tuple),
    gaps=st.lists(gaps, max_size=2).map(tuple),
)
results = st.builds(
    TrialResult,
    trial=trials,
    outcome=st.sampled_from(Outcome),
    reason=texts,
    quantities=st.lists(quantities, max_size=3).map(tuple),
    gaps=st.lists(gaps, max_size=3).map(tuple),
    facts=mappings,
    provenance=st.dictionaries(texts, texts, max_size=3),
    environment=environments,
    started_at=texts,
    finished_at=texts,
    stop_reason=texts,
    steady=st.booleans(),
)


def _column_values(dtype: str, count: int) -> st.SearchStrategy[list[object]]:
    element: st.SearchStrategy[object] = {
        "int64": st.integers(-(2**63), 2**63 - 1),
        "float64": st.floats(),  # NaN and infinity included: a lost event is NaN
        "bool": st.booleans(),
    }[dtype]
    return st.lists(element, min_size=count, max_size=count)


@st.composite
def step_tables(draw: st.DrawFn) -> StepTable:
    count = draw(st.integers(0, 6))
    optional = draw(st.sets(st.sampled_from(sorted(COLUMNS)), max_size=4))
    names = sorted(optional | {"wall_ns", "samples", "warmup"})
    return StepTable(
        {name: np.array(draw(_column_values(COLUMNS[name].dtype, count)), COLUMNS[name].dtype) for name in names}
    )


@st.composite
def sampled_series(draw: st.DrawFn) -> Series:
    count = draw(st.integers(1, 5))
    times = draw(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=count, max_size=count))
    values = draw(st.lists(finite, min_size=count, max_size=count))
    words = st.text(max_size=6)  # Parquet text is UTF-8: no lone surrogates
    return Series(draw(words), draw(words), draw(words), np.array(times), np.array(values), draw(st.booleans()))
