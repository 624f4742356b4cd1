"""Looks into the backwards of the first steps: what they compute for gradients that are let go unused, and how long.

A backward's operators form a graph whose leaves are parameters. An operator is needless if all leaves that it leads to
are parameters whose gradients nobody uses: those that no optimizer holds, and those whose gradients are dropped before
their optimizer steps, while others of the same backward are used (a generator's, from the loss of its critic). It is
run again if an earlier backward, which kept its graph, has run it since the last update.
"""

from __future__ import annotations

import sys
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch

from perf_diagnostics.integrations.steps.step_state import StepState
from perf_diagnostics.integrations.untraced import untraced
from perf_diagnostics.measure.model_scan import parameters_of
from perf_diagnostics.records import Json

#: The optimizers that hold a parameter, by identity; none of them: nobody does.
Holders: TypeAlias = frozenset[int]

#: A gradient, and how often it was changed in place by then.
_Grad: TypeAlias = tuple[weakref.ref[torch.Tensor], int]

#: Larger graphs are not looked through: in Python some 3 µs an operator.
_MOST_NODES = 20_000

#: So many backwards are looked into at most.
_MOST_LOOKS = 16

#: Operators of which backward makes a product for each of these two inputs: the gradient of one, and of the other.
_PRODUCTS: Mapping[str, tuple[int, int]] = {
    "AddmmBackward0": (1, 2),
    "BaddbmmBackward0": (1, 2),
    "BmmBackward0": (0, 1),
    "ConvolutionBackward0": (0, 1),
    "MmBackward0": (0, 1),
}

#: What an operator that was run remembers, in a dictionary that torch keeps beside it for as long as it lives; nothing
#: of ours keeps a graph.
_RUN_IN = "perf_diagnostics_run_in"

#: So many gradients are read to see whether they were set to zero.
_READ = 8

#: Stands for whoever uses the gradient of what is no parameter (an input's), or takes it as soon as it is there.
_SOMEBODY = 0


@dataclass
class _Look:
    """One backward: its operators and, on the CPU, their time in ns, by the optimizers whose gradients need them."""

    nodes: Counter[Holders] = field(default_factory=Counter)
    took_ns: Counter[Holders] = field(default_factory=Counter)
    #: Those that had been run before, and their time in ns.
    again: int = 0
    again_ns: int = 0
    #: When it began and how long it took in all, in ns; what torch adds up between operators is in no operator.
    began_ns: int = 0
    whole_ns: int = 0
    #: Whether an optimizer had stepped before: what is run for the first time takes longer.
    warm: bool = False
    #: What became of the gradients that it made for each optimizer's parameters: used, or dropped.
    used: dict[int, bool] = field(default_factory=lambda: {_SOMEBODY: True})

    @property
    def complete(self) -> bool:
        """Whether it is known what became of all, and an optimizer used some: what none used may have been read."""
        return any(used for one, used in self.used.items() if one != _SOMEBODY) and self.reached <= self.used.keys()

    @property
    def reached(self) -> set[int]:
        return {holder for holders in self.nodes for holder in holders}

    def unused(self, of: Mapping[Holders, int]) -> int:
        """What of a count is needless, as far as is known."""
        if not self.complete:
            return 0
        return sum(count for holders, count in of.items() if not any(self.used[one] for one in holders))


