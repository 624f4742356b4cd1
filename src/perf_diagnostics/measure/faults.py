"""What our own steps inside of somebody's training may raise."""

from __future__ import annotations

from perf_diagnostics.errors import PerfDiagnosticsError

#: What our own steps between the user's may raise: a device that refuses an event, a clock that cannot be read, a batch
#: or model that is not what it looks like, steps that do not fit each other. Caught where it happens, with ``try``,
#: which costs nothing until then: a context manager around each of some ten steps costs more than the measuring. Errors
#: of the user's own code are never inside such a ``try``; KeyboardInterrupt and SystemExit pass.
FAULTS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    BufferError,
    EOFError,
    ImportError,
    LookupError,
    MemoryError,
    NameError,
    OSError,
    PerfDiagnosticsError,
    ReferenceError,
    RuntimeError,
    SystemError,
    TypeError,
    ValueError,
)
