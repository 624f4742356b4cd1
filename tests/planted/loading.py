"""Plants of the input pipeline."""

from __future__ import annotations

from typing import Any

from tests.planted.bases import HEALTHY, WIDE, faulty, healthy
from tests.planted.plant import Plant, Script, Seen, Trials, slower, spends

_IN_WORKERS = {"num_workers": 4, "persistent_workers": True}
_TWO_WORKERS = {"num_workers": 2, "persistent_workers": True}
_INPUT = ("INP001", "INP002", "INP003")


def _waits_off_the_processor(faulty: Seen, control: Seen | None) -> str:
    """The loop waits for long (64 naps of 0.5 ms a batch), and its thread hardly computes meanwhile."""
    waited, computed = faulty.column_s("host_data_wait_ns"), faulty.column_s("data_wait_cpu_ns")
    if waited < 0.025 * faulty.steps:
        return f"the loop waits {waited / faulty.steps * 1e3:.0f} ms a batch only"
    return "" if computed <= 0.5 * waited else f"the loader's thread computes {computed / waited:.0%} of its wait"


def _computes(faulty: Seen, control: Seen | None) -> str:
    """Of 32 ms a batch the loop's thread computes at least 25, however long it has to wait for a processor."""
    computed_s = faulty.column_s("data_wait_cpu_ns") / faulty.steps
    return "" if computed_s >= 0.025 else f"the loader's thread computes {computed_s * 1e3:.0f} ms a batch only"


def _is_padded(faulty: Seen, control: Seen | None) -> str:
    """A third of what the batches hold is padding, by their own count."""
    assert faulty.run is not None
    tables = [result.steps[0].steady for result in faulty.run.completed]
    padding = sum(float(table.columns["padding_tokens"].sum()) for table in tables)
    share = padding / sum(float(table.columns["tokens"].sum()) for table in tables)
    return "" if share >= 0.33 else f"{share:.0%} of the batches is padding"


def _language_model(*, length_bucketing: bool) -> Trials:
    """Sentences of their own lengths in each batch, or of similar ones; a step takes a tenth of a second."""
    settings: dict[str, Any] = {"threads": 1} | ({"length_bucketing": True} if length_bucketing else {})
    return Trials(workload="tiny-transformer", batch_sizes=(16,), steps=60, settings=settings)


def _names_its_sampler(faulty: Seen, control: Seen | None) -> str:
    """What is said first about the wait is that it is drawing, in the script's own sampler, and so are its lines."""
    found = next((finding for finding in faulty.diagnosis.findings if finding.code == "INP001"), None)
    if found is None or "drawing which samples a batch has, in Balanced.__iter__" not in found.summary:
        return "the sampler is not named"
    named = {line.place.function for line in found.lines[:1]}
    return "" if all(name.startswith("Balanced.__iter__") for name in named) else f"the line named is in {named}"


