"""``export``: a run's records in the forms other tools read."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perf_diagnostics.cli.exit_codes import DONE
from perf_diagnostics.cli.parser import examples
from perf_diagnostics.cli.run_arguments import add_run, folder_of, make_folder
from perf_diagnostics.cli.values import some_names
from perf_diagnostics.errors import InvalidSettings, ReportError

if TYPE_CHECKING:
    from perf_diagnostics.records import Run
    from perf_diagnostics.store.run_folder import RunFolder

FORMATS = ("csv", "parquet", "chrome", "prometheus", "tensorboard")


def add(commands: Any) -> None:
    command = commands.add_parser(
        "export",
        help="write a run for pandas, Perfetto, Prometheus or TensorBoard",
        description="Write a run's records as tidy tables (csv, parquet: trials and steps), as a trace for Perfetto "
        "and chrome://tracing (chrome), as a text file for Prometheus' node exporter, or as TensorBoard logs.",
        epilog=examples(
            "perf-diagnostics export --to csv",
            "perf-diagnostics export base --to chrome,tensorboard --output elsewhere",
        ),
        allow_abbrev=False,
    )
    add_run(command)
    command.add_argument(
        "--to",
        nargs="+",
        required=True,
        metavar="FORMAT",
        help=f"any of {', '.join(FORMATS)}; separated by commas or spaces",
    )
    command.add_argument("--output", "-o", metavar="DIR", help="write there (default: exports/ in the run's folder)")
    command.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    names = some_names(given.to, of="--to")
    unknown = [name for name in names if name not in FORMATS]
    if unknown:
        raise InvalidSettings(f"There is no export to {unknown[0]!r}; there are {', '.join(FORMATS)}.")
    folder = folder_of(given)
    directory = Path(given.output) if given.output else folder.path / "exports"
    make_folder(directory)
    records = folder.read()
    for name in dict.fromkeys(names):
        for path in _WRITERS[name](folder, records, directory):
            print(path)
    return DONE


def _csv(_folder: RunFolder, records: Run, directory: Path) -> list[Path]:
    from perf_diagnostics.store.query import steps_frame, trials_frame

    paths = [directory / "trials.csv", directory / "steps.csv"]
    for path, frame in zip(paths, (trials_frame, steps_frame), strict=True):
        with _whole(path) as file:
            frame(records).to_csv(file, index=False)
    return paths


def _parquet(_folder: RunFolder, records: Run, directory: Path) -> list[Path]:
    from perf_diagnostics.store.query import steps_frame, trials_frame

    paths = [directory / "trials.parquet", directory / "steps.parquet"]
    # A column of mixed or nested values has no Parquet type; its text does.
    trials = trials_frame(records)
    mixed = {name: "string" for name in trials.columns if trials[name].dtype == object}
    for path, table in zip(paths, (trials.astype(mixed), steps_frame(records)), strict=True):
        with _whole(path) as file:
            table.to_parquet(file, index=False)
    return paths


@contextlib.contextmanager
def _whole(path: Path) -> Iterator[Path]:
    """Where to write what shall lie at ``path`` once it is whole; of a full disk no half of a table is left.

    Raises:
        ReportError: it cannot be written.
    """
    from perf_diagnostics.store.files.whole_files import made_whole

    try:
        with made_whole(path) as temporary:
            yield temporary
    except OSError as error:
        raise ReportError(f"{path} could not be written: {error.strerror or error}.") from error


def _chrome(_folder: RunFolder, records: Run, directory: Path) -> list[Path]:
    from perf_diagnostics.integrations.exports.chrome_trace import write_chrome_trace

    return [write_chrome_trace(records, directory / "phases.trace.json.gz")]


def _prometheus(_folder: RunFolder, records: Run, directory: Path) -> list[Path]:
    from perf_diagnostics.integrations.exports.prometheus import write_prometheus

    return [write_prometheus(records, directory / "perf_diagnostics.prom")]


def _tensorboard(folder: RunFolder, records: Run, directory: Path) -> list[Path]:
    from perf_diagnostics.integrations.exports.tensorboard import write_tensorboard

    traces = {r.trial.id: folder.trial_directory(r.trial) / "trace.json.gz" for r in records.results}
    there = {trial: path for trial, path in traces.items() if path.is_file()}
    return list(write_tensorboard(records, directory / "tensorboard", traces=there))


_WRITERS: dict[str, Callable[[RunFolder, Run, Path], list[Path]]] = {
    "csv": _csv,
    "parquet": _parquet,
    "chrome": _chrome,
    "prometheus": _prometheus,
    "tensorboard": _tensorboard,
}
