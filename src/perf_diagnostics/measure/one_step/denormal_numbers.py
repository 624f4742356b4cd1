"""Denormal numbers among those that a step computes with, for which a processor takes many times as long.

Numbers below 1.2e-38 in float32 (2.2e-308 in float64) are kept with fewer digits, and operations on them take
many times as long: a product of 32 by 160 by 160 took 1,400 µs in place of 16, one of 1024³ 1.9 s in place of 7 ms
(torch 2.13, two threads of an Intel processor with AVX-512). On an AMD EPYC products, sums and multiplications take
as long as ever, and roots (36 times), divisions (2.6) and exponentials (2.1) longer. With ``torch.set_flush_denormal``
they count as 0.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

import torch

from perf_diagnostics.measure.one_step.operator_lines import OperatorLines
from perf_diagnostics.measure.one_step.tried_again import Kind, Layer, TriedAgain
from perf_diagnostics.measure.one_step.watcher import ON_A_DEVICE, Ran, Watcher, memory
from perf_diagnostics.records import Json

SIGNAL = "denormal_numbers"
STATES = "denormal_states"
UNTRIED = "denormal_numbers_untried"

#: So many numbers of a tensor are looked at, evenly spread; smaller tensors than that cost little whatever they hold.
_LOOKED_AT = 512

#: Of what an optimizer keeps, which is large, more.
_OF_STATES = 4096

#: Fewer of a tensor's numbers do not count: where one product in a hundred takes 260 times as long, all take 3.6 times.
_LEAST_PART = 0.01

#: What trying calls again may take in all, in s of the thread.
_BUDGET_S = 0.4

#: A call that takes less than so many times what it takes with other numbers is not slowed by them.
_SLOWED = 1.5

_MOST_TOLD = 4

#: So many numbers are tried to see what a denormal one costs, no more than torch gives to one thread: of roots a second
#: one gets those beyond 2,048, of products those beyond 32,768.
_NUMBERS, _TRIES = 1 << 11, 9

#: What torch's optimizers take the square root of at each update, and so does whoever names it alike; not Adadelta,
#: which adds its epsilon before. Of Adam's that keeps the largest it is the root of these alone.
_ROOTS = ("exp_avg_sq", "max_exp_avg_sq", "square_avg", "sum")
_NO_ROOTS_BESIDE = {"exp_avg_sq": "max_exp_avg_sq", "square_avg": "acc_delta"}

#: Whole numbers of as many bits, and the least with an exponent.
_BITS = {torch.float32: (torch.int32, 1 << 23), torch.float64: (torch.int64, 1 << 52)}

#: The part that backward takes of an LSTM's layer, forward and backward: 48 of 67 ms of one of 128 over 400 steps.
_OF_BACKWARD = 0.7

#: Calls of one operator on tensors of the same shapes.
_Alike = tuple[Any, tuple[torch.Size, ...]]


class _Call(NamedTuple):
    """One of the calls of a kind, and how long it took."""

    in_backward: bool
    seconds: float


class _Site:
    """What a line asks for that has denormal numbers: the kinds of calls that it was first to ask for."""

    def __init__(self, told: dict[str, Json], shape: tuple[int, ...]) -> None:
        self.told, self.shape = told, shape
        self.most = 0.0
        self.kinds: list[_Alike] = []


class DenormalNumbers(Watcher):
    """Looks for denormal numbers in what operators on the CPU are given and give, and tries the calls with others.

    Where calls of one kind meet some, all calls of that kind count that take longer than with others: what a product
    adds up may be denormal though it is given and gives larger numbers.

    Args:
        lines: names the lines.
    """

    signals: ClassVar[tuple[str, ...]] = (SIGNAL,)

    def __init__(self, lines: OperatorLines) -> None:
        self._lines = lines
        self._sites: dict[Any, _Site] = {}
        self._calls: defaultdict[_Alike, list[_Call]] = defaultdict(list)
        #: Those that met denormal numbers.
        self._met: dict[_Alike, Kind] = {}
        #: The part of the numbers at a place in memory, when they were last made or read.
        self._parts: dict[tuple[int, int, int], float] = {}
        self._again = TriedAgain({}, _BUDGET_S)
        self._whole = {False: 0.0, True: 0.0}
        self._on_device = False

    def see(self, ran: Ran) -> None:
        if ran.seconds is None:
            self._on_device = True
            return
        self._whole[ran.times_backward] += ran.seconds
        given, made = [*ran.given()], [*ran.made()]
        before = {memory(one) for one in given}
        changed = [one for one in made if memory(one) not in before or any(one is another for another in given)]
        if not changed:  # a view
            return
        alike = (ran.operator, tuple(one.shape for one in given))
        self._calls[alike].append(_Call(ran.times_backward, ran.seconds))
        part = max((self._part(one) for one in given), default=0.0)
        part = max(part, *(self._part(one, anew=True) for one in changed))
        if part < _LEAST_PART:
            return
        key, told = self._lines.line()
        site = self._sites.get(key)
        if site is None:
            shape = next((tuple(one.shape) for one in ran.made()), ())
            site = self._sites[key] = _Site(told, shape)
        site.most = max(site.most, part)
        if alike not in self._met:
            self._met[alike] = self._again.kind_of(ran)
            site.kinds.append(alike)

    def _part(self, tensor: torch.Tensor, *, anew: bool = False) -> float:
        """Of what was looked at before, and not made ``anew``, as it was then."""
        place = memory(tensor), int(tensor.storage_offset()), tensor.numel()
        if anew or place not in self._parts:
            self._parts[place] = denormal_part(tensor)
        return self._parts[place]

    def passes_over(self, ran: Ran) -> None:
        """It takes its time all the same."""
        self._whole[ran.times_backward] += ran.seconds or 0.0

    @property
    def why_not(self) -> str:
        return ON_A_DEVICE if self._on_device else ""

    @property
    def told(self) -> dict[str, Json]:
        """For each line whose calls are slowed by denormal numbers: how many ``calls``, the largest ``part`` of a
        tensor's numbers that are, and of all operators' time the share that the calls take beyond what as many with
        other numbers take. By ``UNTRIED`` the share of the calls that could not be tried.
        """
        most = sorted(self._entries(), key=lambda one: -float(str(one["whole"])))
        untried = (
            one.seconds
            for alike, kind in self._met.items()
            if self._again.again_s(kind) is None
            for one in self._calls[alike]
        )
        return {SIGNAL: [*most[:_MOST_TOLD]], UNTRIED: _over(sum(untried), sum(self._whole.values()))}

    def _entries(self) -> Iterator[dict[str, Json]]:
        for site in self._sites.values():
            slowed = [one for alike in site.kinds for one in self._slowed(self._calls[alike], self._met[alike])]
            if not slowed:
                continue
            forward, backward = (
                sum(one.seconds for one in slowed if one.in_backward is in_backward) for in_backward in (False, True)
            )
            yield {
                **site.told,
                "shape": [*site.shape],
                "calls": len(slowed),
                "part": site.most,
                "forward": _over(forward, self._whole[False]),
                "backward": _over(backward, self._whole[True]),
                "whole": _over(forward + backward, sum(self._whole.values())),
            }

    def _slowed(self, calls: Sequence[_Call], kind: Kind) -> Iterator[_Call]:
        """Those of a kind's calls that are, with what they take longer than others."""
        plain_s = self._again.again_s(kind)
        if plain_s is None:
            return
        if isinstance(kind, Layer):  # was tried forward and backward as one; forward has no such numbers
            plain_s *= _OF_BACKWARD
        for one in calls:
            if one.seconds > _SLOWED * plain_s:
                yield _Call(one.in_backward, one.seconds - plain_s)


