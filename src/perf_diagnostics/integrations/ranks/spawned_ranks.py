"""Measures the processes that a script starts by ``torch.multiprocessing.spawn``, mostly as ranks of one training."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from perf_diagnostics.integrations.ends.endings import Ending, ending_of
from perf_diagnostics.records import Outcome

#: Where torch has the function that each started process calls, ``_wrap``.
_MODULE = "torch.multiprocessing.spawn"


class Measures(Protocol):
    """What measures one process."""

    def begin(self) -> None:
        """The process begins with the script's function."""

    def end(self, ending: Ending) -> None:
        """That has ended: write the result."""

    def say(self) -> None:
        """Say what was measured, if it is for this process to say."""


def watch_spawned(ranks: SpawnedRanks, installed: contextlib.ExitStack) -> None:
    """Have started processes measured until ``installed`` is closed."""
    module: Any = importlib.import_module(_MODULE)
    ranks.unwatched = module._wrap
    module._wrap = ranks
    installed.callback(setattr, module, "_wrap", ranks.unwatched)


@dataclass
class SpawnedRanks:
    """Stands in the place of torch's ``_wrap``, and is taken along to each process as what it calls.

    Not the script's own function is wrapped: torch prints that one's traceback, where nothing of ours should stand.

    Args:
        session: makes what measures the process of this index; can be pickled.
    """

    session: Callable[[int], Measures]
    #: torch's own function; not taken along, for another process has its own.
    unwatched: Callable[..., None] | None = None
    #: Whether it was taken along to some process, which says itself what it has measured.
    started: bool = False

    def __reduce__(self) -> tuple[Any, ...]:
        self.started = True
        return type(self), (self.session,)

    def __call__(self, function: Callable[..., Any], index: int, args: tuple[Any, ...], error_file: str) -> None:
        """What torch does in a started process, ``function(index, *args)``, and measured; but not in one forked off."""
        if self.unwatched is not None:
            self.unwatched(function, index, args, error_file)
            return
        wrap = importlib.import_module(_MODULE)._wrap
        session = self.session(index)
        session.begin()
        ending: Ending = (Outcome.COMPLETED, "", "script_ended")
        try:
            wrap(function, index, args, error_file)
        except BaseException as error:
            # What the function raises is written into that file, and the process is ended by sys.exit.
            raised = error.__context__ if Path(error_file).exists() else None
            ending = ending_of(raised or error)
            raise
        finally:
            session.end(ending)
            session.say()
