"""Names of loaded modules by the files that their code objects name."""

from __future__ import annotations

import sys
from types import ModuleType

_FROZEN = "<frozen "

#: Files without a module that are remembered as such.
MOST_UNKNOWN = 4096


class ModuleNames:
    """Which module a file's code belongs to; asked seldom, for looking costs a millisecond where modules are new."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._unknown: set[str] = set()
        self._modules = 0

    def of(self, file: str) -> str:
        """The name, or an empty one where no module has this file, as of code that was made by a program.

        >>> import json
        >>> ModuleNames().of(json.__file__), ModuleNames().of("<frozen runpy>"), ModuleNames().of("<string>")
        ('json', 'runpy', '')
        """
        if file.startswith("<"):
            return file[len(_FROZEN) : -1] if file.startswith(_FROZEN) else ""
        if file not in self._names and (file not in self._unknown or self._modules != len(sys.modules)):
            self._read()
            if file not in self._names and len(self._unknown) < MOST_UNKNOWN:
                self._unknown.add(file)
        return self._names.get(file, "")

    def _read(self) -> None:
        if self._modules == len(sys.modules):
            return
        modules = list(sys.modules.values())
        self._modules = len(modules)
        for module in modules:
            if issubclass(type(module), ModuleType):  # some put other things there, which may run code when asked
                space = ModuleType.__getattribute__(module, "__dict__")
                file, name = space.get("__file__"), space.get("__name__")
                if isinstance(file, str) and isinstance(name, str):
                    self._names.setdefault(file, name)
