"""Finds a workload by name: built in, installed by someone else, or a function in a file of the user's own.

Three kinds of name are understood, in this order:

- ``module:function`` - a function of the user's own (see :mod:`perf_diagnostics.workloads.custom`);
- a built-in name, such as ``distilbert-sst2``;
- the name of an entry point in the group ``perf_diagnostics.workloads``, which leads to a workload, or to a class
  or function that makes one when called without arguments.

Listing names imports no workload, so it loads neither torch nor transformers.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from dataclasses import dataclass
from typing import cast

from perf_diagnostics.errors import WorkloadError
from perf_diagnostics.workloads.options import OptionText, known_names, option_texts, shown
from perf_diagnostics.workloads.workload import Workload

ENTRY_POINTS = "perf_diagnostics.workloads"


@dataclass(frozen=True)
class _BuiltIn:
    name: str
    module: str
    kind: str
    says: str


_BUILT_IN = (
    _BuiltIn(
        "distilbert-sst2",
        "language",
        "DistilBertSst2",
        "fine-tune DistilBERT (66 M parameters) on sentences shaped like SST-2, tokenised on the fly",
    ),
    _BuiltIn("mlp", "mlp", "Mlp", "a multi-layer perceptron on synthetic vectors held in memory; seconds long"),
    _BuiltIn(
        "tiny-transformer",
        "tiny_transformer",
        "TinyTransformer",
        "a two-layer transformer language model on synthetic sequences of varying length; seconds long",
    ),
    _BuiltIn("faulty", "faulty", "Faulty", "an mlp with a planted fault, to see what the profiler makes of it"),
)


def names() -> tuple[tuple[str, str], ...]:
    """Every known name with one line about it: the built-in ones, then those of installed packages."""
    built_in = tuple((entry.name, entry.says) for entry in _BUILT_IN)
    taken = {name for name, _ in built_in}
    installed = {point.name: point.value for point in _entry_points() if point.name not in taken}
    return built_in + tuple((name, f"installed: {value}") for name, value in sorted(installed.items()))


def find(name: str) -> Workload:
    """The workload of that name; see the module's text for what a name may be.

    Raises:
        WorkloadError: No such workload (the text names the known ones), or it cannot be loaded.
    """
    if ":" in name:
        from perf_diagnostics.workloads.custom import CustomWorkload

        return CustomWorkload.of(name)
    for entry in _BUILT_IN:
        if entry.name == name:
            module = importlib.import_module(f"{__package__}.{entry.module}")
            return cast(Workload, getattr(module, entry.kind)())
    for point in _entry_points():
        if point.name == name:
            return _loaded(point)
    raise WorkloadError(
        f"There is no workload {shown(name)}; {known_names(name, [known for known, _ in names()])}, "
        "or 'module:function' for one of your own."
    )


def options_of(workload: Workload) -> tuple[OptionText, ...]:
    """The options a workload declares in its attribute ``options``; none of a workload that declares nothing."""
    declared = getattr(workload, "options", None)
    return option_texts(declared) if isinstance(declared, type) else ()


def _entry_points() -> importlib.metadata.EntryPoints:
    return importlib.metadata.entry_points(group=ENTRY_POINTS)


def _loaded(point: importlib.metadata.EntryPoint) -> Workload:
    try:
        found = point.load()
    except (ImportError, AttributeError) as error:
        raise WorkloadError(
            f"The workload {shown(point.name)} is installed as {point.value} but cannot be loaded: {error}. "
            "Reinstall or remove the package it comes from."
        ) from error
    workload = found() if isinstance(found, type) or not hasattr(found, "build") else found
    missing = [part for part in ("name", "says", "build") if not hasattr(workload, part)]
    if missing:
        raise WorkloadError(f"{point.value}, installed as workload {shown(point.name)}, lacks {', '.join(missing)}.")
    return cast(Workload, workload)
