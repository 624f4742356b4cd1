"""Where in the user's own code a step's time goes, as a small table for a terminal."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from perf_diagnostics.diagnose.code.code_words import (
    called_of_several,
    callers_in_loop,
    function,
    lines_apart,
    place,
    places,
    source,
    why_far_below,
    why_slow,
)
from perf_diagnostics.diagnose.wording import counted, percent

if TYPE_CHECKING:
    from perf_diagnostics.diagnose.code_share import CodeShare
    from perf_diagnostics.diagnose.finding import Diagnosis

#: Lines of code that are told; the report has all.
MOST = 5


def code_lines(diagnosis: Diagnosis, width: int) -> list[str]:
    """A head, and of each of the lines with most of a step the share, its interval, the phase, the place and the text.

    Empty where no line was seen. Of lines of one function that are told together the texts are those of the lines that
    have a share worth a word, with their numbers and shares. Where one line has several parts of a step, as a
    framework's call has, each part says what is called.
    """
    shown = diagnosis.lines[:MOST]
    if not shown:
        return []
    samples = counted(diagnosis.looks, "sample")
    head = f"Where in the code: share of a step with its 95 % interval, from {samples} of the call stack"
    numbers = [_numbers(line) for line in shown]
    wide = [max(len(row[column]) for row in numbers) for column in range(3)]
    lines = textwrap.wrap(head, width, subsequent_indent="  ")
    for line, (share, ends, phase) in zip(shown, numbers, strict=True):
        before = f"  {share:>{wide[0]}}  {ends:<{wide[1]}}  {phase:<{wide[2]}}  "
        lines += textwrap.wrap(
            _where(line, diagnosis), width, initial_indent=before, subsequent_indent=f"{'':{len(before)}}  "
        )
        lines += [f"{'':{len(before)}}{text}" for text in _texts(line, width - len(before))]
        called, why = called_of_several(line, diagnosis), why_slow(line)
        room = " " * len(before)
        for beside in (f"calls {called}" if called else "", f"{why}." if why else ""):
            lines += textwrap.wrap(beside, width, initial_indent=room, subsequent_indent=f"{room}  ")
    return lines + textwrap.wrap(why_far_below(shown), width, initial_indent="  ", subsequent_indent="  ")


def _texts(line: CodeShare, width: int) -> list[str]:
    """What the line says; of several those that are worth a word, with their numbers, and shares of a step."""
    told = [one for one in lines_apart(line) if source(one.place)]
    if len(told) < 2:
        mark = f"{line.place.line}: " if line.within else ""
        text = source(line.place, max(20, width - len(mark)))
        return [f"{mark}{text}"] if text else []
    marks = [(one.place, f"{one.place.line}: ", f" ({percent(one.share.value)})") for one in told]
    return [f"{mark}{source(of, max(12, width - len(mark) - len(share)))}{share}" for of, mark, share in marks]


def _numbers(line: CodeShare) -> tuple[str, str, str]:
    low, high = line.share.low, line.share.high
    ends = "" if low is None or high is None else f"{percent(low)} to {percent(high)}"
    phase = line.phase.replace("_", " ")
    return percent(line.share.value), ends, f"{phase}, in workers" if line.in_workers else phase


def _where(line: CodeShare, diagnosis: Diagnosis) -> str:
    """``train.py:28-31 in Forecaster.forward, from train.py:44``"""
    name = function(line.place)
    callers = callers_in_loop(line, diagnosis)
    return f"{places(line)}{f' in {name}' if name else ''}{f', from {place(callers[-1])}' if callers else ''}"
