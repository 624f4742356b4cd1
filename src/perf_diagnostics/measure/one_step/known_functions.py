"""Functions that torch has in one operator, by what they make of a few rows, and what they take."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import torch
from torch.nn import functional

from perf_diagnostics.measure.faults import FAULTS

#: It is tried where what it stands for takes no longer, and its tensor holds no more numbers.
_LONGEST_S, _MOST_NUMBERS = 0.2, 1 << 24

#: What operators computed one after the other differ by from the one that does it all, of each number and beside it; of
#: GELU's two forms, which differ by up to 5e-4, only one is within it. What a norm adds to the variance is not known.
_CLOSE, _CLOSE_NORM = 2e-5, 5e-4

#: So many numbers are looked at to see whether they differ.
_LOOKED_AT = 1 << 10

#: So many different numbers tell a function, and so many rows one that has two weights for each column.
_LEAST_DIFFERENT, LEAST_ROWS = 32, 6

Rows = torch.Tensor


@dataclass(frozen=True)
class KnownFunction:
    """What torch has in one operator.

    Attributes:
        call: how it is called, with ``x``.
        made_of: names of operators of which one at least is among those that write it out.
        ends_in: the last of these.
        of: what it makes of its input, over the last dimension where it is over one.
        close: by how much what is written out may differ, of each number and beside it.
        weights: names of what it takes beside ``x`` for the last dimension, whatever these are.
        with_all: names of operators that are all there.
        shifts: whether it makes the same where a number is added to a row.
        of_dim: the dimension that its weights are of.
    """

    call: str
    made_of: AbstractSet[str]
    ends_in: AbstractSet[str]
    of: Callable[..., Rows]
    close: float = _CLOSE
    weights: Sequence[str] = ()
    with_all: AbstractSet[str] = frozenset()
    shifts: bool = False
    of_dim: int = -1

    def makes(self, given: Rows, made: Rows) -> bool:
        """Whether it makes this of that, number by number; both of shape (rows, numbers)."""
        found, wanted = self.of(given.double()), made.double()
        if self.weights:
            if len(found) < LEAST_ROWS:
                return False
            found = _with_weights(found, wanted)
        return torch.allclose(found, wanted, rtol=self.close, atol=self.close)

    def seconds(self, shape: Sequence[int], dtype: torch.dtype, *, takes: float, backward: bool) -> float | None:
        """What it takes of the thread's CPU time: the less of two tries, on a tensor of this shape on the CPU.

        Args:
            shape: of what it is given.
            dtype: of that.
            takes: the seconds of what it stands for.
            backward: whether gradients go through it.

        Returns:
            None where it was not tried: where that would take too long, or too much memory.
        """
        numbers = math.prod(shape)
        if takes > _LONGEST_S or numbers > _MOST_NUMBERS:
            return None
        took = []
        try:
            for _ in range(2):
                # Made anew, as it is in the step: the caches hold what was written last.
                given = torch.linspace(-3, 3, numbers, dtype=dtype).reshape(tuple(shape)).requires_grad_(backward)
                size = given.shape[self.of_dim] if self.weights else 0
                weights = [torch.ones(size, dtype=dtype, requires_grad=backward) for _ in self.weights]
                began = time.thread_time_ns()
                with torch.set_grad_enabled(backward), torch.autocast("cpu", enabled=False):
                    made = self.of(given, *weights)
                took_ns = time.thread_time_ns() - began
                if backward:
                    ones = torch.ones_like(made)
                    began = time.thread_time_ns()
                    torch.autograd.grad(made, (given, *weights), ones)
                    took_ns += time.thread_time_ns() - began
                took.append(took_ns)
        except FAULTS:
            return None
        return min(took) * 1e-9


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SPREADS = _names("var std var_mean std_mean mean sum")


def _layer_norm(x: Rows, weight: Rows | None = None, bias: Rows | None = None) -> Rows:
    return functional.layer_norm(x, x.shape[-1:], weight, bias)


def _rms_norm(x: Rows, weight: Rows | None = None) -> Rows:
    return functional.rms_norm(x, x.shape[-1:], weight, eps=1e-6)


def group_norm(groups: int) -> KnownFunction:
    """The norm over so many groups of an image's channels, to be tried on images of shape (rows, channels, …)."""
    return KnownFunction(
        f"F.group_norm(x, {groups}, weight, bias)",
        _SPREADS,
        frozenset(),
        lambda x, weight, bias: functional.group_norm(x, groups, weight, bias),
        weights=("weight", "bias"),
        of_dim=1,
    )


def _with_weights(found: Rows, wanted: Rows) -> Rows:
    """What comes nearest to what is wanted with a weight and a bias for each column (least squares)."""
    middle, target = found.mean(0), wanted.mean(0)
    beside = found - middle
    weight = (beside * (wanted - target)).sum(0) / beside.square().sum(0).clamp_min(1e-30)
    return beside * weight + target


#: Those of more operators first: a sigmoid is a part of SiLU.
FUNCTIONS: Sequence[KnownFunction] = (
    KnownFunction(
        'F.gelu(x, approximate="tanh")',
        _names("tanh"),
        _names("mul"),
        lambda x: functional.gelu(x, approximate="tanh"),
    ),
    KnownFunction("F.gelu(x)", _names("erf"), _names("mul"), functional.gelu),
    KnownFunction("F.mish(x)", _names("tanh"), _names("mul"), functional.mish),
    KnownFunction("F.silu(x)", _names("sigmoid exp"), _names("mul div"), functional.silu),
    KnownFunction(
        "F.layer_norm(x, x.shape[-1:], weight, bias)",
        _SPREADS,
        _names("mul div add"),
        _layer_norm,
        close=_CLOSE_NORM,
        weights=("weight", "bias"),
        with_all=_names("sub"),
        shifts=True,
    ),
    KnownFunction(
        "F.rms_norm(x, x.shape[-1:], weight)",
        _names("mean sum linalg_vector_norm norm"),
        _names("mul div"),
        _rms_norm,
        close=_CLOSE_NORM,
        weights=("weight",),
    ),
    KnownFunction(
        "F.log_softmax(x, -1)",
        _names("_softmax exp logsumexp"),
        _names("log sub"),
        lambda x: functional.log_softmax(x, -1),
        shifts=True,
    ),
    KnownFunction(
        "F.softmax(x, -1)", _names("exp"), _names("div mul"), lambda x: functional.softmax(x, -1), shifts=True
    ),
    KnownFunction("F.softplus(x)", _names("exp"), _names("log log1p"), functional.softplus),
    KnownFunction("torch.sigmoid(x)", _names("exp"), _names("reciprocal mul div"), torch.sigmoid),
    KnownFunction("torch.tanh(x)", _names("exp sigmoid"), _names("div sub mul"), torch.tanh),
    KnownFunction("F.relu(x)", _names("gt ge abs"), _names("mul where div"), functional.relu),
    KnownFunction("F.elu(x)", _names("exp expm1"), _names("where add"), functional.elu),
)

#: The names of operators that are the last of one.
ENDS = frozenset().union(*(one.ends_in for one in FUNCTIONS))


def tells_enough(made: Rows) -> bool:
    """Whether these numbers are different enough, and finite, to tell what made them."""
    some = set(made.flatten()[:_LOOKED_AT].tolist())
    return bool(torch.isfinite(made).all()) and len(some) >= _LEAST_DIFFERENT


def candidates(names: AbstractSet[str], last: str) -> Iterator[KnownFunction]:
    """What operators of these names, the ``last`` one after the others, may write out."""
    for one in FUNCTIONS:
        if last in one.ends_in and names & one.made_of and one.with_all <= names:
            yield one
