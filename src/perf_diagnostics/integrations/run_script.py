"""Runs somebody's training script as ``python`` would, and measures what it trains."""

from __future__ import annotations

import copy
import io
import os
import runpy
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING

from perf_diagnostics.errors import InvalidSettings
from perf_diagnostics.integrations import told_paths as _told_paths  # noqa: F401 - notes the folder it is in
from perf_diagnostics.integrations.ends.endings import Ending, ending_of
from perf_diagnostics.integrations.quick_turns import quick_turns
from perf_diagnostics.integrations.ranks.ranks import rank
from perf_diagnostics.integrations.ranks.started_trainings import StartedTraining, StartedTrainings
from perf_diagnostics.integrations.shield import LoopObservations
from perf_diagnostics.integrations.watching.after_import import AfterImport
from perf_diagnostics.measure.without_collections import without_collections
from perf_diagnostics.records import Outcome

if TYPE_CHECKING:
    from perf_diagnostics.integrations.again.again import Again
    from perf_diagnostics.integrations.ranks.started_processes import StartedProcesses
    from perf_diagnostics.integrations.watching.watch import Watch

_OURS = str(Path(__file__).parents[1])
_MACHINERY = (_OURS, "<frozen runpy>", runpy.__file__)


class Session:
    """One script under watch: torch is patched as soon as the script has imported it.

    Args:
        workload: what the training is called.
        name: of the run; default: the time and ``workload``.
        results_dir: where runs lie, fixed now, for a script may change its folder.
        deep: record a profiler window.
        tell: says what was measured, at the end; or None.
        again: what is different in this run; None: nothing is.
        process: the name of a process that the script has started, where this is one.
        others: where such processes leave word of what they have recorded.
    """

    def __init__(
        self,
        *,
        workload: str,
        name: str | None,
        results_dir: Path,
        deep: bool = False,
        tell: Callable[[Session], None] | None = None,
        again: Again | None = None,
        process: str | None = None,
        others: StartedTrainings | None = None,
    ) -> None:
        self.watch: Watch | None = None
        self._workload = workload
        self._name = name
        self._results_dir = results_dir.absolute()
        self._deep = deep
        self._tell = tell
        self._again = again
        self._again_in_others = copy.copy(again)  # as it is before anything was put into this process
        self._together = None if again is None else again.together
        self._process = process
        self._others = others or StartedTrainings()
        self._processes: StartedProcesses | None = None
        self._unlisten: Callable[[], None] = lambda: None
        self._saying, self._said = threading.Lock(), False
        #: What the processes have recorded that the script has started, once it is to be told.
        self.started: list[StartedTraining] = []
        #: What failed of ours in these processes, in words that say where.
        self.failed: list[str] = []
        self._installed = ExitStack()
        self._pid = os.getpid()
        self.begun = False
        self._began_ns = 0
        #: What kept the watch from being put into torch.
        self.faults = LoopObservations()
        self._imports = AfterImport("torch", self._attach), AfterImport("multiprocessing.util", self._follow)

    @property
    def here(self) -> bool:
        """False in a process that the script forked off."""
        return os.getpid() == self._pid

    @property
    def speaks(self) -> bool:
        """Whether this process says what was measured: of several of one training, rank 0 does."""
        return rank() == 0 if self.watch is None else self.watch.recording.speaks

    def begin(self) -> None:
        """Wait for torch; the script begins now."""
        self.begun = True
        self._began_ns = time.perf_counter_ns()
        for awaited in self._imports:
            awaited.install()

    def end(self, ending: Ending) -> None:
        """Take everything off and write the result."""
        for awaited in self._imports:
            awaited.remove()
        self._installed.close()
        if self.watch is not None:
            with self.faults.guard("steps"):
                self.watch.end(*(ending if self._again is None else self._again.judged(ending)))
        if self._process is not None:
            for gap in self.faults.gaps:
                self._others.failed(self._process, gap.why)

    def _stop(self, ending: Ending) -> None:
        """There are enough steps: nothing of the script runs any more, here or in its other processes."""
        from perf_diagnostics.integrations.again.ended_together import leave_now

        alone = self._process is None and (self._processes is None or not self._processes.any_run())
        try:
            self.end(ending)
            if self._together is not None and not alone:
                self._together.enough()
            self._say_now()
        finally:
            leave_now()

    def _stop_all(self) -> None:
        """All processes that train have enough steps. This runs in a thread of its own."""
        from perf_diagnostics.integrations.again.ended_together import leave_now

        try:
            self._say_now()
        finally:
            leave_now()

    def say(self) -> None:
        """Say what was measured, if it is for this process to say; while others still train, when they have ended."""
        if self._processes is None or not self._processes.after_them(self._say_now):
            self._say_now()

    def _say_now(self) -> None:
        if self._process is not None or not (self.begun and self.here):
            return
        with self._saying:  # the script may end while a thread of ours ends it, too
            if self._said:
                return
            self._said = True
            self._unlisten()
            self.started, self.failed = self._others.take()  # in any case, for word of them is not to lie about
            for why in self.failed:
                self.faults.note("steps", why)
            if self._tell is not None and self.speaks:
                with quick_turns(), without_collections():
                    self._tell(self)

    def _follow(self) -> None:
        """The script may start processes."""
        with self.faults.guard("steps"):
            from perf_diagnostics.integrations.ranks.started_processes import StartedProcesses

            of_process = partial(
                Session,
                workload=self._workload,
                name=self._name,
                results_dir=self._results_dir,
                deep=self._deep,
                again=self._again_in_others,
                others=self._others,
            )
            self._processes = StartedProcesses(of_process, self._left, self._others.failed)
            self._processes.install(self._installed)
            if self._process is None and self._together is not None:
                self._unlisten = self._together.listen(self._stop_all)

    def _left(self) -> bool:
        """In a process that was forked off: what watches the first one comes off, unless that has begun to train."""
        watch = self.watch
        if watch is not None and (watch.recording.steps or watch.recording.unseen_steps):
            return False  # what is under way there, threads and locks among it, is best left alone
        self.end((Outcome.COMPLETED, "", "forked"))
        return True

    def _attach(self) -> None:
        """Torch is there. This runs inside the script's own ``import torch``, where nothing of ours may raise."""
        with self.faults.guard("steps"):
            self._watch_torch()

    def _watch_torch(self) -> None:
        from perf_diagnostics.integrations.ends.abrupt_ends import abrupt_ends
        from perf_diagnostics.integrations.own_cost import with_own_cost
        from perf_diagnostics.integrations.readings.boards_at_rest import boards_at_rest
        from perf_diagnostics.integrations.watching import checkpoints, loader_patches, patches, transfers, updates
        from perf_diagnostics.integrations.watching.watch import Watch

        watch = Watch(workload=self._workload, name=self._name, results_dir=self._results_dir)
        watch.recording.with_own_cost = with_own_cost
        if self._deep:
            watch.recording.record_window()
        abrupt_ends.add(watch)
        boards_at_rest.begin()
        self.watch = watch
        with watch.observations.guard("steps"):
            patches.watch_backward(watch, self._installed)
            checkpoints.watch_checkpoints(watch.checkpointed, self._installed)
            watch.steps.when_on_device = lambda: transfers.watch_transfers(watch, self._installed)
            updates.watch_updates(watch, None, self._installed)
            patches.watch_updates_by_hand(watch, self._installed)
            patches.watch_other_backwards(watch, self._installed)
            loader_patches.watch_loaders(watch, None, self._installed)
            if self._again is not None:
                self._again.begin(watch, self._installed, self._stop)
            if self._process is None:
                watch.recording.script_began_ns = self._began_ns or None
                watch.recording.share_name()
            else:
                watch.recording.share_name(partial(self._others.add, self._process))
                watch.about.notes.append(f"This is the training of {self._process}, a process that the script started.")