class BackwardLooks:
    """What the backwards of the first steps tell.

    Args:
        state: of the step that is under way.
        optimizers: those that there are.
    """

    def __init__(self, state: StepState, optimizers: Callable[[], Iterable[torch.optim.Optimizer]]) -> None:
        self._state = state
        self._optimizers = optimizers
        #: Whether the next backward is to be looked into: only in the first steps, once it is known who trains.
        self.wanted = False
        self._looks: list[_Look] = []
        #: The gradients that wait to be used, by optimizer, and the looks that they are of.
        self._waiting: dict[int, dict[int, _Grad]] = {}
        self._owed: dict[int, list[_Look]] = {}
        #: The look under way, and what takes its hooks off the operators again.
        self._under_way: tuple[_Look, list[Any]] | None = None
        #: Calls of models before the last backward of the step, if that kept its graph; else nothing.
        self._kept = -1
        self._added_up: bool | None = None
        self._warm = False
        #: The optimizer that stepped last, until the next backward; and what became of its gradients by then: let go
        #: (true) or set to zero, as far as is known.
        self._stepped: int | None = None
        self._let_go: bool | None = None
        #: Gradients add up within one of these: it ends where an optimizer steps, or gradients are dropped.
        self._sum = object()

    def begins(self, loss: Any, *, keeps: bool) -> None:
        """The outermost backward begins, on this, and may keep its graph."""
        parameters = {
            id(one): {id(p): p for p in parameters_of((), [one]) if p.requires_grad and p.is_leaf}
            for one in self._optimizers()
        }
        if self._kept == self._state.forwards and self._kept > 0:
            same = all(_same(p.grad, self._waiting.get(one, {}).get(id(p))) for one, held in parameters.items()
                       for p in held.values())  # fmt: skip
            self._added_up = same and self._added_up is not False
        for one, held in parameters.items():
            waiting = self._waiting.get(one, {})
            if waiting and all(_dropped(held[p].grad, was) for p, was in waiting.items() if p in held):
                self._settle(one, used=False)
        if self._stepped in parameters and self._let_go is None:
            self._let_go = _let_go(parameters[self._stepped].values())
        self._stepped = None
        self._kept = self._state.forwards if keeps else -1
        if len(self._looks) < _MOST_LOOKS and self._under_way is None and not _compiles_backwards():
            self._look_into(loss, parameters, keeps=keeps)

    def ends(self) -> None:
        """It has ended: what did it make?"""
        under_way, self._under_way = self._under_way, None
        look = None
        if under_way is not None:
            look, handles = under_way
            look.whole_ns = time.perf_counter_ns() - look.began_ns
            for handle in handles:
                handle.remove()
            self._looks.append(look)
        for one in self._optimizers():
            before, made = self._waiting.get(id(one), {}), {}
            for p in parameters_of((), [one]):
                if p.grad is not None and not _same(p.grad, before.get(id(p))):
                    made[id(p)] = weakref.ref(p.grad), p.grad._version
            if made:
                self._waiting[id(one)] = before | made
                if look is not None and id(one) in look.reached:
                    self._owed.setdefault(id(one), []).append(look)

    def stepped(self, optimizer: int) -> None:
        """An optimizer has stepped, by identity: it has used what its parameters had."""
        self._settle(optimizer, used=True)
        self._kept = -1
        self._warm = True
        self._stepped = optimizer

    def facts(self) -> dict[str, Json]:
        """Plain values by the names of ``TrialResult.facts``; none where too little was looked at."""
        looks = self._looks
        seen = {"backwards_add_up": self._added_up, "zero_grad_to_none": self._let_go}
        told: dict[str, Json] = {name: value for name, value in seen.items() if value is not None}
        warm = [look for look in looks if look.warm] or looks
        if warm:
            told["backward_operators_again"] = _part((look.again, look.nodes.total()) for look in warm)
        timed = bool(looks) and all(look.took_ns for look in looks)
        if timed:
            told["backward_time_again"] = _part((look.again_ns, look.took_ns.total()) for look in warm)
            # At most all that is not an operator's first run.
            later = [(look.whole_ns - (look.took_ns.total() - look.again_ns), look.whole_ns) for look in warm]
            told["backward_time_again_at_most"] = _part(later) if any(look.again for look in warm) else 0.0
        if not any(look.complete for look in looks):
            return told
        told |= {
            "backwards_looked_into": len(looks),
            "backward_operators_unused": _part((look.unused(look.nodes), look.nodes.total()) for look in looks),
            "gradients_dropped": any(not used for look in looks for used in look.used.values()),
        }
        if timed:
            times = [(look.unused(look.took_ns), look.took_ns.total()) for look in looks]
            told["backward_time_unused"] = _part(times)
        return told

    def _settle(self, optimizer: int, *, used: bool) -> None:
        self._sum = object()
        self._waiting.pop(optimizer, None)
        for look in self._owed.pop(optimizer, ()):
            look.used[optimizer] = used

    def _look_into(self, loss: Any, parameters: Mapping[int, Mapping[int, torch.Tensor]], *, keeps: bool) -> None:
        """Find the operators of a backward, and have them timed where it runs on the CPU."""
        # Of what else torch takes here, an iterator would be used up.
        several = loss if isinstance(loss, list | tuple) else (loss,)
        roots = [one for one in several if isinstance(one, torch.Tensor)]
        order = _nodes_of(root.grad_fn for root in roots if root.grad_fn is not None)
        if not order:
            return
        holders: dict[int, set[int]] = {}
        for one, held in parameters.items():
            for p in held:
                holders.setdefault(p, set()).add(one)
        reaches: dict[Any, Holders] = {}
        look, handles = _Look(warm=self._warm), []
        timed = all(root.device.type == "cpu" for root in roots)
        for node in order:
            if type(node).__name__ == "AccumulateGrad":
                leaf = node.variable
                reaches[node] = frozenset(holders.get(id(leaf), ()) if _of_a_model(leaf) else (_SOMEBODY,))
                continue
            reaches[node] = reached = frozenset().union(*(reaches.get(below, frozenset()) for below in _below(node)))
            look.nodes[reached] += 1
            again = self._was_run(node, keeps=keeps)
            look.again += again
            if timed:
                handles += _timed(node, look, _parts_of(node, reaches) or (reached,), again=again)
        self._under_way = look, handles
        look.began_ns = time.perf_counter_ns()

    def _was_run(self, node: Any, *, keeps: bool) -> bool:
        """Whether an operator was run since gradients begin to add up; one whose graph is kept remembers this run."""
        remembers: Any = getattr(node, "metadata", None)
        if not isinstance(remembers, dict):
            return False
        before = remembers.get(_RUN_IN)
        if keeps:
            remembers[_RUN_IN] = self._sum
        return before is self._sum