def denormal_part(tensor: torch.Tensor, numbers: int = _LOOKED_AT) -> float:
    """The part of a tensor's numbers that are denormal, 0…1, by so many of them; 0 of what is small or no float32 or
    float64 on the CPU in one dense piece of memory.
    """
    numel = tensor.numel()
    if not _is_looked_at(tensor):
        return 0.0
    if not tensor.is_contiguous():
        reach = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
        if reach != numel:
            return 0.0
    # An odd distance meets all columns of a matrix whose rows are a power of two.
    apart = max(1, numel // numbers) | 1
    # By operators, for what leaves a tensor otherwise counts as read by the script (see ``unseen_reads``). By their
    # bits: a mantissa and no exponent, whatever the sign; no arithmetic with such numbers, which may take them for 0.
    integers, exponent = _BITS[tensor.dtype]
    some = tensor.detach().as_strided((1 + (numel - 1) // apart,), (apart,)).view(integers)
    unsigned = some & torch.iinfo(integers).max
    return int(torch.count_nonzero((unsigned > 0) & (unsigned < exponent))) / some.numel()


def _is_looked_at(tensor: torch.Tensor) -> bool:
    strided = tensor.layout is torch.strided
    return tensor.dtype in _BITS and tensor.is_cpu and strided and tensor.numel() >= _LOOKED_AT


def denormal_states(optimizers: Iterable[torch.optim.Optimizer], before: Json = None) -> dict[str, Json]:
    """By ``STATES`` how many ``numbers`` of what optimizers on the CPU keep are denormal (some of each tensor were
    looked at), ``of`` how many, and what multiplying one takes longer, ``number_s``, in s of a thread; of how many of
    them a root is taken, ``roots``, and what that takes longer, ``root_s``. Nothing where they keep nothing there.

    A fused update takes its roots among all else that it does, for less than 1 ns: they are none of ``roots``.

    Args:
        optimizers: those that train.
        before: what this told earlier in the training, whose counts are told beside these as ``numbers_before`` and
            ``roots_before``: what has had no gradient for a thousand steps has become so small meanwhile.
    """
    counts = {"numbers": 0.0, "roots": 0.0}
    of = 0
    for optimizer in optimizers:
        fused = {id(one) for group in optimizer.param_groups if group.get("fused") for one in group["params"]}
        for parameter, kept in optimizer.state.items():
            for name, tensor in kept.items() if isinstance(kept, dict) else ():
                if isinstance(tensor, torch.Tensor) and _is_looked_at(tensor):
                    denormal = denormal_part(tensor, _OF_STATES) * tensor.numel()
                    of += tensor.numel()
                    counts["numbers"] += denormal
                    rooted = name in _ROOTS and _NO_ROOTS_BESIDE.get(name, "") not in kept
                    if rooted and id(parameter) not in fused:
                        counts["roots"] += denormal
    if not of:
        return {}
    earlier = before if isinstance(before, dict) else {}
    first = {f"{name}_before": earlier.get(name, count) for name, count in counts.items()}
    number_s = _longer_s(_multiply) if counts["numbers"] else 0.0
    root_s = _longer_s(torch.sqrt) if counts["roots"] else 0.0
    return {STATES: {**counts, **first, "of": of, "number_s": number_s, "root_s": root_s}}


def _multiply(numbers: torch.Tensor, *, out: torch.Tensor) -> None:
    torch.mul(numbers, 0.9, out=out)


def _longer_s(operation: Callable[..., object]) -> float:
    """What it takes longer for a denormal number than for another one, in s of a thread."""
    took = []
    for value in (1e-40, 1.0):
        numbers = torch.full((_NUMBERS,), value)
        into = torch.empty_like(numbers)
        best = min(_once(operation, numbers, into) for _ in range(_TRIES))
        took.append(best * 1e-9 / _NUMBERS)
    return max(0.0, took[0] - took[1])


def _once(operation: Callable[..., object], numbers: torch.Tensor, into: torch.Tensor) -> int:
    began = time.perf_counter_ns()
    operation(numbers, out=into)
    return time.perf_counter_ns() - began


def _over(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0