def run_watched(target: str, arguments: Sequence[str], *, as_module: bool, session: Session | None) -> int | None:
    """Run a script (or, ``as_module``, a module) as ``__main__``, as ``python target arguments`` would.

    Args:
        target: path of a script, a folder or zip file with a ``__main__.py``; or a module's name.
        arguments: the script's own.
        as_module: as ``python -m``.
        session: what measures it, or None to only run it.

    Returns:
        The exit code: None where the script came to its end, 1 after an exception, whose traceback is printed as
        Python prints it. ``SystemExit`` and ``KeyboardInterrupt`` are raised on, for the interpreter to handle.

    Raises:
        InvalidSettings: there is no such script.
    """
    if not as_module and not Path(target).exists():
        raise InvalidSettings(f"can't open file {target!r}: there is no such script.")
    ending: Ending = (Outcome.COMPLETED, "", "script_ended")
    if session is not None:
        session.begin()
    try:
        _execute(target, arguments, as_module=as_module)
    except (SystemExit, KeyboardInterrupt) as error:
        ending = ending_of(error)
        raise
    except BaseException as error:  # noqa: BLE001 - whatever a script raises is printed as Python prints it
        ending = ending_of(error)
        print_traceback(error)
        return 1
    finally:
        if session is not None:
            session.end(ending)
    return None