def _compiles_backwards() -> bool:
    """Whether torch compiles backwards as they run: hooks would be compiled with them, and again without."""
    return bool(getattr(sys.modules.get("torch._dynamo.config"), "compiled_autograd", False))


def _parts_of(node: Any, reaches: Mapping[Any, Holders]) -> tuple[Holders, ...]:
    """Whose gradients either half of a product's backward is for; empty where it computes only one, or is no product.

    A layer's weight that nobody trains costs half of its layer's backward, though the other half is needed.
    """
    inputs = _PRODUCTS.get(type(node).__name__)
    if inputs is None:
        return ()
    below = [node.next_functions[at][0] for at in inputs]
    return () if None in below else tuple(reaches.get(one, frozenset()) for one in below)


def _timed(node: Any, look: _Look, parts: tuple[Holders, ...], *, again: bool) -> list[Any]:
    """Add up the time of an operator, to equal parts for those, until the handles are removed."""
    clock, began = time.perf_counter_ns, [0]

    def begins(_gradients: Any) -> None:
        began[0] = clock()

    def ends(_made: Any, _gradients: Any) -> None:
        took_ns = clock() - began[0]
        for reached in parts:
            look.took_ns[reached] += took_ns // len(parts)
        if again:
            look.again_ns += took_ns

    untraced(begins, ends, and_what_they_call=True)
    return [node.register_prehook(begins), node.register_hook(ends)]


def _of_a_model(leaf: torch.Tensor) -> bool:
    """Whether it is a parameter whose gradient waits for an optimizer: nobody takes it as soon as it is there."""
    hooked = leaf._backward_hooks or getattr(leaf, "_post_accumulate_grad_hooks", None)
    return isinstance(leaf, torch.nn.Parameter) and not hooked


def _part(counts: Iterable[tuple[int, int]]) -> float:
    """The sum of the first over that of the second ones."""
    parts, wholes = zip(*counts, strict=True)
    return float(sum(parts) / max(1, sum(wholes)))


def _below(node: Any) -> list[Any]:
    return [below for below, _ in node.next_functions if below is not None]


def _nodes_of(roots: Iterable[Any]) -> list[Any]:
    """The operators of a graph, each after all that it leads to; none where there are too many."""
    order: list[Any] = []
    met: set[Any] = set()
    waiting = [(root, False) for root in roots]
    while waiting:
        node, left = waiting.pop()
        if left:
            order.append(node)
        elif node not in met:
            met.add(node)
            if len(met) > _MOST_NODES:
                return []
            waiting.append((node, True))
            waiting += [(below, False) for below in _below(node) if below not in met]
    return order


def _same(gradient: torch.Tensor | None, before: _Grad | None) -> bool:
    """Whether a gradient is the one that was there before, and was not changed since."""
    if gradient is None or before is None:
        return gradient is None and before is None
    return before[0]() is gradient and before[1] == gradient._version


def _dropped(gradient: torch.Tensor | None, before: _Grad) -> bool:
    """Whether a gradient was let go, or set to zero; one that was changed otherwise (clipped, unscaled) was not."""
    if gradient is None or before[0]() is not gradient:
        return True
    return before[1] != gradient._version and gradient.device.type == "cpu" and not bool(gradient.any())


def _let_go(parameters: Iterable[torch.Tensor]) -> bool | None:
    """Whether gradients that were used are gone before the next backward, or are zeros (false); None where neither.

    A gradient that is still as it was is to be added to, or nobody clears it; on a device it would have to be waited
    for.
    """
    gradients = [p.grad for p in parameters if p.grad is not None]
    if not gradients:
        return True
    read = [one for one in gradients if one.device.type == "cpu" and one.layout is torch.strided][:_READ]
    return False if read and not any(bool(one.any()) for one in read) else None
