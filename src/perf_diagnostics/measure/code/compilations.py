"""What torch.compile has compiled, how often, and why it did so again: by the record that torch keeps of it."""

from __future__ import annotations

import ast
import linecache
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from perf_diagnostics.measure.code.code_places import CodePlaces
from perf_diagnostics.measure.code.own_code import INSTALLED, Kind, OwnCode
from perf_diagnostics.measure.privacy import Person, masked_text
from perf_diagnostics.parsed_python import parsed
from perf_diagnostics.records import Json

#: Functions that are told at most, those that took longest to compile; and of each the guards and the breaks.
_MOST_FUNCTIONS, _MOST_GUARDS, _MOST_BREAKS = 8, 4, 4

#: Functions that are remembered at most, and guards of each: a program that makes new ones all the time has no end of
#: them.
_MOST_KEPT = 256

#: What torch says in place of a compilation that it did not begin any more (torch 2.6 to 2.15).
_GAVE_UP = re.compile(r"recompile limit exceeded|cache limit exceeded", re.IGNORECASE)

#: What is left of a function after a place where its graph broke, by the name that torch gives it.
_REST = re.compile(r"torch_dynamo_resume_in_(?P<function>.+)_at_(?P<line>\d+)")

#: What stands before a guard (``0/7: self.updates == 7     # progress = …``), and what comes after it.
_NUMBERED = re.compile(r"^[^\s/]+/[^\s:]+: ")
_AFTER = ("  #", " (HINT: ")

#: Texts in a guard; those after a bracket, or the word tensor, name something: ``L['self']``, ``tensor 'x' size …``.
_TEXTS = re.compile(r"(?P<names>\[|tensor )?(?P<quote>['\"])(?:(?!(?P=quote)).)*(?P=quote)")

#: A line of the stack that torch tells with a guard: who asked for what it guards.
_STACK_LINE = re.compile(r'^  File "(?P<file>.+)", line (?P<line>\d+), in (?P<function>\S+)$', re.MULTILINE)

#: A number in a guard, for which another one stood there each time.
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d*)?(?:e[+-]?\d+)?(?!\w)", re.IGNORECASE)

#: Characters of a guard, or of why a graph broke, that are looked at, and that are kept.
_MOST_LOOKED_AT, _MOST_TEXT = 2000, 160

K = TypeVar("K")
V = TypeVar("V")

#: A function by its file, the line at which it begins, and its name; and a line of one.
_Key: TypeAlias = tuple[str, int, str]
_Line: TypeAlias = tuple[str, int, str]


@dataclass
class _Guards:
    """Guards that are alike but for the numbers in them: the last of them, how often one failed, and who asked."""

    last: str
    at: _Line | None
    times: int = 0


@dataclass
class _Function:
    """What became of one function: how many graphs, in what time, after which guards, and where they broke."""

    #: By the frame that was compiled: the function itself, or what is left of it after a break.
    graphs: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    gave_up: bool = False
    guards: dict[str, _Guards] = field(default_factory=dict)
    #: Why the graph broke at a line; empty where torch did not say so.
    breaks: dict[int, str] = field(default_factory=dict)
    #: Why the part that was compiled last ends where it does.
    why_ended: str = ""


