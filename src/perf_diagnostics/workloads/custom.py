"""A workload of the user's own: ``module:function``, where the function returns the parts of a training.

The module is imported with the current folder on ``sys.path`` (which stays there: loader workers and later imports
of the function need it too). The function is called with those of the keywords ``settings``, ``options`` and ``seed``
that its signature names, and with the options that have the name of another parameter (``--option width=7``)::

    # train.py, run as workload "train:make"
    def make(settings, seed, width=64):
        model = Net(width)
        optimizer = torch.optim.AdamW(model.parameters())
        loader = DataLoader(data, batch_size=settings.batch_size, shuffle=True)
        return model, optimizer, loader, torch.nn.CrossEntropyLoss()

It returns a :class:`~perf_diagnostics.workloads.Training`, which is taken as it is, or the four parts
``(model, optimizer, loader, loss_fn)`` as a tuple or as a mapping with these keys.

**loss_fn** is one of three: a callable whose first parameter is named ``model`` is called as ``loss_fn(model, batch)``;
any other callable is a criterion, called as ``loss_fn(model(x), y)``, and every batch must be a pair ``(x, y)``;
``None`` takes the ``loss`` that ``model(**batch)`` returns, as transformers' models do.

**Settings.** A DataLoader is batched anew where it differs from the trial's settings; a batch that one pass over the
data cannot fill is refused (the last one of a pass may be partial). A function that takes
``settings`` is trusted with the rest; for one that does not, ``sequence_length``, ``gradient_checkpointing`` and
``length_bucketing`` are refused. An optimizer of another implementation than the one asked for is refused either way.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from perf_diagnostics.errors import WorkloadError
from perf_diagnostics.records import Json, Settings
from perf_diagnostics.workloads.options import known_names, refuse_settings, shown
from perf_diagnostics.workloads.training_of_parts import fitted, training_of
from perf_diagnostics.workloads.workload import Training

_NAME = re.compile(r"(?P<module>[A-Za-z_]\w*(\.[A-Za-z_]\w*)*):(?P<function>[A-Za-z_]\w*)", re.ASCII)
_KEYWORDS = ("settings", "options", "seed")
_PARTS = ("model", "optimizer", "loader", "loss_fn")
_ORDER = f"The order is {', '.join(_PARTS)}; or give a mapping with these keys."


@dataclass(frozen=True)
class CustomWorkload:
    """A workload made by ``function``, which takes ``keywords``, and each of ``named`` as an option of that name."""

    name: str
    says: str
    function: Callable[..., Any]
    keywords: tuple[str, ...]
    named: tuple[str, ...] = ()

    @classmethod
    def of(cls, name: str) -> CustomWorkload:
        """Import the module and find the function that ``name`` (``module:function``) stands for.

        Raises:
            WorkloadError: No such module or function, a module that cannot be imported, or a function that cannot be
                called with the keywords a workload is given.
        """
        parts = _NAME.fullmatch(name)
        if parts is None:
            raise WorkloadError(
                f"{shown(name)} is no workload: one of your own is named 'module:function', such as 'train:make' for "
                "the function make in train.py."
            )
        module = _imported(parts["module"])
        function = getattr(module, parts["function"], None)
        if not callable(function):
            known = [key for key, value in vars(module).items() if inspect.isfunction(value) and key[0] != "_"]
            what = "is not a function of" if function is not None else "is not in"
            raise WorkloadError(
                f"{shown(parts['function'])} {what} {module.__name__}; {known_names(parts['function'], known)}."
            )
        says = (inspect.getdoc(function) or f"the function {parts['function']} of {module.__name__}").splitlines()[0]
        return cls(name, says, function, *_keywords_of(function, name))

    def check_options(self, options: Mapping[str, Json]) -> None:
        """See :class:`perf_diagnostics.workloads.beforehand.Foresighted`; what is in them the function alone knows."""
        unknown = sorted(set(options) - set(self.named))
        if unknown and "options" not in self.keywords:
            those = f"no options but {', '.join(self.named)}" if self.named else "no options"
            raise WorkloadError(
                f"{self.name} takes {those}, and {', '.join(unknown)} {'was' if len(unknown) == 1 else 'were'} given; "
                "give the function a parameter of that name, or one named 'options' for all of them."
            )

    def check_settings(self, settings: Settings, options: Mapping[str, Json]) -> None:
        """See :class:`perf_diagnostics.workloads.beforehand.Foresighted`."""
        if "settings" not in self.keywords:
            refuse_settings(
                settings,
                ("sequence_length", "gradient_checkpointing", "length_bucketing"),
                workload=self.name,
                why="the function has no parameter 'settings'",
            )

    def build(self, settings: Settings, *, options: Mapping[str, Json], seed: int) -> Training:
        """Call the function and fit what it returns to the settings; see the module's text for the contract."""
        self.check_options(options)
        self.check_settings(settings, options)
        given = {"settings": settings, "options": dict(options), "seed": seed}
        torch.manual_seed(seed)
        named = {name: value for name, value in options.items() if name in self.named}
        made = self.function(**named, **{keyword: given[keyword] for keyword in self.keywords})
        if isinstance(made, Training):
            return fitted(made, settings)
        return training_of(*self._parts_of(made), settings=settings)

    def _parts_of(self, made: object) -> tuple[Any, Any, Any, Any]:
        if isinstance(made, Mapping):
            wrong = sorted(set(_PARTS) ^ set(made))
            if wrong:
                raise WorkloadError(
                    f"{self.name} returned a mapping with the keys {', '.join(map(str, made))}; it needs exactly "
                    f"{', '.join(_PARTS)}."
                )
            made = tuple(made[part] for part in _PARTS)
        if not isinstance(made, tuple) or len(made) != len(_PARTS):
            raise WorkloadError(
                f"{self.name} returned {_described(made)}; it must return a Training or {', '.join(_PARTS)}."
            )
        model, optimizer, loader, loss_fn = made
        for part, value, kind in (
            ("model", model, torch.nn.Module),
            ("optimizer", optimizer, torch.optim.Optimizer),
        ):
            if not isinstance(value, kind):
                raise WorkloadError(
                    f"{self.name} returned as {part} a {type(value).__name__}, not a {kind.__name__}. {_ORDER}"
                )
        if not hasattr(loader, "__iter__"):
            raise WorkloadError(
                f"{self.name} returned as loader a {type(loader).__name__}, which has no batches. {_ORDER}"
            )
        if loss_fn is not None and not callable(loss_fn):
            raise WorkloadError(
                f"{self.name} returned as loss_fn a {type(loss_fn).__name__}, which cannot be called. {_ORDER}"
            )
        return model, optimizer, loader, loss_fn