def print_traceback(error: BaseException) -> None:
    """Hand an exception to ``sys.excepthook``, without the frames that running and watching put into its traceback."""
    seen: set[int] = set()
    chain: list[BaseException | None] = [error]
    while chain:
        one = chain.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            one.__traceback__ = without_ours(one.__traceback__)
            chain += [one.__cause__, one.__context__]
    sys.excepthook(type(error), error, error.__traceback__)


def without_ours(trace: TracebackType | None) -> TracebackType | None:
    """A traceback without the frames of this package and, at its top, of runpy."""
    frames: list[TracebackType] = []
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        # Python leaves the import system's frames out by itself, but not where one of ours stands among them.
        ours = name.startswith((_OURS, "<frozen importlib.")) or (not frames and name in _MACHINERY)
        if not ours:
            frames.append(trace)
        trace = trace.tb_next
    following: TracebackType | None = None
    for frame in reversed(frames):
        frame.tb_next = following
        following = frame
    return following


def _execute(target: str, arguments: Sequence[str], *, as_module: bool) -> None:
    main = ModuleType("__main__")
    main.__dict__["__builtins__"] = __builtins__
    if sys.version_info < (3, 14):  # as ``__main__`` has it there before anything is annotated
        main.__dict__.update(__annotations__={})
    sys.modules["__main__"] = main
    sys.argv[:] = [target, *arguments]
    run_as_main = runpy._run_module_as_main  # type: ignore[attr-defined]  # what ``python -m`` itself calls
    if as_module:
        _first_on_path(str(Path.cwd()))
        run_as_main(target, alter_argv=True)
    elif Path(target).is_file() and not _is_archive(target):
        _first_on_path(str(Path(target).resolve().parent))
        path = os.path.join(Path.cwd(), target)  # noqa: PTH118 - as Python itself spells __file__
        main.__dict__.update(__file__=path, __cached__=None, __loader__=SourceFileLoader("__main__", path))
        with io.open_code(path) as file:
            code = compile(file.read(), path, "exec")
        exec(code, main.__dict__)  # noqa: S102 - running the user's own script is the command
    else:
        _first_on_path(str(Path(target).absolute()))
        run_as_main("__main__", alter_argv=False)


def _is_archive(path: str) -> bool:
    import zipfile

    return zipfile.is_zipfile(path)


def _first_on_path(folder: str) -> None:
    """Put the script's folder where Python puts it, in place of this command's own."""
    if sys.flags.safe_path:
        return
    sys.path[0] = folder
