"""Where loader workers spend their time on batches: looks at each worker's stack, from a thread of its own in it.

A worker is a process that was forked off the training's, or spawned by it; what it saw it leaves in memory that both
share (:mod:`.shared_notes`). A look counts while the worker fetches a batch; one that waits for something to do is not
at work. The frames below that, which a forked process has from its parent, are none of its own.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.context import get_spawning_popen
from types import CodeType
from typing import Any

from perf_diagnostics.measure.code.code_places import CodePlaces
from perf_diagnostics.measure.code.code_sampling import CodeSampling
from perf_diagnostics.measure.code.code_watch import one_at_a_time, wanted
from perf_diagnostics.measure.code.own_code import OwnCode
from perf_diagnostics.measure.code.prompt_lock import PromptLock
from perf_diagnostics.measure.code.shared_notes import SharedNotes, opened
from perf_diagnostics.measure.code.stacks import Stack, Walk
from perf_diagnostics.measure.observation import Observations, Unreadable
from perf_diagnostics.measure.pausing_thread import PausingThread
from perf_diagnostics.records import CodePath, CodePlace, CodeSamples

SIGNAL = "worker_lines"

#: The phase of what a worker does for a batch.
LOADING = "loading"

#: The mean time between two looks at a worker, first and later on. One of plain Python, which has to give its lock away
#: for each of them, took 0.1 to 0.9 ms longer with each (CPython 3.11, by turns, beside other load): at most 1.8 % of
#: its time, and 0.5 after 20 s.
INTERVALS_NS = 50_000_000, 200_000_000

#: Threads of a worker that hand batches over, and may do so sooner.
_HANDING_OVER = r"QueueFeederThread|Thread-\d+ \(_serve\)"

#: Workers with a place of their own. What is started later goes on with the notes of those that have long ended; of
#: more at a time some share a place, where the later one's note stands.
_MOST_WORKERS = 64

#: Characters of why a worker could not be looked at.
_MOST_WHY = 300

#: Bytes of a worker's note; ways to stand that do not fit are left out, the rarest first.
_NOTE_BYTES = 48 * 1024

#: How long a worker looks before it first tells what it saw; each time twice as long, up to the second one.
_TELLS_FIRST_NS = 100_000_000
_TELLS_EVERY_NS = 1_000_000_000

#: A way to stand: whether the look was late, the lines (file, function, line; the outermost first), and what they call.
_Way = tuple[bool, tuple[tuple[str, str, int], ...], tuple[str, ...], tuple[str, ...]]

#: Of each way how many looks, and rare ones.
_Seen = dict[_Way, tuple[int, int]]


@functools.cache
def _fetches() -> frozenset[CodeType]:
    """The code of torch's functions that make a batch."""
    from torch.utils.data._utils import fetch

    return frozenset(kind.fetch.__code__ for kind in (fetch._MapDatasetFetcher, fetch._IterableDatasetFetcher))


def of_a_batch(walk: Walk, loop: CodeType) -> Walk | None:
    """The frames of a worker that have to do with the batch that it makes; None while it makes none.

    Args:
        walk: all frames, the innermost first.
        loop: the code of torch's own loop in a worker, below which all frames are those of the process that forked.
    """
    codes, places = walk
    end = codes.index(loop) if loop in codes else len(codes)
    fetches = _fetches()
    begins = next((at for at in range(end - 1, -1, -1) if codes[at] in fetches), None)
    return None if begins is None else (codes[: begins + 1], places[: begins + 1])


