"""The warm process that trials are forked from: ``python -m perf_diagnostics.trials.fork_server FD [MODULE …]``.

It imports what every trial needs and runs no operation of torch itself, so that no thread pool and no device context
exists when it forks. It serves one trial at a time: a request comes in, ``started`` and ``ended`` go out.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import socket
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

from perf_diagnostics.measure.host.parent import die_with_parent
from perf_diagnostics.measure.host.standard_streams import flush_streams
from perf_diagnostics.trials.launch.launcher import Channel

#: What every trial would import by itself, which takes long: torch's compiler comes with the first optimizer, and
#: Parquet when the first block of steps is over.
_EVERY_TRIAL = ("torch._dynamo", "pyarrow.parquet")

_NVML_CHECK = "PYTORCH_NVML_BASED_CUDA_CHECK"


def main(arguments: list[str]) -> int:
    """Serve until the channel closes."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    channel = Channel(socket.socket(fileno=int(arguments[0])))
    with _asking_the_driver():
        from perf_diagnostics.trials import worker

        for module in (*_EVERY_TRIAL, *arguments[1:]):
            try:
                importlib.import_module(module)
            except (ImportError, OSError, RuntimeError) as error:  # a library that finds no driver raises any of them
                # The trial imports it again and reports the failure as its own outcome.
                print(f"fork server: could not import {module}: {error}", file=sys.stderr)
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    channel.send(json.dumps({"event": "ready"}))
    while True:
        request = channel.receive(None)
        if request is None or request.get("event") == "closed":
            return 0
        server = os.getpid()
        pid = _fork()
        if pid == 0:
            _become_trial(channel, (wake_read, wake_write), server, worker.main, json.dumps(request))
        channel.send(json.dumps({"event": "started", "pid": pid}))
        if not _await(pid, channel, wake_read):
            return 0


def _fork() -> int:
    """``os.fork()`` without what Python 3.12 and later say of it on standard error where there are other threads.

    Those that the imports leave sleep, and their libraries are prepared for forks: OpenBLAS ends its pools before one,
    and jemalloc (pyarrow's) sets itself up anew in the child (both by ``pthread_atfork``).
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".* is multi-threaded", category=DeprecationWarning)
        return os.fork()


def _await(pid: int, channel: Channel, wake_read: int) -> bool:
    """Report the trial's end; false if the supervisor has gone away, and the trial with it."""
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            channel.send(json.dumps({"event": "ended", "code": os.waitstatus_to_exitcode(status)}))
            return True
        readable, _, _ = select.select([channel.fileno(), wake_read], [], [])
        if wake_read in readable:
            os.read(wake_read, 4096)
        if channel.fileno() in readable:
            # One trial at a time: while it runs, only the end of the supervisor can make the channel readable.
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return False


def _become_trial(
    channel: Channel, pipes: tuple[int, int], server: int, run: Callable[[list[str]], int], request: str
) -> NoReturn:
    """In the forked child: a session of its own, output to the trial's file, then the trial. Never returns."""
    code = 70  # EX_SOFTWARE
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        die_with_parent()
        if os.getppid() != server:
            os._exit(code)  # the server died between the fork and the line above
        channel.close()
        for descriptor in pipes:
            os.close(descriptor)
        output = os.open(
            Path(json.loads(request)["directory"]) / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644
        )
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)
        if _device_is_out_of_reach():
            print("fork server: an imported module asked CUDA; this trial gets an interpreter of its own", flush=True)
            command = [sys.executable, "-m", "perf_diagnostics.trials.worker", request]
            os.execv(sys.executable, command)  # noqa: S606 - the same process, with our own module and no shell
        code = run([request])
    except BaseException:  # noqa: BLE001 - the last frame of a process: nothing above it could tell
        traceback.print_exc()
    finally:
        flush_streams()
        # Not sys.exit: the server's own clean-up is not this child's to run.
        os._exit(code)


@contextlib.contextmanager
def _asking_the_driver() -> Iterator[None]:
    """Let ``torch.cuda.is_available()`` ask NVML while modules are imported.

    Some ask when they are imported (transformers does where flash-attn is installed). By default torch then asks the
    CUDA runtime, and no process forked from here could use a GPU any more ("Cannot re-initialize CUDA in forked
    subprocess"); see torch's notes on multiprocessing, "Poison fork in multiprocessing".
    """
    before = os.environ.get(_NVML_CHECK)
    os.environ[_NVML_CHECK] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_NVML_CHECK]
        else:
            os.environ[_NVML_CHECK] = before


def _device_is_out_of_reach() -> bool:
    """Whether, in a forked child, a device was asked before the fork all the same, so that it cannot be used here."""
    torch: Any = sys.modules.get("torch")
    kinds = () if torch is None else (getattr(torch, "cuda", None), getattr(torch, "xpu", None))
    return any(kind is not None and kind._is_in_bad_fork() for kind in kinds)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