class Compilations:
    """What torch.compile has compiled in this process since this was made; imports nothing.

    The record is ``torch._dynamo.utils.get_compilation_metrics()`` (seen with torch 2.13): the last 64 compilations of
    forward and backward, each with its function, its time, and the guard for which what was there did not do. Where it
    is read now and then, what it lets go is not lost.

    Args:
        now_us: the time in µs since 1970, as torch notes it.
    """

    def __init__(self, now_us: Callable[[], float] = lambda: time.time_ns() / 1e3) -> None:
        self._began_us = now_us()
        self._functions: dict[_Key, _Function] = {}
        self._of_frame: dict[str, _Key] = {}
        self._seen: set[tuple[str, float]] = set()
        self._places = CodePlaces()
        self._own: OwnCode | None = None
        self._person: Person | None = None
        self._names: dict[str, dict[tuple[int, str], str]] = {}

    def read(self) -> None:
        """Take what torch has noted since the last time."""
        noted = getattr(sys.modules.get("torch._dynamo.utils"), "get_compilation_metrics", None)
        if noted is None:
            return
        here: set[tuple[str, float]] = set()
        for one in noted():
            compile_id, began_us = str(getattr(one, "compile_id", None) or ""), _began_us(one)
            if not compile_id or began_us is None or began_us < self._began_us:
                continue
            here.add((compile_id, began_us))
            if (compile_id, began_us) not in self._seen:
                self._take(compile_id.rpartition("/")[0], one)
        self._seen = here

    def told(self) -> list[Json]:
        """What was compiled so far, as facts of a trial: a mapping for each function, the dearest first."""
        self.read()
        dearest = sorted(self._functions.items(), key=lambda one: (not one[1].gave_up, -one[1].seconds))
        return [self._tell(*one) for one in dearest[:_MOST_FUNCTIONS]]

    def _take(self, frame: str, one: Any) -> None:
        name, file, line = (getattr(one, part, None) for part in ("co_name", "co_filename", "co_firstlineno"))
        rest, key = None, self._of_frame.get(frame)
        if isinstance(name, str) and isinstance(file, str) and isinstance(line, int):
            rest = _REST.fullmatch(name)
            if rest is None:
                key = (file, line, name)
            elif key is None or (key[0], key[2]) != (file, rest["function"]):
                key = self._whole(file, rest["function"], int(rest["line"]))
        function = None if key is None else _of(self._functions, key, _Function)
        if key is None or function is None:
            return
        if frame in self._of_frame or len(self._of_frame) < _MOST_KEPT:
            self._of_frame[frame] = key  # after torch._dynamo.reset() they begin with 0 again
        if getattr(one, "is_forward", None) is not False:
            if rest:
                at = int(rest["line"])
                function.breaks[at] = function.why_ended or function.breaks.get(at, "")
            if frame in self._of_frame and not getattr(one, "fail_type", None):
                function.graphs[frame] = function.graphs.get(frame, 0) + 1
            self._note_reasons(function, one)
        function.seconds += _seconds(one)

    def _whole(self, file: str, name: str, at: int) -> _Key:
        """The function of which the rest after a break at a line was compiled: the last that begins before it."""
        found = (key for key in self._functions if key[0] == file and key[2] == name and key[1] <= at)
        return max(found, key=lambda key: key[1], default=(file, at, name))

    def _note_reasons(self, function: _Function, one: Any) -> None:
        """Why a function was compiled once more, or no more, and why its graph ends where it does."""
        if _GAVE_UP.search(str(getattr(one, "fail_reason", None) or "")):
            function.gave_up = True
        reason = getattr(one, "recompile_reason", None)
        if isinstance(reason, str) and reason.strip():
            guard, at = self._shortened(_TEXTS.sub(_without_values, _guard(reason))), _who_asked(reason)
            alike = _of(function.guards, _NUMBER.sub("#", guard), lambda: _Guards(guard, at))
            if alike is not None:
                alike.last, alike.at, alike.times = guard, at or alike.at, alike.times + 1
        whys = [str(why) for why in getattr(one, "restart_reasons", None) or ()]
        # Restarts of torch's own accord are told by their class; of two breaks nobody knows which one is the last.
        broken = [self._shortened(_first_line(why)) for why in whys if not why.startswith("<class")]
        function.why_ended = broken[0] if len(broken) == 1 else ""

    def _shortened(self, text: str) -> str:
        """A text without secrets; one that was cut before would not be known as such any more."""
        self._person = self._person or Person.here()
        return masked_text(text, self._person)[:_MOST_TEXT]

    def _tell(self, key: _Key, function: _Function) -> Json:
        file, line, name = key
        guards = sorted(function.guards.values(), key=lambda one: -one.times)[:_MOST_GUARDS]
        breaks = sorted(function.breaks.items())[:_MOST_BREAKS]
        whole = self._qualified(file, line, name)
        return {
            **self._named(file, line, whole),
            "graphs": max(function.graphs.values(), default=0),
            "seconds": function.seconds,
            "gave_up": function.gave_up,
            "guards": [
                {**({} if one.at is None else self._named(*one.at)), "guard": one.last, "times": one.times}
                for one in guards
            ],
            "breaks": [{**self._named(file, at, whole), "why": why} for at, why in breaks],
        }

    def _named(self, file: str, line: int, function: str) -> dict[str, Json]:
        """A line's names; a library's file from where libraries are."""
        place = self._places.named(file, function, line)
        named = place.file if self._is_own(file) else _in_library(place.file)
        return {"file": named, "line": line, "function": function, "text": place.text}

    def _is_own(self, file: str) -> bool:
        self._own = self._own or OwnCode()
        return self._own.kind_of(file) is Kind.OWN

    def _qualified(self, file: str, first_line: int, name: str) -> str:
        """A function's name with its class (``Net.forward``), by the text of its file; else the name alone."""
        if file not in self._names:
            self._names[file] = _names_in(file) if self._is_own(file) else {}
        return self._names[file].get((first_line, name), name)


