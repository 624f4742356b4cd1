"""The models that a step may ask and nobody trains (a teacher, an average of the weights): their calls are timed."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence

import torch

from perf_diagnostics.integrations.model.modules import beside, parts_of
from perf_diagnostics.measure.model_scan import parameters_of
from perf_diagnostics.measure.module_calls import TimedCalls, is_compiled

_MOST = 256

#: They may be made at any time. It is asked whether any were after five seconds, and whenever the training has gone on
#: for as long again; a look through all objects, of some 50 ms, is then taken only where some seem to have been.
_AGAIN_NS = 5_000_000_000


class BesideModels:
    """Finds them and times their calls; holds them by weak references.

    Args:
        watch: times the calls of a module until what it gives is called.
    """

    def __init__(self, watch: Callable[[torch.nn.Module], TimedCalls]) -> None:
        self._watch = watch
        self._watched: list[tuple[weakref.ref[torch.nn.Module], TimedCalls]] = []
        self._began_ns = time.perf_counter_ns()
        #: When the next look is due, by the host's clock in ns; not before the first one.
        self.due_ns = 1 << 62

    @property
    def modules(self) -> list[torch.nn.Module]:
        return [module for reference, _ in self._watched if (module := reference()) is not None]

    def look(
        self,
        everything: Sequence[torch.nn.Module],
        models: Iterable[torch.nn.Module],
        optimizers: Iterable[torch.optim.Optimizer],
    ) -> None:
        """Time the calls of those that there are now.

        Args:
            everything: all modules that there are.
            models: what is trained.
            optimizers: all that there are.
        """
        self.let_go()
        trained = {id(parameter) for parameter in parameters_of((), optimizers)}
        found = beside(models, everything)
        new = [module for module in found if not any(id(parameter) in trained for parameter in module.parameters())]
        called = [*new, *(part for module in new for part in _called_directly(module))]
        self._watched = [(weakref.ref(module), self._watch(module)) for module in called[:_MOST]]
        self.looked()

    def looked(self) -> None:
        """A look is over, or was not to be: the next one comes when it costs little."""
        now_ns = time.perf_counter_ns()
        self.due_ns = now_ns + max(_AGAIN_NS, now_ns - self._began_ns)

    def let_go(self) -> None:
        """Time none of their calls."""
        for _, undo in self._watched:
            undo()
        self._watched = []


def _called_directly(module: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """What a loop calls where it does not call the whole: an average's ``module``, a part (``vae.encode()`` does).

    Nothing inside of what was compiled: its graphs are guarded by what they saw, and would be made again.
    """
    if any(is_compiled(part) for part in module.modules()):
        return
    for part in parts_of(module):
        yield part
        if part is module._modules.get("module"):
            yield from parts_of(part)
