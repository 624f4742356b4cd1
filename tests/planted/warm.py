"""Starts ``perf-diagnostics run``, and plain scripts, in processes forked from one that has imported torch.

Importing torch takes longer than most of the planted trainings. A process that was forked is one of its own, and what
it runs is the command as it is, down to the interpreter's end. How the command meets a script that imports torch by
itself is tested in ``tests/integrations/test_run_script.py``.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import gc
import json
import multiprocessing.process
import os
import runpy
import select
import signal
import subprocess
import sys
import types
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: What a script under the command imports, but for what is ours: of that each process gets its own.
_IMPORTS = (
    *("torch", "torch._dynamo", "torch.distributed", "torch.nn.parallel", "numpy", "pyarrow.parquet", "psutil"),
    *("scipy.ndimage", "scipy.special"),
)
_READY_S = 180.0


@dataclass(frozen=True)
class Asked:
    """A process to be started: ``python -m perf_diagnostics`` with these words, or the script that is their first.

    ``environment`` is all of its environment; ``folder`` where it runs.
    """

    words: Sequence[str]
    environment: Mapping[str, str]
    folder: str = "."
    script: bool = False


class WarmStart:
    """One server for many processes, started by the first of them; it ends when its input does, so with this process.

    It starts one lot of processes at a time, which suits whoever measures with nothing beside it.

    Args:
        imports: what it imports.
        variables: beside the environment's own, for what an interpreter reads once, at its start.
    """

    def __init__(self, imports: Sequence[str] = _IMPORTS, **variables: str) -> None:
        self._imports = imports
        self._variables = variables
        self._server: subprocess.Popen[str] | None = None

    def run(
        self, words: Sequence[str], environments: Sequence[Mapping[str, str]], *, said: Path, timeout_s: float
    ) -> list[int]:
        """Run ``python -m perf_diagnostics`` with these words once for each of the environments, all at once.

        Args:
            words: of the command line, behind its name.
            environments: the whole environment of each process.
            said: see :meth:`run_all`, which also says what is returned and raised.
            timeout_s: likewise.
        """
        return self.run_all([Asked(words, one) for one in environments], said=said, timeout_s=timeout_s)

    def run_all(self, asked: Sequence[Asked], *, said: Path, timeout_s: float) -> list[int]:
        """Run what is asked for, all at once.

        Args:
            asked: the processes.
            said: a new folder; in it ``0``, ``1`` ... get what each process writes to its standard error, and
                ``0.out``, ``1.out`` ... what it writes to its standard output.
            timeout_s: the server and all its processes are killed after that.

        Returns:
            Each one's exit code, negative for a signal.

        Raises:
            TimeoutError: they did not end in time, and none of them is left.
        """
        server = self._running()
        assert server.stdin is not None
        processes = [
            {**dataclasses.asdict(one), "environment": dict(one.environment), "folder": str(Path(one.folder).resolve())}
            for one in asked
        ]
        lot = {"processes": processes, "said": str(said.resolve())}
        server.stdin.write(json.dumps(lot) + "\n")
        server.stdin.flush()
        codes: list[int] = self._answer(timeout_s)
        return codes

    def close(self) -> None:
        """End the server; whatever it still runs is ended with it."""
        server, self._server = self._server, None
        if server is None:
            return
        assert server.stdin is not None and server.stdout is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()
        server.stdin.close()
        server.stdout.close()

    def _running(self) -> subprocess.Popen[str]:
        if self._server is None:
            command = [sys.executable, str(Path(__file__)), *self._imports]
            self._server = subprocess.Popen(
                command,
                env={**os.environ, **self._variables},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
            assert self._answer(_READY_S) == "ready"
        return self._server

    def _answer(self, timeout_s: float) -> Any:
        server = self._server
        assert server is not None and server.stdout is not None
        readable, _, _ = select.select([server.stdout], [], [], timeout_s)
        line = server.stdout.readline() if readable else ""
        if not line:
            self.close()
            raise TimeoutError(f"nothing within {timeout_s:.0f} s" if not readable else "the server ended")
        return json.loads(line)


# -- the server: this file as a script


def _serve() -> tuple[Asked, str] | None:
    """Fork what is asked for and say how it ended, until there is no input; in a forked process: what it is to run."""
    for line in sys.stdin:
        lot = json.loads(line)
        started = []
        for number, asked in enumerate(lot["processes"]):
            with warnings.catch_warnings():
                # Of threads, which Python 3.12 mentions: numpy's, which sets itself up anew in the child.
                warnings.filterwarnings("ignore", message=".* is multi-threaded", category=DeprecationWarning)
                pid = os.fork()
            if pid == 0:
                return Asked(**asked), str(Path(lot["said"]) / str(number))
            started.append(pid)
        codes = _ended()
        print(json.dumps([codes[pid] for pid in started]), flush=True)
    return None


def _ended() -> dict[int, int]:
    """How every process has ended, by its number: also those that a script has left behind, as far as they come here.

    Whoever captures what a script says waits for these, too, for they keep its standard output open.
    """
    codes: dict[int, int] = {}
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.wait()
            codes[pid] = os.waitstatus_to_exitcode(status)
    return codes


def _adopt_orphans() -> None:
    """Linux: a process whose parent has ended becomes this one's child (PR_SET_CHILD_SUBREAPER)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)


def _become(asked: Asked, said: str) -> None:
    """Take the place of an interpreter that has just been started."""
    nothing = os.open(os.devnull, os.O_RDWR)
    output, errors = (os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600) for path in (f"{said}.out", said))
    for file, descriptor in ((nothing, 0), (output, 1), (errors, 2)):
        os.dup2(file, descriptor)
        os.close(file)
    os.chdir(asked.folder)
    vars(multiprocessing.process)["ORIGINAL_DIR"] = asked.folder
    os.environ.clear()
    os.environ.update(asked.environment)
    sys.argv[1:] = asked.words
    sys.path[0] = asked.folder  # as -m does


def _interpret(words: Sequence[str]) -> None:
    """Run a script as ``python`` does; a traceback does not show who ran it."""
    script = Path(words[0]).absolute()
    sys.argv[:] = words
    sys.path[0] = str(script.resolve().parent)
    main = types.ModuleType("__main__")
    main.__file__ = str(script)
    sys.modules["__main__"] = main
    code = compile(script.read_bytes(), str(script), "exec")
    try:
        exec(code, vars(main))
    except Exception as error:
        behind = error.__traceback__
        assert behind is not None
        sys.excepthook(type(error), error.with_traceback(behind.tb_next), behind.tb_next)
        sys.exit(1)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        __import__(name)
    _adopt_orphans()
    # A collection in the child, above all the one at its end, would look at all of torch, and copy every page of it
    # that is shared with this process: 0.8 s. Whoever wants collections to be as long as they are calls gc.unfreeze().
    gc.collect()
    gc.freeze()
    print(json.dumps("ready"), flush=True)
    if (found := _serve()) is not None:
        _become(*found)
        if found[0].script:
            _interpret(found[0].words)
        else:
            runpy.run_module("perf_diagnostics", run_name="__main__", alter_sys=True)
