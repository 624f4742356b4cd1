"""Commands that are forked from a warm process are what they would be in a process of their own."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.planted.warm import WarmStart

pytestmark = pytest.mark.slow


@pytest.fixture
def warm() -> Iterator[WarmStart]:
    started = WarmStart(("json",))
    yield started
    started.close()


def test_each_process_has_its_variables_and_says_how_it_ended(warm: WarmStart, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import os, sys\n"
        "sys.stdin.read()\n"
        "print(os.environ['RANK'], sys.argv[1:], 'torch' in sys.modules)\n"
        "sys.exit('last words of ' + os.environ['RANK'] if os.environ['RANK'] == '1' else None)\n"
    )
    results = tmp_path / "results"
    words = ["run", "--results-dir", str(results), str(script), "-x"]
    of_ranks = [{**os.environ, "RANK": rank, "PERF_DIAGNOSTICS_DISABLED": "1"} for rank in "01"]
    for again in ("one", "two"):  # the second lot by the same server
        said = tmp_path / again
        said.mkdir()
        assert warm.run(words, of_ranks, said=said, timeout_s=60) == [0, 1]
        assert [(said / f"{rank}.out").read_text() for rank in "01"] == [f"{rank} ['-x'] False\n" for rank in "01"]
        assert [(said / rank).read_text() for rank in "01"] == ["", "last words of 1\n"]
    assert not results.exists()


def test_what_hangs_is_ended_and_the_next_one_has_a_new_server(warm: WarmStart, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    pid = tmp_path / "pid"
    script.write_text(
        "import os, pathlib, sys, time\npathlib.Path(sys.argv[1]).write_text(str(os.getpid()))\ntime.sleep(600)\n"
    )
    with pytest.raises(TimeoutError, match="nothing within 2 s"):
        warm.run(["run", str(script), str(pid)], [os.environ], said=tmp_path, timeout_s=2)
    if pid.exists():  # the script had begun
        eventually(lambda: ended(int(pid.read_text())))
    assert warm.run(["--version"], [os.environ], said=tmp_path, timeout_s=60) == [0]
    assert (tmp_path / "0.out").read_text().startswith("perf-diagnostics ")


def ended(process: int) -> bool:
    try:
        return psutil.Process(process).status() == psutil.STATUS_ZOMBIE  # whom nobody has asked for its end yet
    except psutil.NoSuchProcess:
        return True


def eventually(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.01)
