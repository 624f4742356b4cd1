"""Calls a function as soon as a script has imported torch: importing it earlier would fix settings it still makes."""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, cast


class AfterImport:
    """A finder that finds nothing itself: it lets the others find ``module`` and calls ``then`` when that is imported.

    ``OMP_NUM_THREADS`` or ``CUDA_VISIBLE_DEVICES`` set in a script count only until torch is imported.
    """

    def __init__(self, module: str, then: Callable[[], None]) -> None:
        self._module = module
        self._then = then

    def install(self) -> None:
        """Wait for the import; where the module is there already, call at once."""
        if self._module in sys.modules:
            self._then()
        else:
            sys.meta_path.insert(0, self)

    def remove(self) -> None:
        """Wait no longer."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Part of the import system, and asked by whoever only looks whether the module is installed."""
        if name != self._module:
            return None
        spec = _found_by_others(self, name, path, target)
        if spec is None or spec.loader is None:
            return spec
        loader: Any = spec.loader
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module  # the class's own again
            execute(module)
            self.remove()
            self._then()

        loader.exec_module = exec_module
        return spec


def _found_by_others(
    asking: AfterImport, name: str, path: Sequence[str] | None, target: ModuleType | None
) -> importlib.machinery.ModuleSpec | None:
    """What the finders beside the asking one find."""
    for finder in list(sys.meta_path):
        find = getattr(finder, "find_spec", None)  # finders of old have none, and the import system leaves them out
        if finder is not asking and find is not None and (spec := find(name, path, target)) is not None:
            return cast("importlib.machinery.ModuleSpec", spec)
    return None