class WorkerLooks:
    """Looks in the workers that are started for a training; see the module.

    Args:
        observations: where it is noted why there is nothing.
    """

    def __init__(self, observations: Observations) -> None:
        self._observations = observations
        #: Memory of forked workers, and what others have.
        self._forked: SharedNotes | None = None
        self._handed_on: SharedNotes | None = None
        self._places = CodePlaces(with_kinds=True)
        #: The first place of each loader's workers, by the identities of the loader and of its data.
        self._firsts: dict[tuple[int, int], int] = {}
        self._next = 0
        #: Reasons that were noted down already.
        self._noted: set[str] = set()

    @contextlib.contextmanager
    def in_workers_of(self, loader: object) -> Iterator[None]:
        """Workers that this thread starts for the loader's data within look, until they end. Torch finds their loop by
        its name, which is that of the plain one again afterwards.
        """
        with contextlib.ExitStack() as looking:
            with self._observations.guard(SIGNAL):
                if getattr(loader, "num_workers", 0) and wanted():
                    looking.enter_context(_STARTING.of(_Start(self, getattr(loader, "dataset", None))))
            yield

    @contextlib.contextmanager
    def in_workers(self) -> Iterator[None]:
        """Those that this thread starts within, of whatever loaders."""
        with contextlib.ExitStack() as looking:
            with self._observations.guard(SIGNAL):
                if wanted():
                    looking.enter_context(_STARTING.of(_Start(self, None)))
            yield

    def first_of(self, loader: object) -> int:
        """The first place of the loader's workers, where those of its last pass wrote. Before they start."""
        self._forked = self._forked or SharedNotes(_MOST_WORKERS, _NOTE_BYTES)
        which = id(loader), id(getattr(loader, "dataset", None))
        if which not in self._firsts:
            if len(self._firsts) >= _MOST_WORKERS:
                self._firsts.clear()
            self._firsts[which] = self._next
            self._next += getattr(loader, "num_workers", 0)
        return self._firsts[which]

    @property
    def forked(self) -> SharedNotes | None:
        """Where forked workers leave their notes."""
        return self._forked

    def handed_on(self) -> tuple[Any, int, int]:
        """Where others do, for a process that is being started (:meth:`.SharedNotes.handed_on`)."""
        self._handed_on = self._handed_on or SharedNotes.to_hand_on(_MOST_WORKERS, _NOTE_BYTES)
        return self._handed_on.handed_on()

    def go_on_from(self, earlier: WorkerLooks) -> None:
        """What these have seen counts as well: of workers that were started before the training was known."""
        self._forked, self._handed_on, self._next = earlier._forked, earlier._handed_on, earlier._next

    def _notes_down(self, why_not: str) -> None:
        """Why a worker saw no more than it did; empty where nothing is in the way."""
        if why_not and why_not not in self._noted:
            self._noted.add(why_not)
            self._observations.note(SIGNAL, f"a loader's worker could not be looked at: {why_not}")

    def close(self) -> None:
        """Nobody asks any more; what was seen is forgotten."""
        with self._observations.guard(SIGNAL):
            for notes in (self._forked, self._handed_on):
                if notes is not None:
                    notes.close()
            self._forked = self._handed_on = None
            self._firsts.clear()

    def samples(self) -> CodeSamples | None:
        """What all workers have seen so far; None where that is nothing."""
        left = [notes for notes in (self._forked, self._handed_on) if notes is not None]
        found: CodeSamples | None = None
        if left:
            with self._observations.guard(SIGNAL):
                found = self._named(left)
        return found

    def _named(self, left: list[SharedNotes]) -> CodeSamples | None:
        seen: _Seen = {}
        for notes in left:
            for place in range(notes.places):
                note = notes.read(place)
                for way, looks in _told(note).items():
                    _add(seen, way, *looks)
                self._notes_down(_why_not(note))
        if not seen:
            return None
        numbers: dict[CodePlace, int] = {}
        paths = []
        for (late, lines, calls, via), (often, rare) in sorted(seen.items(), key=lambda one: -sum(one[1])):
            places = tuple(
                numbers.setdefault(self._places.named(file, function, line), len(numbers))
                for file, function, line in lines
            )
            paths.append(
                CodePath(phase=LOADING, late=late, places=places, calls=calls, via=via, looks=often, rare=rare)
            )
        return CodeSamples(
            places=tuple(numbers),
            paths=tuple(paths),
            interval_s=INTERVALS_NS[0] / 1e9,
            rare_interval_s=INTERVALS_NS[1] / 1e9,
            cpu_s=0.0,
        )


@dataclass(frozen=True, eq=False)
class _Start:
    """Workers that are being started: for whom they look, and what they load from (None: whatever it is)."""

    looks: WorkerLooks
    data: object


@dataclass(frozen=True, eq=False)
class _Making:
    """An iterator over a loader that is being made: for whom its workers look, and the first of their places."""

    looks: WorkerLooks
    first: int


