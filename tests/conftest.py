"""What holds for all tests."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.small_ceilings import SMALL

HERE = Path(__file__).parent

#: Folders whose tests train something and look at how long it took.
TRAINS = ("integrations", "trials", "measure/one_step")

# A rule that fails is a failed test, here and in the processes that tests start.
os.environ["PERF_DIAGNOSTICS_STRICT"] = "1"

# A shell that starts the suite in the background has it ignore Ctrl-C and Ctrl-\, and nohup a terminal that closes; and
# so would every script that a test starts to see what these do to it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGQUIT") and signal.getsignal(signal.SIGQUIT) is signal.SIG_IGN:
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What times real training steps on this machine gets a second try: somebody else may have been busy on it.

    What is judged by such times alone does not run beside other tests, unless it says that it may, and gets a third
    one; beside them, whatever trains gets a second.
    """
    shared = getattr(config, "workerinput", {}).get("workercount", 1) > 1
    for item in items:
        trains = shared and item.path.relative_to(HERE).as_posix().startswith(TRAINS)
        if item.get_closest_marker("planted"):
            item.add_marker(pytest.mark.flaky(reruns=2))
        elif trains or item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.flaky(reruns=1))
        if shared and item.get_closest_marker("planted") and not item.get_closest_marker("beside"):
            item.add_marker(pytest.mark.skip(reason="measures with nothing beside it: run it without -n"))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Keep what the collection makes, hundreds of modules and thousands of tests, from the garbage collector.

    Meanwhile it would find none of it to be garbage. Later it would look through all of that again and again, and so
    would what looks for models and optimizers among all objects: half a second in each test that does, where a script
    of its own takes some milliseconds.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def _frozen_again() -> Iterator[None]:
    """So it is with what the tests of a file have imported, and with what they have unfrozen (``gc.unfreeze``)."""
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _written_at_its_leisure() -> Iterator[None]:
    """Tests survive no loss of power: the thousands of files that they write need not be on the disk at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _handle: None)
        yield


@pytest.fixture
def small_ceilings(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of trials in this process that are not about what the machine can do at best."""
    from perf_diagnostics.trials.afterwards import ceilings

    for name, value in SMALL.items():
        monkeypatch.setattr(ceilings, name, value)


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """For models so small that two threads would spend their time waiting for each other."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def nothing_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests of this process may have compiled, and then no step is looked through."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None)
    if counters is not None:
        monkeypatch.setitem(counters, "stats", Counter())
    frames = sys.modules.get("torch._dynamo.eval_frame")
    if frames is not None:
        monkeypatch.setattr(frames, "cached_backends", {})
