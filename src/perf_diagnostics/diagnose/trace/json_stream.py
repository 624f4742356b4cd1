"""Reads a trace's JSON piece by piece: one event is in memory at a time, however large the file."""

from __future__ import annotations

import codecs
import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, cast

from perf_diagnostics.diagnose.trace.other_files import EXPECTED, HEAD, by_entries, what_it_is
from perf_diagnostics.errors import RecordError
from perf_diagnostics.records import Json

#: Characters read at a time.
CHUNK = 1 << 20

#: The longest single value (an event, or an entry beside the events) that is read; longer ones are no trace.
LONGEST_VALUE = 64 << 20

_GZIP = b"\x1f\x8b"
_SPACE = re.compile(r"[ \t\n\r]*")
_BETWEEN = re.compile(r"[ \t\n\r,]*")


def events(path: Path, chunk: int = CHUNK) -> Iterator[Any]:
    """The events of ``{"traceEvents": [...]}`` or of a bare list, and each entry beside them as ``(key, value)``.

    The file may be compressed with gzip, whatever its name.

    Raises:
        RecordError: the file cannot be opened, is truncated, is not JSON, or is not a trace.
    """
    try:
        with path.open("rb") as raw:
            packed = raw.read(2) == _GZIP
            raw.seek(0)
            file = cast(IO[bytes], gzip.GzipFile(fileobj=raw) if packed else raw)
            yield from _Reader(path, file, chunk).items()
    except EOFError as error:
        raise RecordError(f"{path} is cut off: the gzip stream ends early. Export the trace again.") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise RecordError(f"{path} is not a sound gzip file ({error}). Export the trace again.") from error
    except IsADirectoryError as error:
        raise RecordError(f"{path} is a folder; name the traces in it, one file for each rank.") from error
    except OSError as error:
        raise RecordError(f"{path} cannot be read: {error.strerror or error}.") from error


class _Reader:
    """A window of text over the file, and where in it the next value starts."""

    def __init__(self, path: Path, file: IO[bytes], chunk: int) -> None:
        self._path, self._file, self._chunk = path, file, chunk
        # What is no UTF-8 can only stand in a name; a name that is hard to read is no reason to refuse the trace.
        # Editors on Windows put a byte order mark first ("sig").
        self._decode: Callable[..., str] = codecs.getincrementaldecoder("utf-8-sig")("replace").decode
        self._scan: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder().scan_once  # type: ignore[attr-defined]
        self._text, self._at, self._before, self._ended = "", 0, 0, False

    def items(self) -> Iterator[Any]:
        first = self._first()
        if first == "[":
            self._at += 1
            yield from self._list()
        elif first == "{":
            self._at += 1
            yield from self._object()
        else:
            self._file.seek(0)
            raise self._other(f"it is {what_it_is(self._file.read(HEAD))}")

    def _object(self) -> Iterator[Any]:
        found, seen = False, set[str]()
        while self._peek_after_comma() != "}":
            key = self._value()
            seen.add(str(key))
            if kind := by_entries(seen):
                raise self._other(f"it is {kind}")
            if self._peek() != ":":
                raise self._broken("a ':' is missing")
            self._at += 1
            if key == "traceEvents" and self._peek() == "[":
                self._at += 1
                found = True
                yield from self._list()
            else:
                yield str(key), self._value()
        if not found:
            raise self._other("it is JSON without a list 'traceEvents'")

    def _list(self) -> Iterator[Json]:
        scan, between = self._scan, _BETWEEN.match
        while True:
            # The hot loop: everything in the window that can be decoded, before more is read.
            text, at = self._text, self._at
            try:
                while True:
                    at = between(text, at).end()  # type: ignore[union-attr]
                    value, end = scan(text, at)
                    # A number at the window's end may go on in the next; objects and strings cannot.
                    if end == len(text) and not self._ended:
                        break
                    at = end
                    yield value
            except (StopIteration, ValueError):
                pass
            except RecursionError as error:
                raise self._too_deep() from error
            self._at = at
            if self._text[at : at + 1] == "]":
                self._at += 1
                return
            self._more("in the middle of an event")

    def _value(self) -> Any:
        while True:
            self._peek()
            try:
                value, end = self._scan(self._text, self._at)
            except (StopIteration, ValueError):
                end = len(self._text)
            except RecursionError as error:
                raise self._too_deep() from error
            if end < len(self._text):
                self._at = end
                return value
            self._more("in the middle of a value")

    def _first(self) -> str:
        try:
            return self._peek()
        except RecordError as error:  # it ends before anything has begun
            raise self._other("it is empty") from error

    def _peek(self) -> str:
        """The next character that is no white space."""
        while True:
            self._at = _SPACE.match(self._text, self._at).end()  # type: ignore[union-attr]
            if self._at < len(self._text):
                return self._text[self._at]
            self._more("before its end")

    def _peek_after_comma(self) -> str:
        if self._peek() == ",":
            self._at += 1
        return self._peek()

    def _more(self, where: str) -> None:
        """Read on, keeping only what is not decoded yet."""
        if self._ended:
            raise self._broken(f"it ends {where}, or goes on with what is not JSON")
        if len(self._text) - self._at > LONGEST_VALUE:
            raise self._broken(f"no value ends within {LONGEST_VALUE >> 20} MiB from there")
        # A value that is not whole yet is decoded from its start again, so the window doubles: all tries together then
        # cost twice the last one, where steps of one chunk took minutes over a single list of 64 MiB.
        pending = len(self._text) - self._at
        data = self._file.read(max(self._chunk, min(pending, LONGEST_VALUE - pending)))
        self._ended = not data
        self._before += self._at
        self._text = self._text[self._at :] + self._decode(data, self._ended)
        self._at = 0

    def _broken(self, what: str) -> RecordError:
        at = self._before + self._at
        return RecordError(f"{self._path} cannot be read from character {at} on: {what}. Export the trace again.")

    def _other(self, what: str) -> RecordError:
        return RecordError(f"{self._path} is not a profiler trace: {what}. {EXPECTED}.")

    def _too_deep(self) -> RecordError:
        at = self._before + self._at
        return RecordError(f"{self._path} is not a profiler trace: the value at character {at} is nested too deeply.")
