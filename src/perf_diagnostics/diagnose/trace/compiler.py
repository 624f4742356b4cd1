"""What torch.compile writes into a trace: when it compiled, what, and whether once more; and its calls.

Seen with torch 2.13: a range for each part of compiling, some of them twice (``dynamo_timed``), one around each call of
what was compiled (``Torch-Compiled Region: 0/1``, the function's number and how often it was compiled before), and an
annotation ``dynamo_data: compile_id=0/1`` where a compilation ends.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from perf_diagnostics.diagnose.trace.events import Events, Kind, Trace
from perf_diagnostics.diagnose.trace.intervals import Times
from perf_diagnostics.diagnose.trace.launches import Launches

#: Around the calls of what was compiled, and the look for the graph that fits.
_CALLS = re.compile(r"^(Torch-Compiled Region|TorchDynamo Cache Lookup|Pregraph bytecode)")

#: The parts of compiling; of those that are written twice one has the end in brackets.
_COMPILING = re.compile(
    r"\(dynamo_timed\)$|^(dynamo|entire_(frame|backward)_compile|backend_compile|inductor_compile|build_guards"
    r"|bytecode_tracing|fx_codegen_and_compile|async_compile\.wait|compile_attempt_\d+|GraphLowering\.\w+"
    r"|compile_fx\.\S+)$"
)

_COMPILED = re.compile(r"^dynamo_data: compile_id=(?P<function>[^,\s/]+)/(?P<before>\d+)")


def is_compilers(name: str) -> bool:
    """Whether an operator's name is one of those that torch.compile writes."""
    return _CALLS.search(name) is not None or _COMPILING.search(name) is not None


@dataclass(frozen=True, eq=False)
class Compiler:
    """What the threads that train compiled during the trace."""

    launches: Launches

    @property
    def trace(self) -> Trace:
        return self.launches.trace

    @cached_property
    def _rows(self) -> Events:
        rows = self.trace.of(Kind.COMPILER)
        return rows.where(self.launches.on_training_threads(rows))

    @cached_property
    def compiling(self) -> Times:
        """When something was compiled; a backward is where it is called first."""
        rows = self._rows.where(self.trace.named(_COMPILING.search)[self._rows.name])
        return Times.union(rows.start_ns, rows.end_ns)

    @cached_property
    def calls(self) -> Times:
        """When what was compiled was called, or looked for."""
        rows = self._rows.where(self.trace.named(_CALLS.search)[self._rows.name])
        return Times.union(rows.start_ns, rows.end_ns)

    def ids(self, windows: Times) -> dict[str, int] | None:
        """How often each function that was compiled in the steps had been compiled before, by its number, the last time
        that it was; None where the trace does not tell.
        """
        notes = self.trace.of(Kind.ANNOTATION)
        notes = notes.where(self.trace.named(_COMPILED.search)[notes.name])
        notes = notes.where(windows.containing(notes.start_ns) >= 0)
        if not len(notes):
            return None
        found: dict[str, int] = {}
        for name in notes.name.tolist():
            told = _COMPILED.search(self.trace.names[name])
            if told is not None:
                found[told["function"]] = max(int(told["before"]), found.get(told["function"], 0))
        return found

    def steps(self, windows: Times) -> int:
        """In how many of the steps something was compiled."""
        return int(np.count_nonzero(self.compiling.within(windows)))