def _imported(module: str) -> Any:
    here = Path.cwd()
    if not {"", str(here)} & set(sys.path):
        sys.path.insert(0, str(here))
    try:
        return importlib.import_module(module)
    except (ImportError, SyntaxError) as error:
        missing = (
            isinstance(error, ModuleNotFoundError)
            and error.name is not None
            and f"{module}.".startswith(f"{error.name}.")
        )
        if not missing:
            raise WorkloadError(f"The module {module} cannot be imported: {error}.") from error
        beside = [file.stem for file in here.glob("*.py")]
        known = f"in this folder {known_names(module, beside)}" if beside else f"{here} holds no Python file"
        raise WorkloadError(f"There is no module {module}; {known}.") from error


def _keywords_of(function: Callable[..., Any], name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Which of the keywords a function takes, and its other parameters, which need a value of their own."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as error:
        raise WorkloadError(f"{name} has no signature to read; wrap it in a function of your own.") from error
    taken: list[str] = []
    named: list[str] = []
    for parameter in parameters:
        by_keyword = parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        if parameter.kind is parameter.VAR_KEYWORD:
            taken += _KEYWORDS
        elif by_keyword and parameter.name in _KEYWORDS:
            taken.append(parameter.name)
        elif parameter.default is parameter.empty and parameter.kind is not parameter.VAR_POSITIONAL:
            raise WorkloadError(
                f"{name} needs an argument {parameter.name!r}; a workload is only given {', '.join(_KEYWORDS)}, "
                "each by keyword; give it a value that holds where no option has that name."
            )
        elif by_keyword:
            named.append(parameter.name)
    return tuple(dict.fromkeys(taken)), tuple(named)


def _described(made: object) -> str:
    if isinstance(made, tuple | list):
        return f"a {type(made).__name__} of {len(made)}"
    return f"a {type(made).__name__}"
