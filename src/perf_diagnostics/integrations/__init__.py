"""The user's own loop: marked by hand (:class:`OwnLoop`), watched unchanged (:func:`attach`), or run as a script.

The ways in stand beside this file: ``attached``, ``own_loop``, ``run_script`` and one for each framework. Below them,
in the order of their arrows: ``watching`` (what is put into torch to see a loop) and ``marked`` tell ``record`` (what
is kept and written) of steps that ``steps`` cuts, with what ``model`` knows of modules, ``readings`` of the machine,
``ranks`` of other processes, ``looks`` of steps that are looked through and ``window`` of a few profiled steps;
``ends`` has it written whatever happens. ``exports`` translates records for other tools.

Importing this loads no torch; the names load what they need when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perf_diagnostics.integrations.attached import attach
    from perf_diagnostics.integrations.own_loop import OwnLoop

__all__ = ["OwnLoop", "attach"]

_HOMES = {
    "OwnLoop": "perf_diagnostics.integrations.own_loop",
    "attach": "perf_diagnostics.integrations.attached",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
