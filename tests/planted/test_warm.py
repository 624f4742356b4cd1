"""Commands that are forked from a warm process are what they would be in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.planted.warm import Asked, WarmStart

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


def test_what_a_script_leaves_behind_is_waited_for(warm: WarmStart, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import pathlib, subprocess, sys\n"
        "late = 'import pathlib, sys, time; time.sleep(1); pathlib.Path(sys.argv[1]).touch()'\n"
        "subprocess.Popen([sys.executable, '-c', late, sys.argv[1]])\n"
    )
    asked = Asked([str(script), str(tmp_path / "late")], os.environ, script=True)
    assert warm.run_all([asked, asked], said=tmp_path, timeout_s=60) == [0, 0]
    assert (tmp_path / "late").exists()


def test_a_plain_script_fails_as_it_does_by_python(warm: WarmStart, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("import sys\nprint(__name__, sys.argv[1:])\nraise ValueError('no data')\n")
    words = ["script.py", "-x"]
    assert warm.run_all([Asked(words, os.environ, str(tmp_path), script=True)], said=tmp_path, timeout_s=60) == [1]
    plain = subprocess.run([sys.executable, *words], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (tmp_path / "0.out").read_text() == plain.stdout == "__main__ ['-x']\n"
    assert (tmp_path / "0").read_text() == plain.stderr and plain.stderr.endswith("ValueError: no data\n")


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
