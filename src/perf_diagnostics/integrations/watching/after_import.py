"""Calls a function as soon as a script has imported torch: importing it earlier would fix settings it still makes."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any


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
        """Part of the import system."""
        if name != self._module:
            return None
        self.remove()
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        loader: Any = spec.loader
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module  # the class's own again
            execute(module)
            self._then()

        loader.exec_module = exec_module
        return spec
