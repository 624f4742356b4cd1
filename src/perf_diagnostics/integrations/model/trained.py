"""What a watched loop trains: its models and optimizers, the modules whose calls are timed, and what is known."""

from __future__ import annotations

import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import torch

from perf_diagnostics.integrations.about import About
from perf_diagnostics.integrations.model import describe
from perf_diagnostics.integrations.model.beside_models import BesideModels
from perf_diagnostics.integrations.model.modules import outermost, parts_of
from perf_diagnostics.measure.code.user_hooks import user_hooks
from perf_diagnostics.measure.gradients.gradients import ALONE, Gradients
from perf_diagnostics.measure.living import Living, Made, living
from perf_diagnostics.measure.model_scan import parameters_of
from perf_diagnostics.measure.module_calls import TimedCalls
from perf_diagnostics.records import Json
from perf_diagnostics.workloads.optimizers import optimizer_facts

T = TypeVar("T")

#: A loop that never calls the outermost module calls its parts, or theirs. Deeper than this nobody is looked for.
DEEPEST_SEARCH = 4
_MOST_PARTS = 64

#: So often models are looked for before anything has stepped: a script may read its data for other ends first.
_LOOKS_AHEAD = 3

#: Looking for models may take so much of the thread's CPU time in all, and a hundredth of the time since the watch
#: began beyond that: a loop that makes its models anew in each step would be looked through in each.
_ALLOWANCE_NS = 500_000_000
_SHARE = 100

#: Where nothing seems to have been made since the last look, the next one comes when it takes a thousandth of the time
#: since then.
_UNASKED_SHARE = 1000
_LEAST_LOOK_NS = 50_000_000


def _alive(references: Iterable[weakref.ref[T]]) -> list[T]:
    return [thing for reference in references if (thing := reference()) is not None]