class _Starting:
    """Which threads are starting workers that look; while there is any torch's loop of a worker, and how an iterator
    with workers is made, are replaced.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._starts: dict[int, list[_Start]] = {}
        self._making: dict[int, list[_Making | None]] = {}
        #: What torch has by these names, and what stands for it; where somebody has patched over ours it stays there,
        #: and passes calls through.
        self._patches: list[tuple[Any, str, Any, Any]] = []

    @contextlib.contextmanager
    def of(self, start: _Start) -> Iterator[None]:
        """This thread is starting some."""
        from torch.utils.data import dataloader
        from torch.utils.data._utils import worker

        thread = threading.get_ident()
        with self._lock:
            if not self._patches:
                iterator = dataloader._MultiProcessingDataLoaderIter
                self._patch(iterator, "__init__", self._noting(iterator.__init__))
                self._patch(worker, "_worker_loop", _LookedAt(worker._worker_loop, self))
            self._starts.setdefault(thread, []).append(start)
        try:
            yield
        finally:
            with self._lock:
                left = [one for one in self._starts.pop(thread) if one is not start]
                if left:
                    self._starts[thread] = left
                if not self._starts:
                    patches, self._patches = self._patches, []
                    for owner, name, plain, ours in patches:
                        if getattr(owner, name) is ours:
                            setattr(owner, name, plain)

    def _patch(self, owner: Any, name: str, ours: Any) -> None:
        self._patches.append((owner, name, getattr(owner, name), ours))
        setattr(owner, name, ours)

    def _noting(self, init: Callable[..., None]) -> Callable[..., None]:
        """How an iterator is made, which starts its workers: of which loader is noted meanwhile."""

        @functools.wraps(init)
        def made(iterator: Any, loader: Any, *args: Any, **kwargs: Any) -> None:
            making = self._making.setdefault(threading.get_ident(), [])
            making.append(self._of(loader))
            try:
                init(iterator, loader, *args, **kwargs)
            finally:
                making.pop()
                if not making:
                    self._making.pop(threading.get_ident(), None)

        return made

    def _of(self, loader: Any) -> _Making | None:
        """What this thread makes: an iterator whose workers look, or another one."""
        making: _Making | None = None
        with Observations().guard(SIGNAL):
            for start in self._starts.get(threading.get_ident(), ())[-1:]:
                if start.data is None or start.data is loader.dataset:
                    making = _Making(start.looks, start.looks.first_of(loader))
        return making

    def here(self) -> _Making | None:
        """What this thread is making; None where its workers do not look."""
        making = self._making.get(threading.get_ident())
        return making[-1] if making else None


class _LookedAt:
    """Torch's loop of a worker; looked at where it was forked by a thread that starts some, or is pickled by one for a
    process that it spawns.
    """

    def __init__(self, loop: Callable[..., Any], starting: _Starting) -> None:
        self._loop = loop
        self._starting = starting
        self._parent = os.getpid()
        functools.update_wrapper(self, loop)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        making = None if os.getpid() == self._parent else self._starting.here()
        if making is None:
            return self._loop(*args, **kwargs)
        return _run(self._loop, making.looks.forked, making.first, *args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        spawned: _Spawned | None = None
        making = self._starting.here()
        if making is not None and get_spawning_popen() is not None:
            with Observations().guard(SIGNAL):
                spawned = _Spawned(making.looks.handed_on(), making.first)
        return (_torchs_loop, ()) if spawned is None else (_Spawned, (spawned.notes, spawned.first))


class _Spawned:
    """Torch's loop in a worker that was spawned, looked at."""

    def __init__(self, notes: tuple[Any, int, int], first: int) -> None:
        self.notes = notes
        self.first = first

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        notes: SharedNotes | None = None
        with Observations().guard(SIGNAL):
            notes = opened(self.notes)
        return _run(_torchs_loop(), notes, self.first, *args, **kwargs)


def _torchs_loop() -> Callable[..., Any]:
    """The one that this process finds by its name."""
    from torch.utils.data._utils import worker

    loop: Callable[..., Any] = worker._worker_loop
    return loop


