"""Standard output and error, which may be closed, gone or somebody else's object once a script has ended."""

from __future__ import annotations

import contextlib
import sys

#: Closed; its reader gone, its disk full; a script's own object, which has ``write`` only.
UNWRITABLE = (ValueError, OSError, AttributeError)


def flush_streams() -> None:
    """Flush what can be flushed; what cannot be stays for the interpreter to tell, as it does for any program."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with contextlib.suppress(*UNWRITABLE):
                stream.flush()


def print_error(line: str) -> None:
    """Print a line to standard error after all that was printed before, or nowhere if there is none any more."""
    flush_streams()
    if sys.stderr is not None:  # print would take standard output, then
        with contextlib.suppress(*UNWRITABLE):
            print(line, file=sys.stderr)
