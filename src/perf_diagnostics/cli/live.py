"""``live``: watch a run that is being measured, from another terminal or beside the script that is measured."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perf_diagnostics.cli.exit_codes import DONE
from perf_diagnostics.cli.run_arguments import add_run, folder_of
from perf_diagnostics.errors import InvalidSettings

if TYPE_CHECKING:
    from perf_diagnostics.report.live import LiveView
    from perf_diagnostics.store.run_folder import RunFolder

#: Finished blocks of steps are on disk at least every five seconds.
EVERY_S = 5.0

#: Reading a run and asking all rules takes a second or two, imports included.
_LAST_LOOK_S = 20.0

#: Between two looks whether a run has begun. A script beside which they are taken should not notice them.
_LOOK_AGAIN_S = 0.5

#: Set where something else prints to the same terminal, which a redrawn view would garble.
_LINES = "PERF_DIAGNOSTICS_LIVE_LINES"


def add(commands: Any) -> None:
    command = commands.add_parser(
        "live",
        help="watch a run while it is measured",
        description="Show where the time of a run goes while it is measured: phases, throughput, the verdict so far. "
        "It reads what the run has written and disturbs it no further. On a terminal the view is redrawn, elsewhere "
        "lines are added. Ends with the run, or with Ctrl-C.",
        allow_abbrev=False,
    )
    add_run(command)
    command.add_argument(
        "--every", type=float, default=EVERY_S, metavar="SECONDS", help=f"look so often (default: {EVERY_S:g})"
    )
    command.add_argument(
        "--wait", action="store_true", help="wait for the run to begin; of 'latest' for any that is measured"
    )
    command.add_argument("--of-pid", type=int, help=argparse.SUPPRESS)  # whose end is the end of the waiting, too
    command.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    if not given.every > 0:
        raise InvalidSettings(f"--every {given.every:g}: give more than 0 seconds.")
    if given.of_pid is not None:
        # Ctrl-C is for the script, which asks for a last look when it ends.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    asked_to_end = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: asked_to_end.set())
    folder = None if given.wait else folder_of(given)
    while folder is None:
        folder = _begun(given.of_run, Path(given.results_dir))
        if folder is None and (asked_to_end.wait(_LOOK_AGAIN_S) or not _lives(given.of_pid)):
            return DONE
    follow(folder, every_s=given.every, wait=asked_to_end.wait, stopped=asked_to_end.is_set)
    return DONE


def _begun(name: str, results_dir: Path) -> RunFolder | None:
    """The run that is waited for, if it has begun; of ``latest`` the newest one that is being written."""
    from perf_diagnostics.store.find import LATEST, list_runs
    from perf_diagnostics.store.run_folder import RunFolder

    if name == LATEST:
        return next((folder for folder in list_runs(results_dir)[:1] if folder.being_written), None)
    places = (results_dir / name, Path(name))
    return next((RunFolder.open(place) for place in places if (place / "run.json").is_file()), None)


def follow(
    folder: RunFolder,
    *,
    every_s: float = EVERY_S,
    wait: Callable[[float], object] = time.sleep,
    stopped: Callable[[], bool] = lambda: False,
) -> None:
    """Show the run again and again on standard error until nobody writes it any more."""
    from perf_diagnostics.report.live import live_view
    from perf_diagnostics.trials.confirm.experiments import read_experiments

    with _screen() as show:
        while True:
            # Asked before reading, so that what a run wrote last is still shown.
            over = stopped() or not folder.being_written
            show(live_view(folder.read(), experiments=read_experiments(folder.path)))
            if over:
                return
            wait(every_s)


@contextlib.contextmanager
def beside(folder: Path) -> Iterator[None]:
    """Show a run that is about to begin while the block lasts, from a process of its own.

    So neither interpreter waits for the other, and the script that is measured keeps its terminal: the view goes to
    standard error, in lines.
    """
    command = [sys.executable, "-m", "perf_diagnostics", "live", str(folder), "--wait", "--of-pid", str(os.getpid())]
    viewer = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=os.environ | {_LINES: "1"}
    )
    try:
        yield
    finally:
        viewer.terminate()  # asks it for a last look
        try:
            viewer.wait(timeout=_LAST_LOOK_S)
        except subprocess.TimeoutExpired:
            viewer.kill()


def _lives(pid: int | None) -> bool:
    try:
        os.kill(pid or os.getpid(), 0)
    except ProcessLookupError:
        return False
    return True


class _screen:  # noqa: N801 - a context manager that reads as a verb
    """Redraws on a terminal; elsewhere adds lines, so that a log stays readable."""

    def __init__(self) -> None:
        self._live: Any = None
        self._last: list[str] = []

    def __enter__(self) -> Callable[[LiveView], None]:
        if not sys.stderr.isatty() or os.environ.get(_LINES):
            return self._add_lines
        from rich.console import Console
        from rich.live import Live

        self._live = Live(console=Console(stderr=True), auto_refresh=False)
        self._live.start()
        return self._redraw

    def __exit__(self, *_error: object) -> None:
        if self._live is not None:
            self._live.stop()

    def _add_lines(self, view: LiveView) -> None:
        from perf_diagnostics.report.live import live_lines

        lines = live_lines(view)
        if lines != self._last:
            # The verdict is long: it is said again only when it has changed.
            new = lines[:-1] if self._last[-1:] == lines[-1:] else lines
            print("\n".join(f"perf-diagnostics: {line}" for line in new), file=sys.stderr, flush=True)
            self._last = lines

    def _redraw(self, view: LiveView) -> None:
        from rich.text import Text

        from perf_diagnostics.report.live import live_bars, live_lines

        head, *_, verdict = live_lines(view)
        self._live.update(Text("\n".join([view.run_name, head, *live_bars(view), verdict])), refresh=True)