PLANTS = (
    Plant(
        name="script-searching-sampler",
        number="-",
        says="a script whose sampler looks through all labels, in Python, for each sample of a batch",
        dose="64 times 4,096 labels a batch",
        faulty=Script(fault="searching-sampler"),
        control=Script(fault="indexed-sampler"),
        fix=Script(fault="indexed-sampler"),
        expected=("INP001",),
        top=("INP001",),
        must_not=("HST006", "INP003", "INP005", "HST005"),
        check=_names_its_sampler,
    ),
    Plant(
        name="sleeping-loader",
        number="1",
        says="each sample is waited for, in the loop's own thread",
        dose="0.5 ms a sample: 32 ms a batch, several times the rest of the step",
        faulty=faulty(sleep_per_item_ms=0.5),
        control=HEALTHY,
        fix=faulty(sleep_per_item_ms=0.5, settings=_IN_WORKERS),
        expected=("INP001",),
        noted=("INP002",),
        top=_INPUT,
        must_not=("HST006", "INP007", "STB002", "SWP001"),
        check=_waits_off_the_processor,
    ),
    Plant(
        name="burning-loader",
        number="2",
        says="each sample is computed in plain Python, in the loop's own thread",
        dose="0.5 ms a sample: 32 ms a batch",
        faulty=faulty(burn_per_item_ms=0.5, steps=60),
        control=HEALTHY,
        fix=faulty(burn_per_item_ms=0.5, steps=60, settings={"num_workers": 1, "persistent_workers": True}),
        expected=("INP001",),
        noted=("INP002",),
        top=_INPUT,
        must_not=("HST006", "INP007", "STB002"),
        check=_computes,
    ),
    Plant(
        name="burning-loader-one-worker",
        number="3",
        says="the same in one worker: more workers than processors cannot help",
        dose="1.5 ms a sample: 96 ms a batch, on one of the processors",
        faulty=faulty(**WIDE, burn_per_item_ms=1.5, steps=40, settings={"num_workers": 1, "persistent_workers": True}),
        control=healthy(**WIDE, settings={"num_workers": 1, "persistent_workers": True}),
        expected=("INP001",),
        top=_INPUT,
        must_not=("HST006",),
        check=slower(2.0),
    ),
    Plant(
        name="sleeping-loader-in-workers",
        number="4",
        says="samples are waited for, and four workers wait at once: little is left of it",
        dose="0.05 ms a sample in each of four workers",
        faulty=faulty(**WIDE, sleep_per_item_ms=0.05, settings=_IN_WORKERS),
        control=healthy(**WIDE, settings=_IN_WORKERS),
        never_critical=("INP001",),
    ),
    Plant(
        name="short-epochs",
        number="5",
        says="workers are started anew at every epoch of ten batches",
        dose="a start of workers every 10 steps",
        faulty=healthy(**WIDE, samples=640, settings={"num_workers": 1}),
        control=healthy(**WIDE, samples=640, settings={"num_workers": 1, "persistent_workers": True}),
        fix=healthy(**WIDE, samples=640, settings={"num_workers": 1, "persistent_workers": True}),
        expected=("INP005",),
        top=("INP005", "INP001"),
        must_not=("HST006", "STB002"),
        check=slower(1.2),
    ),
    Plant(
        name="one-slow-worker",
        number="6",
        says="one of two workers is slow, so that every other batch is waited for",
        dose="3 ms a sample in the first worker: 190 ms every second batch",
        faulty=faulty(**WIDE, slow_worker_ms=3.0, steps=60, settings=_TWO_WORKERS),
        control=healthy(**WIDE, steps=60, settings=_TWO_WORKERS),
        fix=healthy(**WIDE, steps=60, settings=_TWO_WORKERS),
        expected=("INP004|INP001",),
        noted=("INP004",),
        top=("INP004", *_INPUT),
        must_not=("EXP010", "HST006"),
        check=slower(2.0),
    ),
    Plant(
        name="preprocessing-in-the-loop",
        number="7",
        says="each batch is worked on in the loop, after the loader gave it",
        dose="15 ms of Python a batch",
        faulty=faulty(preprocess_ms=15.0),
        control=HEALTHY,
        fix=faulty(preprocess_ms=0.2),
        expected=("INP007|HST006",),
        top=("INP007", "HST006"),
        must_not=("INP001", "STB002"),
        check=slower(2.0),
    ),
    Plant(
        name="in-memory-loader",
        number="N-d",
        says="no workers, and none are needed: samples lie in memory",
        dose="none",
        faulty=HEALTHY,
    ),
    Plant(
        name="script-sleeping-loader",
        number="1",
        says="a script whose loader sleeps over each sample",
        dose="0.5 ms a sample",
        faulty=Script(fault="sleeping-loader"),
        control=Script(),
        expected=("INP001",),
        top=_INPUT,
        must_not=("HST006",),
        check=_waits_off_the_processor,
    ),
    Plant(
        name="script-samples-left-out",
        number="-",
        says="a script of whose two workers each parses all lines, and then leaves out every other one",
        dose="64 needless lines of 640 numbers a batch",
        faulty=Script(fault="parsed-by-all", steps=100),
        control=Script(fault="parsed-in-turn", steps=100),
        fix=Script(fault="parsed-in-turn", steps=100),
        expected=("INP009",),
        top=("INP009",),
        must_not=("HST006",),
        check=slower(1.2),
    ),
    Plant(
        name="script-short-epochs",
        number="5",
        says="a script whose loader starts its worker anew every ten batches",
        dose="a start of workers every 10 steps",
        faulty=Script(fault="short-epochs"),
        control=Script(),
        expected=("INP005|INP001",),
        top=("INP005", "INP001"),
        must_not=("HST006",),
        check=spends("host_data_wait_ns", 0.3),
    ),
    Plant(
        name="script-healthy",
        number="N-a",
        says="an untouched script",
        dose="none",
        faulty=Script(),
    ),
    Plant(
        name="padded-transformer",
        number="N-h",
        says="a small language model whose batches are padded to their longest sentence",
        dose="as its sentences come",
        faulty=_language_model(length_bucketing=False),
        control=_language_model(length_bucketing=True),
        fix=_language_model(length_bucketing=True),
        expected=("CMP004",),
        top=("CMP004",),
        must_not=("STB002", "INP001"),
        check=_is_padded,
    ),
)
