"""Tells the user's own code from that of libraries, by the files it stands in."""

from __future__ import annotations

import enum
import os
import sys
import sysconfig
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

#: What installers call the folders that they put libraries into.
INSTALLED = ("site-packages", "dist-packages")

#: Names of what has no file, but was typed by somebody: at a prompt, or in a notebook's cell.
_TYPED = ("<stdin>", "<ipython-input-")

#: Frameworks that somebody may have checked out and installed in place: still not what a user of them would change.
_FRAMEWORKS = ("torch", "torchvision", "torchaudio", "transformers", "accelerate", "lightning", "pytorch_lightning")

_OURS = str(Path(__file__).parents[2]) + os.sep

#: What runs somebody's script for us, or a step of his training: what called it is no part of that.
_STARTERS = tuple(
    str(Path(__file__).parents[2] / file) for file in ("integrations/run_script.py", "trials/steps/training_step.py")
)

#: Libraries that we read the machine with, and that no training calls in its steps.
_SENSORS = tuple(
    folder + os.sep
    for spec in (find_spec("psutil"),)  # importing it can take 0.1 s, which each spawned worker would pay
    for folder in (spec and spec.submodule_search_locations) or ()
)

#: Files of which it is remembered whose they are. Code that is made while a training runs has a name of its own each
#: time (``<eval_with_key>.7`` of torch.fx), so there is no end of them.
MOST_FILES = 4096


class Kind(enum.Enum):
    """Whose a file's code is."""

    OWN = "the user's"
    LIBRARY = "a library's"
    OURS = "of this package, or of what it reads the machine with"
    STARTER = "what runs the user's script, or a step of his training"


class OwnCode:
    """Which files are the user's own: all but Python's, installed libraries', known frameworks' and ours.

    A program that is itself installed (``python -m package.train``) is the user's own code for that run.

    Args:
        main: the file that is run as ``__main__``; default: this process's.
        frameworks: folders of frameworks outside of where libraries are installed; default: those that are loaded.
    """

    def __init__(self, main: str | None = None, frameworks: Iterable[str] | None = None) -> None:
        paths = sysconfig.get_paths()
        standard = {paths[name] for name in ("stdlib", "platstdlib") if paths.get(name)}
        loaded = _loaded_frameworks() if frameworks is None else frameworks
        self._libraries = tuple({_folder(one) for one in (*standard, *loaded)})
        self._program = _installed_program(_main_file() if main is None else main)
        self._known: dict[str, Kind] = {}

    def kind_of(self, file: str) -> Kind:
        """Whose code it is, by the file as a code object names it."""
        known = self._known.get(file)
        if known is None:
            if len(self._known) >= MOST_FILES:
                self._known.clear()
            known = self._known[file] = self._look(file)
        return known

    def _look(self, file: str) -> Kind:
        if file.startswith("<"):
            return Kind.OWN if file.startswith(_TYPED) else Kind.LIBRARY
        if file in _STARTERS:
            return Kind.STARTER
        if file.startswith((_OURS, *_SENSORS)):
            return Kind.OURS
        path = os.path.abspath(file)  # noqa: PTH100 - a code object's name may be relative, and no link is followed
        if self._program and path.startswith(self._program):
            return Kind.OWN
        installed = path.startswith(self._libraries) or any(name in Path(path).parts for name in INSTALLED)
        return Kind.LIBRARY if installed else Kind.OWN


def _folder(path: str) -> str:
    return path.rstrip("/\\") + os.sep


def _main_file() -> str:
    return str(getattr(sys.modules.get("__main__"), "__file__", None) or "")


def _installed_program(main: str) -> str:
    """The folder of the installed package that is run as the program; empty where the program is not installed."""
    parts = Path(main).parts
    for place, part in enumerate(parts[:-1]):
        if part in INSTALLED and place + 1 < len(parts) - 1:
            return _folder(str(Path(*parts[: place + 2])))
    return ""


def _loaded_frameworks() -> list[str]:
    files = (getattr(sys.modules.get(name), "__file__", None) for name in _FRAMEWORKS)
    return [str(Path(file).parent) for file in files if file]
