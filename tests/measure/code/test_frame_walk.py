"""Walks along the frames of a thread, its own and another one's."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from types import CodeType, FrameType

import pytest

from perf_diagnostics.measure.code import frame_walk
from perf_diagnostics.measure.code.frame_walk import frames_of_threads, walked

#: A thread calls down and returns, and whatever the collector calls gives Python's lock away.
_RUNS_ON = """
import gc, sys, threading, time
from perf_diagnostics.measure.code.frame_walk import frames_of_threads, walked

def given_away(phase, info):
    if threading.current_thread() is not thread:
        time.sleep(0.0005)

def down(left):
    return down(left - 1) if left else [object() for _ in range(3)]

class Cycle:
    def __init__(self):
        self.me = self

def training():
    left = 0
    while not over:
        left = (left + 37) % 150
        down(left)
        Cycle()

over = False
sys.setswitchinterval(1e-5)
thread = threading.Thread(target=training)
gc.callbacks.append(given_away)
gc.set_threshold(30)
thread.start()
try:
    walks = 0
    end = time.monotonic() + 1.5
    while time.monotonic() < end:
        frame = frames_of_threads().get(thread.ident)
        Cycle()
        if frame is not None:
            codes, places = walked(frame)
            assert all(type(code) is type(down.__code__) for code in codes)
            walks += 1
        frame = None
finally:
    over = True
    thread.join()
print(walks > 20, gc.isenabled())
"""


def test_a_walk_survives_a_collector_that_lets_the_thread_run_on() -> None:
    """CPython 3.11 died of this, or took another object for a frame, in eight of ten such tries."""
    ended = subprocess.run([sys.executable, "-c", _RUNS_ON], capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stdout) == (0, "True True\n"), ended.stderr


@pytest.mark.parametrize("anywhere", [True, False])
@pytest.mark.parametrize("on", [True, False])
def test_the_collector_is_left_as_it_was(on: bool, anywhere: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both kinds of Python, and both states."""
    monkeypatch.setattr(frame_walk, "_COLLECTS_ANYWHERE", anywhere)
    before = gc.isenabled()
    (gc.enable if on else gc.disable)()
    try:
        codes, places = walked(sys._getframe())
        frames = frames_of_threads()
        assert gc.isenabled() == on
    finally:
        (gc.enable if before else gc.disable)()
    assert Path(codes[0].co_filename) == Path(__file__), codes[0]
    assert len(codes) == len(places)
    assert frames.keys() == sys._current_frames().keys()


@pytest.mark.parametrize("on", [True, False])
def test_no_frame_is_kept_once_nobody_looks(on: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The frames of all threads hold their models, and one of them is that of the function that asks."""
    monkeypatch.setattr(frame_walk, "_COLLECTS_ANYWHERE", True)
    before, threshold = gc.isenabled(), gc.get_threshold()

    class Model:
        """Held by a frame that is looked at."""

    def looks() -> weakref.ref[Model]:
        model = Model()
        walked(frames_of_threads()[threading.get_ident()])
        return weakref.ref(model)

    gc.disable()  # a cycle would stay
    try:
        if on:
            gc.set_threshold(0)
            gc.enable()
        assert looks()() is None
    finally:
        gc.set_threshold(*threshold)
        (gc.enable if before else gc.disable)()


def test_the_collector_is_on_again_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory may be short at any moment."""
    monkeypatch.setattr(frame_walk, "_COLLECTS_ANYWHERE", True)
    assert gc.isenabled()
    with pytest.raises(MemoryError):
        frame_walk._undisturbed(lambda: _raised(MemoryError))
    assert gc.isenabled()


def _raised(kind: type[Exception]) -> None:
    assert not gc.isenabled()
    raise kind


@pytest.mark.parametrize("depth", [3, 500])
def test_a_walk_goes_outwards_from_frame_to_frame(depth: int) -> None:
    """As by hand; of more than 400 frames the outermost are left out."""

    def below(left: int) -> tuple[list[CodeType], list[CodeType]]:
        if left:
            return below(left - 1)
        by_hand: list[CodeType] = []
        frame: FrameType | None = sys._getframe()
        codes, _ = walked(sys._getframe())
        while frame is not None and len(by_hand) < 400:
            by_hand.append(frame.f_code)
            frame = frame.f_back
        return codes, by_hand

    codes, by_hand = below(depth)
    assert codes == by_hand
    assert codes[: depth + 1] == [below.__code__] * min(depth + 1, 400)