def _of(kept: dict[K, V], key: K, new: Callable[[], V]) -> V | None:
    """What is kept under a name, made where there is none; None where there is no room for another one."""
    if key not in kept:
        if len(kept) >= _MOST_KEPT:
            return None
        kept[key] = new()
    return kept[key]


def _began_us(one: Any) -> float | None:
    found = getattr(one, "start_time_us", None)
    return float(found) if isinstance(found, int | float) else None


def _seconds(one: Any) -> float:
    took = getattr(one, "entire_frame_compile_time_s", None)
    if isinstance(took, int | float):
        return float(took)
    took_us = getattr(one, "duration_us", None)
    return took_us / 1e6 if isinstance(took_us, int | float) else 0.0


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0][:_MOST_LOOKED_AT]


def _guard(reason: str) -> str:
    """The guard that failed: ``self.updates == 7``."""
    guard = _NUMBERED.sub("", _first_line(reason))
    for after in _AFTER:
        guard = guard.partition(after)[0]
    return guard.strip()


def _without_values(text: re.Match[str]) -> str:
    """A text in a guard, if it is a name; of one that is a value (a path, a password) nothing."""
    return text[0] if text["names"] else "'…'"


def _who_asked(reason: str) -> _Line | None:
    """The line that asked for what a guard looks at, where torch says so."""
    lines = [(one["file"], int(one["line"]), _plain(one["function"])) for one in _STACK_LINE.finditer(reason)]
    return lines[-1] if lines else None


def _plain(function: str) -> str:
    rest = _REST.fullmatch(function)
    return function if rest is None else rest["function"]


def _names_in(file: str) -> dict[tuple[int, str], str]:
    """The functions of a file by their first line and name, each with the names around it (``Net.forward``)."""
    try:
        tree = parsed("".join(linecache.getlines(file)))
        return {(line, path[-1]): ".".join(path) for path, line in _functions(tree)}
    except (SyntaxError, ValueError, RecursionError, MemoryError, SystemError):
        return {}


def _functions(tree: ast.AST, path: Sequence[str] = ()) -> Iterator[tuple[list[str], int]]:
    """The functions in a tree, each with the names around it, and the line at which it or its decorators begin."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            begins = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            yield [*path, node.name], begins
            yield from _functions(node, [*path, node.name, "<locals>"])
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node, [*path, node.name])
        else:
            yield from _functions(node, path)


def _in_library(file: str) -> str:
    parts = Path(file).parts
    last = max((place for place, part in enumerate(parts) if part in INSTALLED), default=-1)
    return str(Path(*parts[last + 1 :])) if last >= 0 else file
