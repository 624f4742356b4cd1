"""How a training that is not ours ended, as an outcome of its trial."""

from __future__ import annotations

import re
from typing import TypeAlias

from perf_diagnostics.measure.boards.lost_context import with_what_now
from perf_diagnostics.measure.code.raised_at import raised_at
from perf_diagnostics.records import Outcome

#: Outcome, reason in words, and stop reason.
Ending: TypeAlias = tuple[Outcome, str, str]

_REASON_LIMIT = 400

#: Bold and coloured letters of a terminal, which torch's own messages have.
_LETTERS = re.compile(r"\x1b\[[0-9;]*m")


def ending_of(error: BaseException) -> Ending:
    """What an exception that left the loop means.

    Ctrl-C and ``sys.exit`` are how people end a training: what was measured until then is complete. Anything else is
    a crash.
    """
    if isinstance(error, KeyboardInterrupt):
        return Outcome.COMPLETED, "ended by Ctrl-C", "interrupted"
    if isinstance(error, SystemExit):
        left = "" if error.code in (None, 0) else f"ended by sys.exit({error.code!r})"
        return Outcome.COMPLETED, left[:_REASON_LIMIT], "exit"
    text = f"{type(error).__name__}: {' '.join(_LETTERS.sub('', str(error)).split())}"[:_REASON_LIMIT]
    text += raised_at(error)
    if type(error).__name__ == "OutOfMemoryError":
        return Outcome.OUT_OF_MEMORY_DEVICE, text, str(Outcome.OUT_OF_MEMORY_DEVICE)
    if isinstance(error, MemoryError):
        return Outcome.OUT_OF_MEMORY_HOST, text, str(Outcome.OUT_OF_MEMORY_HOST)
    return Outcome.CRASHED, with_what_now(text), str(Outcome.CRASHED)
