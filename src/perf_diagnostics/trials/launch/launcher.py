"""Starts trials in processes of their own: the seam, and the two ways to do it."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from perf_diagnostics.errors import PerfDiagnosticsError
from perf_diagnostics.records import Json

#: Importing torch and transformers from a cold disk has been seen to take half a minute.
_READY_SECONDS = 180.0

#: Workloads of ours that do without transformers; whether the trials of any other one import it is not known before.
_WITHOUT_TRANSFORMERS = frozenset({"faulty", "mlp", "tiny-transformer"})


@dataclass(frozen=True)
class Request:
    """What a trial's process is told: which trial (its canonical form), where to write, how long it may take.

    ``floor_budget_s`` is how long the least number of steps may take where ``budget_s`` is too short for them.
    ``deep`` asks for a profiler window after the timed steps; it is no part of the trial, whose id stays what it is.
    ``look`` has its first gradients looked at, a step after the timed ones, and what the device can do at best.
    ``task`` is ``count`` for a process that counts operations instead of measuring.
    """

    trial: dict[str, Json]
    directory: str
    budget_s: float | None = None
    floor_budget_s: float | None = None
    deep: bool = False
    look: bool = True
    task: str = "measure"

    def to_json(self) -> str:
        return json.dumps(asdict(self), allow_nan=False)


class TrialProcess(Protocol):
    """A trial under way. ``pid`` leads a process group of its own."""

    pid: int

    def wait(self, timeout_s: float) -> int | None:
        """The exit code (negative: the signal it died of) once it has ended, else None after ``timeout_s``."""


class Launcher(Protocol):
    """A way to start trials."""

    def start(self, request: Request) -> TrialProcess:
        """Start a trial; returns at once."""

    def close(self) -> None:
        """End whatever was kept ready for the next trial."""


def launcher(preload: tuple[str, ...] = ()) -> Launcher:
    """The fastest launcher this platform has: a warm fork server where processes can fork, else a fresh interpreter.

    Args:
        preload: modules that the fork server imports once, for all trials.
    """
    if hasattr(os, "fork") and sys.platform == "linux":
        return ForkServer(preload)
    return FreshInterpreter()


def preload_for(workloads: Iterable[str]) -> tuple[str, ...]:
    """The modules that trials of these workloads may import beside what the fork server holds ready for every trial."""
    if _WITHOUT_TRANSFORMERS.issuperset(workloads):
        return ()
    return ("transformers.models.distilbert.modeling_distilbert",)


class ForkServer:
    """Forks each trial from a process that has imported the heavy libraries and never touched a device.

    The server is started by the first trial and serves until :meth:`close`. It dies with this process, and its
    trials die with it, whatever way this process ends.
    """

    def __init__(self, preload: tuple[str, ...] = ()) -> None:
        self._preload = preload
        self._server: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None

    def start(self, request: Request) -> ForkedTrial:
        channel = self._warm_channel()
        channel.send(request.to_json())
        answer = channel.receive(_READY_SECONDS)
        if answer is None or answer.get("event") != "started":
            raise PerfDiagnosticsError(f"The fork server did not start the trial; it said {answer!r}.")
        return ForkedTrial(int(answer["pid"]), channel)

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()
        if self._server is not None:
            try:
                self._server.wait(timeout=5)
            except subprocess.TimeoutExpired:
                self._server.kill()
                self._server.wait()
        self._server, self._channel = None, None

    def _warm_channel(self) -> Channel:
        if self._channel is not None and self._server is not None and self._server.poll() is None:
            return self._channel
        self.close()
        ours, theirs = socket.socketpair()
        with theirs:
            self._server = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "perf_diagnostics.trials.fork_server",
                    str(theirs.fileno()),
                    *self._preload,
                ],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # a Ctrl-C at the terminal is for us to pass on, not for the server
            )
        self._channel = Channel(ours)
        ready = self._channel.receive(_READY_SECONDS)
        if ready is None or ready.get("event") != "ready":
            self.close()
            raise PerfDiagnosticsError(
                "The fork server did not get ready; see the messages above. "
                "Check that torch can be imported by " + os.path.basename(sys.executable) + "."  # noqa: PTH119
            )
        return self._channel


class ForkedTrial:
    """A trial forked by the server, which alone can collect its exit status."""

    def __init__(self, pid: int, channel: Channel) -> None:
        self.pid = pid
        self._channel = channel
        self._code: int | None = None

    def wait(self, timeout_s: float) -> int | None:
        if self._code is None:
            message = self._channel.receive(timeout_s)
            if message is not None:
                self._code = int(message.get("code", -signal.SIGKILL))
        return self._code


class FreshInterpreter:
    """Starts each trial in a new interpreter: slower by its imports, and works everywhere."""

    def start(self, request: Request) -> FreshTrial:
        directory = Path(request.directory)
        with (directory / "output.txt").open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "perf_diagnostics.trials.worker", request.to_json()],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        return FreshTrial(process)

    def close(self) -> None:
        """Nothing is kept."""


class FreshTrial:
    """A trial that is our own child."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.pid = process.pid
        self._process = process

    def wait(self, timeout_s: float) -> int | None:
        try:
            return self._process.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            return None


class Channel:
    """JSON messages, one a line, over a socket."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._received = b""

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, line: str) -> None:
        self._socket.sendall(line.encode() + b"\n")

    def receive(self, timeout_s: float | None) -> dict[str, str] | None:
        """The next message; None after ``timeout_s`` without one. A closed channel reads as ``{"event": "closed"}``."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while b"\n" not in self._received:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not select.select([self._socket], [], [], left)[0]:
                return None
            try:
                data = self._socket.recv(65536)
            except ConnectionResetError:
                data = b""
            if not data:
                return {"event": "closed"}
            self._received += data
        line, _, self._received = self._received.partition(b"\n")
        message: dict[str, str] = json.loads(line)
        return message

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.close()
