"""The file ``confirm/experiments.json`` of a run: what was tried of its advice, and what of it was left out.

::

    results/<run-name>/confirm/        a run folder of its own: run.json, trials/ and .lock as in any other
        experiments.json               the experiments with their predictions, in the order in which they were planned

It is written before the first pair of a new experiment runs, whole or not at all, by whoever holds the lock of the
nested folder. The sweep's own files are never touched.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path

from perf_diagnostics.diagnose.finding import Share
from perf_diagnostics.diagnose.rule_parts.experiments import About, Experiment, Experiments, LeftOut
from perf_diagnostics.errors import InvalidSettings, RecordError, RunError
from perf_diagnostics.records import Json, Trial
from perf_diagnostics.store.files import codec
from perf_diagnostics.store.files.documents import document, open_document
from perf_diagnostics.store.files.fields import Fields, plain
from perf_diagnostics.store.files.whole_files import read_json, to_json, write_atomic
from perf_diagnostics.store.run_folder import RunFolder

FOLDER = "confirm"
FILE = "experiments.json"


def nested_folder(run: Path) -> Path:
    """Where the trials of a run's experiments lie."""
    return run / FOLDER


def read_experiments(run: Path) -> Experiments | None:
    """What was tried of a run's advice, with the results there are; None if nothing was.

    Raises:
        RunError: the file or its folder cannot be read.
    """
    path = nested_folder(run) / FILE
    if not path.exists():
        return None
    try:
        planned = _decoded(open_document("experiments", read_json(path), where=str(path)))
    except (RecordError, InvalidSettings) as error:
        raise RunError(str(error)) from error
    folder = nested_folder(run)
    results = RunFolder.open(folder).results() if (folder / "run.json").is_file() else ()
    return dataclasses.replace(planned, results=results)


def write_experiments(run: Path, experiments: Experiments) -> None:
    """Put the experiments down, without their results, which lie in their trials' folders."""
    body: dict[str, Json] = {
        "seed": experiments.seed,
        "experiments": [_experiment(one) for one in experiments.planned],
        "left_out": [_left_out(one) for one in experiments.left_out],
    }
    path = nested_folder(run) / FILE
    write_atomic(path, to_json(document("experiments", body)), fsync=True)


def _experiment(one: Experiment) -> Json:
    return {
        "about": _about(one.about),
        "says": one.says,
        "change": plain(dict(one.change), "change"),
        "base": codec.encode(one.base),
        "first_repeat": one.first_repeat,
        "pairs": one.pairs,
    }


def _left_out(one: LeftOut) -> Json:
    return {
        "about": _about(one.about),
        "says": one.says,
        "change": plain(dict(one.change), "change"),
        "batch_size": one.batch_size,
        "base": None if one.base is None else codec.encode(one.base),
        "why": one.why,
    }


def _about(about: Iterable[About]) -> list[Json]:
    return [
        {
            "code": each.code,
            "group": each.group,
            "predicted": None
            if (share := each.predicted) is None
            else {"value": share.value, "low": share.low, "high": share.high, "measured": share.measured},
        }
        for each in about
    ]


def _decoded(fields: Fields) -> Experiments:
    return Experiments(
        seed=fields.whole("seed"),
        planned=tuple(_experiment_of(part) for part in fields.parts("experiments")),
        left_out=tuple(_left_out_of(part) for part in fields.parts("left_out")),
    )


def _experiment_of(fields: Fields) -> Experiment:
    one = Experiment(
        about=tuple(_about_of(part) for part in fields.parts("about")),
        says=fields.text("says"),
        change=fields.mapping("change"),
        base=_base_of(fields),
        first_repeat=fields.whole("first_repeat"),
        pairs=fields.whole("pairs"),
    )
    one.pair(0)  # a change that no setting takes is told here, with the file's name in the error
    return one


def _left_out_of(fields: Fields) -> LeftOut:
    return LeftOut(
        about=tuple(_about_of(part) for part in fields.parts("about")),
        says=fields.text("says"),
        change=fields.mapping("change"),
        batch_size=fields.whole("batch_size"),
        why=fields.text("why"),
        base=None if fields.values.get("base") is None else _base_of(fields),
    )


def _base_of(fields: Fields) -> Trial:
    return codec.decode(Trial, dict(fields.part("base").values), where=f"{fields.where}: base")


def _about_of(fields: Fields) -> About:
    predicted = None
    if fields.values.get("predicted") is not None:
        part = fields.part("predicted")
        ends = (part.number("value"), part.number("low"), part.number("high"))
        predicted = Share(*ends, measured=part.flag("measured", default=False))
    return About(fields.text("code"), fields.text("group"), predicted)
