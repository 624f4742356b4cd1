"""Where an exception was raised, in the words of a record."""

from __future__ import annotations

import traceback

from perf_diagnostics.measure.code.own_code import Kind, OwnCode


def raised_at(error: BaseException) -> str:
    """`` (train.py:12)``, with a space before it; empty for an exception that was not raised.

    Where that is in a library, the user's own line that led there stands beside it: `` (linear.py:134, from
    train.py:12)``. Frames of ours are no place to look at.
    """
    code = OwnCode()
    frames = [(frame, code.kind_of(frame.filename)) for frame in traceback.extract_tb(error.__traceback__)]
    frames = [(frame, kind) for frame, kind in frames if kind in (Kind.OWN, Kind.LIBRARY)] or frames
    if not frames:
        return ""
    last = frames[-1][0]
    own = next((frame for frame, kind in reversed(frames) if kind is Kind.OWN), last)
    return f" ({_line(last)}{'' if own is last else f', from {_line(own)}'})"


def _line(frame: traceback.FrameSummary) -> str:
    return f"{frame.filename.rpartition('/')[2]}:{frame.lineno}"
