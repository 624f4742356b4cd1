"""What is given to ``perf-diagnostics run`` by mistake: python itself, what starts the ranks, a notebook."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import PurePath

#: Programs and modules that start the processes that train, by how each of these is made to measure itself.
_STARTS_RANKS = {
    "torchrun": "torchrun OPTIONS -m perf_diagnostics run SCRIPT",
    "torch.distributed.run": "torchrun OPTIONS -m perf_diagnostics run SCRIPT",
    "torch.distributed.launch": "torchrun OPTIONS -m perf_diagnostics run SCRIPT",
    "accelerate": "accelerate launch OPTIONS -m perf_diagnostics run SCRIPT",
    "accelerate.commands.launch": "accelerate launch OPTIONS -m perf_diagnostics run SCRIPT",
    "deepspeed": "deepspeed OPTIONS --module perf_diagnostics run SCRIPT",
    "srun": "srun OPTIONS perf-diagnostics run SCRIPT",
    "mpirun": "mpirun OPTIONS perf-diagnostics run SCRIPT",
    "mpiexec": "mpiexec OPTIONS perf-diagnostics run SCRIPT",
}

_PYTHON = re.compile(r"python[\d.]*|ipython\d?")


def in_between(words: Sequence[str], *, as_module: bool) -> str:
    """What is wrong with what is to be run, and the command that was meant; empty where nothing is.

    Args:
        words: the script or module that was named, and its arguments.
        as_module: it was named after ``-m``.
    """
    target = words[0]
    program = _program(target, as_module=as_module)
    if not as_module and program.endswith(".ipynb"):
        return (
            f"{target} is a notebook and no script. Make one of it with `jupyter nbconvert --to script`, or measure "
            "the loop in the notebook: with perf_diagnostics.attach(model, optimizer, loader): …"
        )
    if not as_module and _PYTHON.fullmatch(program):
        meant = shlex.join(["perf-diagnostics", "run", *words[1:]])
        return f"{target} is left out, for `run` is in its place: {meant}"
    if program in _STARTS_RANKS:
        return (
            f"{target} only starts the processes that train, and each of these measures itself. It goes in front, and "
            f"SCRIPT has its own arguments after it: {_STARTS_RANKS[program]}"
        )
    return ""


def starts_ranks(target: str, *, as_module: bool) -> bool:
    """Whether this is no script, but a program or a module that starts the processes that train."""
    return _program(target, as_module=as_module) in _STARTS_RANKS


def _program(target: str, *, as_module: bool) -> str:
    return target if as_module else PurePath(target).name
