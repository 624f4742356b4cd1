"""One warm server for the sweeps that tests of the command line start in this process; see ``shared_server``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from perf_diagnostics.trials import sweep
from perf_diagnostics.trials.launch.launcher import ForkServer
from tests.outlives import Outlives


@pytest.fixture(scope="package")
def server() -> Iterator[ForkServer]:
    server = ForkServer(("tests.trials_with_small_ceilings",))
    server._warm_channel()  # started here and now: no test has changed the folder or the environment yet
    yield server
    server.close()


@pytest.fixture
def shared_server(server: ForkServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of what is made of a sweep's trials: starting a server takes seconds, and is tested beside them."""
    monkeypatch.setattr(sweep, "launcher", lambda preload: Outlives(server))
