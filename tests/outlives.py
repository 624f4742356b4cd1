"""A warm server that more sweeps than one use: starting one takes seconds, and is tested beside what uses it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from perf_diagnostics.trials.launch.launcher import ForkedTrial, ForkServer, Request


@dataclasses.dataclass(frozen=True)
class Outlives:
    """A server that serves the next sweep, too. It was started in another folder, so it is told whole paths."""

    server: ForkServer

    def start(self, request: Request) -> ForkedTrial:
        return self.server.start(dataclasses.replace(request, directory=str(Path(request.directory).absolute())))

    def close(self) -> None:
        """Whoever started the server closes it."""
