"""Where in the user's own code a training's thread was seen: lines, the calls that led to them, and how often."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class CodePlace:
    """A line of the user's own code.

    ``file`` is relative to the folder the training ran in where it lies below it; ``line`` counts from 1; ``function``
    is the qualified name of the function the line is in; ``text`` the line as it is written, empty where it cannot be
    read any more. ``kinds`` are names and attributes in it that the file makes containers of one kind only, and which
    (``(".buffer", "deque")``, an attribute behind a dot).
    """

    file: str
    line: int
    function: str
    text: str = ""
    kinds: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True)
class CodePath:
    """One way in which the thread was seen to stand in a phase, and how often: ``looks`` and, later on, ``rare`` ones.

    ``places`` are indices into :attr:`CodeSamples.places`, the outermost call first. ``calls`` are the functions of
    libraries that were running inside of the innermost of these lines, the one it had called first; empty where the
    line was at work itself, and ``perf_diagnostics`` alone where it was our own watching. ``via`` are those through
    which the innermost line was called from the others, the outermost first. ``part`` is ``prepare``
    between a batch and its forward (in ``other``), ``before_update`` between backward and the update (in
    ``optimizer``), ``again`` in a call of the model on a batch that was trained on before, else empty.
    A ``late`` look saw the thread a moment after it was due: the thread may have come to
    the line only in between. ``course`` is how many of all these looks, of either kind, fell into each stretch of the
    time (:attr:`CodeSamples.stretch_s`), as many of them for each path; empty where that was not noted.
    """

    phase: str
    places: tuple[int, ...]
    looks: int
    rare: int = 0
    late: bool = False
    part: str = ""
    calls: tuple[str, ...] = ()
    via: tuple[str, ...] = ()
    course: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CodeSamples:
    """What a sampler of the thread's stack saw over the steady steps.

    A look stands for ``interval_s`` of the thread's time, the mean time between two of them, and a rare one for
    ``rare_interval_s``. ``cpu_s`` is the CPU time that looking took in all, in s.

    ``roles`` says what each of ``places`` is to the training, by the program's text: ``method`` (the loss depends on
    it, and it on the model), ``preparation`` (the loss depends on it), ``average`` (it writes parameters' values,
    weighed or copied, into others), ``unread`` (no loss depends on it), ``training`` (it holds a backward pass or calls
    what does), or empty where its callers or what it calls tell; ``roles`` is empty where nobody looked.

    The paths' courses are counted in stretches of ``stretch_s`` each, from the first look on; 0 where they are not.
    """

    places: tuple[CodePlace, ...]
    paths: tuple[CodePath, ...]
    interval_s: float
    rare_interval_s: float
    cpu_s: float
    roles: tuple[str, ...] = ()
    stretch_s: float = 0.0

    @property
    def looks(self) -> int:
        """How often the thread was seen in a steady step."""
        return sum(path.looks + path.rare for path in self.paths)

    def seconds(self, path: CodePath) -> float:
        """The time that the looks at a path stand for, in s."""
        return path.looks * self.interval_s + path.rare * self.rare_interval_s
