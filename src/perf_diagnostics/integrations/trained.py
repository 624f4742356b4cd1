"""What a watched loop trains: its models and optimizers, the modules whose calls are timed, and what is known."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import torch

from perf_diagnostics.integrations import describe
from perf_diagnostics.integrations.about import About
from perf_diagnostics.integrations.modules import outermost, parts_of
from perf_diagnostics.records import Json

T = TypeVar("T")

#: A loop that never calls the outermost module calls its parts, or theirs. Deeper than this nobody is looked for.
DEEPEST_SEARCH = 4
_MOST_PARTS = 64


def _alive(references: Iterable[weakref.ref[T]]) -> list[T]:
    return [thing for reference in references if (thing := reference()) is not None]


class Trained:
    """Holds what is trained by weak references: a model that the script lets go must be gone, as it would without us.

    Args:
        models: the models that are trained; without, they are found by the optimizers' parameters.
        optimizers: those that are known from the start.
        watch: times the calls of a module until the function that it gives is called.
    """

    def __init__(
        self,
        models: Sequence[torch.nn.Module],
        optimizers: Sequence[torch.optim.Optimizer],
        watch: Callable[[torch.nn.Module], Callable[[], None]],
    ) -> None:
        self._watch = watch
        self._models = [weakref.ref(model) for model in models]
        self._watched: list[tuple[weakref.ref[torch.nn.Module], Callable[[], None]]] = []
        #: By their identities.
        self.optimizers = {id(optimizer): weakref.ref(optimizer) for optimizer in optimizers}
        #: How often models were looked for since an optimizer was met.
        self.searches = 0
        #: The type that the autocast region around the model computes in, if there is one.
        self.autocast: torch.dtype | None = None
        #: Samples of one batch; batches of the last step; facts of the loader.
        self.batch_samples: int | None = None
        self.micro_steps = 1
        self.loader_facts: dict[str, Json] = {}
        #: Whether torch.utils.checkpoint was called.
        self.checkpoints = False

    @property
    def main(self) -> Callable[[], torch.nn.Module | None] | None:
        """A reference to the first module whose calls are timed."""
        return self._watched[0][0] if self._watched else None

    @property
    def modules(self) -> list[torch.nn.Module]:
        """The modules whose calls are timed."""
        return _alive(module for module, _ in self._watched)

    @property
    def everything(self) -> list[torch.nn.Module]:
        """The models that were named, and the modules whose calls are timed."""
        return _alive(self._models) + self.modules

    @property
    def in_training_mode(self) -> bool:
        """Whether one of the modules is in training mode; true as long as none is known."""
        modules = self.modules
        return not modules or any(module.training for module in modules)

    @property
    def device(self) -> torch.device:
        """Where most of the parameters lie."""
        parameters = describe.parameters_of(_alive(self._models), _alive(self.optimizers.values()))
        return describe.device_of(parameters)

    def meet(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer that was not known steps: it may train another model than those that are watched."""
        self.optimizers[id(optimizer)] = weakref.ref(optimizer)
        self.searches = 0

    def called_in(self, module: torch.nn.Module) -> None:
        """A module is called to be trained: what does it compute in?"""
        self.autocast = describe.autocast_dtype(describe.device_of(list(module.parameters())).type)

    def watch(self, modules: Sequence[torch.nn.Module]) -> None:
        """Time the calls of these modules, too."""
        known = self.modules
        for module in modules[:_MOST_PARTS]:
            if all(module is not other for other in known):
                self._watched.append((weakref.ref(module), self._watch(module)))

    def watch_models(self) -> None:
        """Time the calls of the outermost modules around the models that were named."""
        if self._models:
            self.watch(outermost(_alive(self._models)))

    def search(self) -> None:
        """Look for the outermost modules of what is trained; where those are not called, one floor below, and so on."""
        if self.searches == 0:
            models, optimizers = _alive(self._models), _alive(self.optimizers.values())
            found = outermost(models, describe.parameters_of((), optimizers))
        else:
            found = [part for module in self.modules for part in parts_of(module)]
        self.searches += 1
        self.watch(found)

    def let_go(self) -> None:
        """Time no calls any more."""
        for _, undo in self._watched:
            undo()

    def tell(self, about: About, *, takes_turns: bool) -> None:
        """Fill in what is known by now; ``takes_turns`` where several optimizers do."""
        models = _alive(self._models) or self.modules
        optimizers = _alive(self.optimizers.values())
        parameters = describe.parameters_of(models, optimizers)
        if not parameters and about.quantities:
            return  # they are gone; what was written about them before stands
        device = describe.device_of(parameters)
        about.precision = describe.precision_of(parameters, device, self.autocast)
        about.samples = self.batch_samples
        about.quantities = describe.sizes(parameters, device)
        about.facts = {
            "accumulation_steps": 1 if takes_turns else max(1, self.micro_steps),
            **describe.facts_of(models, optimizers, device),
            **self.loader_facts,
            **({"gradient_checkpointing": True} if self.checkpoints else {}),
        }
