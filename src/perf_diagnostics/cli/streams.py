"""Standard streams that take whatever is printed: also closed ones, and terminals that know only ASCII."""

from __future__ import annotations

import io
import os
import sys


def ready_streams(*, own_output: bool) -> None:
    """Open what is closed of standard input, output and error, so that no record's file takes their place.

    With ``own_output`` the output is all ours, and a sign that the terminal's encoding lacks is written as its escape;
    without, a script's own output follows, which must behave as under python itself.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free: this one
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False)
    if own_output:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