class Trained:
    """Holds what is trained by weak references: a model that the script lets go must be gone, as it would without us.

    Args:
        models: the models that are trained; without, they are found by the optimizers' parameters.
        optimizers: those that are known from the start.
        watch: times the calls of a module until what it gives is called.
        watch_beside: the same for a module that nobody trains.
    """

    def __init__(
        self,
        models: Sequence[torch.nn.Module],
        optimizers: Sequence[torch.optim.Optimizer],
        watch: Callable[[torch.nn.Module], TimedCalls],
        watch_beside: Callable[[torch.nn.Module], TimedCalls],
    ) -> None:
        self._watch = watch
        self._models = [weakref.ref(model) for model in models]
        self._watched: list[tuple[weakref.ref[torch.nn.Module], TimedCalls]] = []
        #: The models that nobody trains, as far as is known.
        self.beside = BesideModels(watch_beside)
        self._made = Made()
        #: When all objects were looked through last, and how much CPU time that took.
        self._looked_ns = self._look_took_ns = 0
        #: By their identities.
        self.optimizers = {id(optimizer): weakref.ref(optimizer) for optimizer in optimizers}
        #: How often models were looked for since an optimizer was met.
        self.searches = 0
        #: The optimizers that were there when models were looked for; whether they ever step is not known.
        self._living: list[weakref.ref[torch.optim.Optimizer]] = []
        self._looks_ahead = 0
        self._began_ns, self._searched_ns = time.perf_counter_ns(), 0
        #: The type that the autocast region around the model computes in, if there is one.
        self.autocast: torch.dtype | None = None
        #: Samples of one batch; how many steps had so many batches; facts of the loader.
        self.batch_samples: int | None = None
        self.micro_steps: Counter[int] = Counter()
        #: And in how many slices of one batch each models were called, in the first steps.
        self.slices: Counter[int] = Counter()
        self.loader_facts: dict[str, Json] = {}
        #: Facts of the framework whose loop trains; empty where that is the user's own.
        self.framework_facts: dict[str, Json] = {}
        #: Whether torch.utils.checkpoint was called.
        self.checkpoints = False
        #: The parameters that the loop updates by hand, without an optimizer of torch.
        self.by_hand: list[weakref.ref[torch.Tensor]] = []
        #: What the gradients of the first steps are like.
        self.gradients = Gradients(optimizer_facts)

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
        parameters = parameters_of(_alive(self._models), _alive(self.optimizers.values()))
        return describe.device_of(parameters or _alive(self.by_hand))

    def meet(self, optimizer: torch.optim.Optimizer) -> bool:
        """An optimizer steps for the first time; true where it may train a model whose calls are not timed."""
        known = self.optimizers.get(id(optimizer))
        if known is not None and known() is optimizer:
            return False
        self.optimizers = {one: held for one, held in self.optimizers.items() if held() is not None}
        self.optimizers[id(optimizer)] = weakref.ref(optimizer)
        if self.searches and self._times_all_of(optimizer):
            return False
        self.searches = 0
        return True

    def begin_by_hand(self, parameters: Iterable[torch.Tensor]) -> None:
        """The loop updates these by hand, without an optimizer of torch; models that hold them are to be found."""
        self.by_hand = [weakref.ref(parameter) for parameter in parameters]
        self.searches = 0

    def _times_all_of(self, optimizer: torch.optim.Optimizer) -> bool:
        held = {id(parameter) for module in self.modules for parameter in module.parameters()}
        return all(id(parameter) in held for parameter in parameters_of((), [optimizer]))

    @property
    def expects_more(self) -> bool:
        """Whether an optimizer lives that has not stepped yet, and trains what none of those does that have."""
        stepped = {id(parameter) for parameter in parameters_of((), _alive(self.optimizers.values()))}
        return any(id(parameter) not in stepped for parameter in parameters_of((), _alive(self._living)))

    def all_optimizers(self) -> list[torch.optim.Optimizer]:
        """Those that have stepped or were named, and those that there were when models were looked for."""
        return list({id(one): one for one in _alive([*self.optimizers.values(), *self._living])}.values())

    def called_in(self, module: torch.nn.Module) -> None:
        """A module is called to be trained: what does it compute in?"""
        self.autocast = describe.autocast_dtype(describe.device_of(list(module.parameters())).type)

    def watch(self, modules: Sequence[torch.nn.Module]) -> bool:
        """Time the calls of these modules, too; true if one of them was not timed before."""
        self._watched = [(module, undo) for module, undo in self._watched if module() is not None]
        known = self.modules
        new = [module for module in modules[:_MOST_PARTS] if all(module is not other for other in known)]
        if any(module is one for module in self.beside.modules for one in new):
            self.beside.let_go()  # one was taken for one that nobody trains
        self._watched += [(weakref.ref(module), self._watch(module)) for module in new]
        return bool(new)

    def _watch_again(self) -> bool:
        """Time those calls again that somebody has replaced: ``model.compile()`` does; true if there were any."""
        replaced = [at for at, (_, timed) in enumerate(self._watched) if timed.replaced]
        for at in replaced:
            module = self._watched[at][0]()
            if module is not None:
                self._watched[at] = self._watched[at][0], self._watch(module)
        return bool(replaced)

    def watch_models(self) -> None:
        """Time the calls of the outermost modules around the models that were named."""
        if self._models:
            there = living()
            self._living = [weakref.ref(optimizer) for optimizer in there.optimizers]
            self.watch(outermost(_alive(self._models), everything=there.modules))
            self._see_beside(there)
            self.beside.due_ns = 0  # what is made before the first step is there by its end

    def look_beside(self) -> None:
        """Look for models that a step may ask beside its own, and that were made since, if any seem to have been."""
        if self.may_search and (self._made.anything() or self._may_look_unasked):
            began_ns = time.thread_time_ns()
            self._see_beside(living())
            self._look_took_ns = time.thread_time_ns() - began_ns
            self._searched_ns += self._look_took_ns
        self.beside.looked()

    @property
    def _may_look_unasked(self) -> bool:
        """Whether another look would take little of the time since the last one."""
        since_ns = time.perf_counter_ns() - self._looked_ns
        return since_ns >= _UNASKED_SHARE * max(self._look_took_ns, _LEAST_LOOK_NS)

    def _see_beside(self, there: Living) -> None:
        """Time the calls of the models that nobody trains as well, which a step may ask before its own."""
        optimizers = {id(one): one for one in (*_alive(self.optimizers.values()), *there.optimizers)}
        self.beside.look(there.modules, self.everything, optimizers.values())
        self._made.looked(there)
        self._looked_ns = time.perf_counter_ns()

    @property
    def may_look_ahead(self) -> bool:
        """Whether it is worth a look what will be trained: nobody has named a model, and nothing has stepped yet."""
        return not self._models and not self.optimizers and self._looks_ahead < _LOOKS_AHEAD

    def look_ahead(self) -> bool:
        """Time the calls of what the optimizers that there are by now will train; true if something is new."""
        self._looks_ahead += 1
        began_ns = time.thread_time_ns()
        there = living()
        self._living = [weakref.ref(optimizer) for optimizer in there.optimizers]
        parameters = parameters_of((), there.optimizers)
        found = self.watch(outermost((), parameters, everything=there.modules))
        self._see_beside(there)
        self._searched_ns += time.thread_time_ns() - began_ns
        return found

    @property
    def may_search(self) -> bool:
        """Whether there is time left to look for models."""
        now_ns = time.perf_counter_ns()
        return self._searched_ns <= _ALLOWANCE_NS + (now_ns - self._began_ns) // _SHARE

    def search(self) -> bool:
        """Look for the outermost modules of what is trained; where those are not called, one floor below, and so on.

        Returns:
            Whether the calls of a module are timed now that were not before.
        """
        began_ns, first = time.thread_time_ns(), self.searches == 0
        if first:
            there = living()
            self._living = [weakref.ref(optimizer) for optimizer in there.optimizers]
            parameters = parameters_of((), _alive(self.optimizers.values()))
            parameters_by_hand = _alive(self.by_hand)
            found = self.watch(
                outermost(_alive(self._models), [*parameters, *parameters_by_hand], everything=there.modules)
            )
            self._see_beside(there)
            found = self._watch_again() or found
        else:
            found = self._watch_again() or self.watch([part for module in self.modules for part in parts_of(module)])
        self.searches += 1 if found or (first and self._watched) else DEEPEST_SEARCH + 1
        self._searched_ns += time.thread_time_ns() - began_ns
        return found

    def look_at_gradients(self, turn: int = ALONE) -> None:
        """A step of one optimizer has ended: which parameters have gradients, and are they used?

        Args:
            turn: who it was, by identity, where several take turns.
        """
        models = (*self.everything, *self.beside.modules)
        stepped, living = _alive(self.optimizers.values()), _alive(self._living)
        if turn == ALONE:
            self.gradients.look(models, stepped, living)
            return
        here = [one for one in stepped if id(one) == turn]
        if here:
            self.gradients.look(models, here, [one for one in (*stepped, *living) if id(one) != turn], turn=turn)

    def let_go(self) -> None:
        """Time no calls any more."""
        self.beside.let_go()
        for _, undo in self._watched:
            undo()

    @property
    def usual_micro_steps(self) -> int:
        """Batches of most steps: the last one of a pass, and one whose scaler skipped another, may have others."""
        return max(1, max(self.micro_steps, key=lambda batches: self.micro_steps[batches], default=1))

    def _models_of(self, optimizers: Sequence[torch.optim.Optimizer]) -> list[torch.nn.Module]:
        """Of the modules whose calls are timed those that these train: others were there, and have never stepped."""
        stepped = {id(one) for one in (*parameters_of((), optimizers), *_alive(self.by_hand))}
        return [m for m in self.modules if any(id(parameter) in stepped for parameter in m.parameters())]

    def tell(self, about: About, *, turns: Mapping[int, int]) -> None:
        """Fill in what is known by now; ``turns`` says how often each optimizer steps in a step of the loop."""
        optimizers = _alive(self.optimizers.values())
        models = _alive(self._models) or self._models_of(optimizers) or self.modules
        parameters = parameters_of(models, optimizers)
        about.samples = self.batch_samples
        batches: dict[str, Json] = {"accumulation_steps": 1 if len(turns) != 1 else self.usual_micro_steps}
        usual_slices = max(self.slices, key=lambda one: self.slices[one], default=1)
        if usual_slices > 1:
            batches["slices_a_batch"] = usual_slices
        if about.quantities and (not parameters or (self.optimizers and not optimizers)):
            # They are gone: what was written about them stands, and what was counted since is told.
            about.facts = {**about.facts, **batches, **self.gradients.facts(turns), **self.loader_facts}
            return
        device = describe.device_of(parameters)
        about.precision = describe.precision_of(parameters, device, self.autocast)
        about.quantities = describe.sizes(parameters, device)
        about.facts = {
            **batches,
            **describe.facts_of(models, optimizers, device, checkpoints=self.checkpoints),
            **({"optimizer": "by hand"} if self.by_hand and not optimizers else {}),
            **self.gradients.facts(turns),
            "user_hooks": user_hooks(models) or about.facts.get("user_hooks", []),
            **self.loader_facts,
            **self.framework_facts,
        }
