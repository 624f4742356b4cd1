"""The user's own loop: marked by hand (:class:`OwnLoop`), watched unchanged (:func:`attach`), or run as a script.

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