def _run(loop: Callable[..., Any], notes: SharedNotes | None, first: int, *args: Any, **kwargs: Any) -> Any:
    """The loop of a worker, which looks where there are notes for it."""
    telling: _Telling | None = None
    if notes is not None:
        observations = Observations()
        with observations.guard(SIGNAL) as attempt:
            number = inspect.signature(loop).bind(*args, **kwargs).arguments["worker_id"]
            place = (first + number) % notes.places
            telling = _Telling(notes, place, inspect.unwrap(loop).__code__, observations)
            telling.start()
        if attempt.failed:
            _tells_why_not(notes, first % notes.places, {}, observations)
    try:
        return loop(*args, **kwargs)
    finally:
        if telling is not None:
            telling.stop()


_STARTING = _Starting()


class _Telling:
    """Looks at the thread that makes this, in a worker, and tells now and then what it saw."""

    def __init__(self, notes: SharedNotes, place: int, loop: CodeType, observations: Observations) -> None:
        self._observations = observations
        self._notes = notes
        self._place = place
        self._seen = _told(notes.read(place))  # by the worker of the pass before
        watched = threading.get_ident()
        lock = PromptLock(watched, unharmed=_HANDING_OVER) if one_at_a_time() else None
        self._sampling = CodeSampling(
            time.perf_counter_ns,
            OwnCode(),
            watched,
            part_of=lambda walk: of_a_batch(walk, loop),
            intervals_ns=INTERVALS_NS,
            lock=lock,
        )
        self._after_ns = _TELLS_FIRST_NS
        self._tells_ns = time.perf_counter_ns() + self._after_ns
        if lock is None:
            self._thread = PausingThread(self._tick, observations, SIGNAL)
        else:
            self._thread = PausingThread(lock.around(self._tick), observations, SIGNAL, after=lock.had)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """The worker ends."""
        with self._observations.guard(SIGNAL):
            if not self._thread.stop():
                raise Unreadable("a look did not come back")
            self._tell()
        _tells_why_not(self._notes, self._place, self._seen, self._observations)

    def _tick(self) -> int:
        wait_ns = self._sampling.tick()
        if time.perf_counter_ns() >= self._tells_ns:
            self._tell()
            self._after_ns = min(2 * self._after_ns, _TELLS_EVERY_NS)
            self._tells_ns = time.perf_counter_ns() + self._after_ns
        return wait_ns

    def _tell(self) -> None:
        looks = self._sampling.take()
        stacks = self._sampling.stacks
        for look in looks:
            way = _way(stacks[look.stack], late=look.late)
            _add(self._seen, way, *((0, look.weight) if look.rare else (look.weight, 0)))
        if looks:
            self._notes.write(self._place, _note(self._seen))


def _tells_why_not(notes: SharedNotes, place: int, seen: _Seen, observations: Observations) -> None:
    """Leave beside what was seen why it is not more, where something failed."""
    for gap in observations.gaps[:1]:
        with Observations().guard(SIGNAL):
            notes.write(place, _note(seen, gap.why[:_MOST_WHY]))


def _add(seen: _Seen, way: _Way, looks: int, rare: int) -> None:
    before = seen.get(way, (0, 0))
    seen[way] = before[0] + looks, before[1] + rare


def _way(stack: Stack, *, late: bool) -> _Way:
    lines = tuple((code.co_filename, code.co_qualname, line) for code, line in reversed(stack.lines))
    return late, lines, stack.calls, stack.via


def _note(seen: _Seen, why_not: str = "") -> bytes:
    """What was seen, as far as it fits, and before it why it is not more, if something was in the way."""
    told = [json.dumps(why_not)] if why_not else []
    left = _NOTE_BYTES - 2 - sum(len(one) + 2 for one in told)
    for way, looks in sorted(seen.items(), key=lambda one: -sum(one[1])):
        one = json.dumps([way, looks])
        left -= len(one) + 2
        if left < 0:
            break
        told.append(one)
    return f"[{', '.join(told)}]".encode()


def _told(note: bytes) -> _Seen:
    if not note:
        return {}
    seen: _Seen = {}
    for (late, lines, calls, via), (looks, rare) in (one for one in json.loads(note) if not isinstance(one, str)):
        way = bool(late), tuple((file, function, line) for file, function, line in lines), tuple(calls), tuple(via)
        seen[way] = looks, rare
    return seen


def _why_not(note: bytes) -> str:
    """What the worker left about that; empty where nothing failed."""
    return next((one for one in (json.loads(note) if note else ()) if isinstance(one, str)), "")
