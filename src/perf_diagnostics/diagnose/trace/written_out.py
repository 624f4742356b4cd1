"""Functions that torch has in one operator, and that a trace shows written out in several, one after the other."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from perf_diagnostics.diagnose.trace.events import Events, Trace
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.inputs import Inputs, Sizes
from perf_diagnostics.diagnose.trace.intervals import Times

#: Functions on fewer numbers take as long as calling them does.
_LEAST_NUMBERS = 8192

#: What is done, by a letter each; what arranges numbers otherwise, or makes them of another type, has none.
_LETTERS: Mapping[str, str] = MappingProxyType(
    {
        **{"mean": "m", "var": "v", "std": "d", "sum": "s", "amax": "x", "max": "x", "sub": "-", "sub_": "-"},
        **{"add": "+", "add_": "+", "mul": "*", "mul_": "*", "div": "/", "div_": "/", "pow": "p", "square": "p"},
        **{"sqrt": "q", "rsqrt": "r", "exp": "e", "exp_": "e", "tanh": "t", "erf": "f", "log": "l"},
    }
)

#: The letters of a difference, product and quotient of the whole and one number for each of its rows.
_BY_ROW: Mapping[str, str] = MappingProxyType({"-": "~", "*": "@", "/": "%"})

_ARRANGE = frozenset(
    f"aten::{name}"
    for name in (
        "to",
        "view",
        "reshape",
        "expand",
        "expand_as",
        "unsqueeze",
        "squeeze",
        "contiguous",
        "clone",
        "detach",
    )
)

#: What goes along the last dimension, as the second of its arguments tells.
_ALONG = frozenset("msvdx")

#: How a variance is told that divides by all numbers, and not by one less.
_OF_ALL = ("False", "0", "0.")


@dataclass(frozen=True)
class Function:
    """A function by the letters of what writes it out, how it is called, and what its own operator takes of that time.

    That is of forward and backward of 32x128x512 numbers (torch 2.13, one core). ``differs`` says what is not the same.
    """

    call: str
    letters: re.Pattern[str]
    left: float
    differs: str = ""


#: Longer ones first: an RMS norm is a part of a layer's.
FUNCTIONS = (
    Function("F.layer_norm", re.compile(r"m~?(?:[p*]m|v)~?\+(?:q%|r@)\*?\+?|vm~?\+(?:q~?%|r~?@)\*?\+?"), 0.12),
    Function(
        "F.layer_norm",
        re.compile(r"(?:(?:md|dm)~\*?|m~\*?d)\+?%\*?\+?"),
        0.09,
        differs="a standard deviation that divides by one less than the width makes numbers smaller by a part of 1 in "
        "twice that, which a weight takes up",
    ),
    Function('F.gelu(x, approximate="tanh")', re.compile(r"\*{0,2}[p*]\*{1,2}\+\*t\+\*{1,2}"), 0.42),
    Function("F.gelu", re.compile(r"\*?[/*]f\+\*{1,2}"), 0.13),
    Function("log_softmax", re.compile(r"x~esl~"), 0.26),
    Function("log_softmax", re.compile(r"esl~"), 0.69),
    Function("softmax", re.compile(r"x~es%"), 0.13),
    Function("softmax", re.compile(r"es%"), 0.35),
    # 0.67, but of 512x256 numbers as much as written out.
    Function("F.rms_norm", re.compile(r"[p*]m\+(?:q%|r@)\*?"), 0.9),
)


@dataclass(frozen=True, eq=False)
class Written:
    """One of the functions in the steps: when its operators ran and autograd's nodes that lead back from them.

    It is written out ``calls`` times a step, by ``operators`` each, on tensors of up to ``size``.
    """

    function: Function
    forward: Times
    nodes: Times
    calls: float
    operators: float
    size: Sizes


def written_out(facts: TraceFacts) -> tuple[Written, ...]:
    """Those of the steps, by their names and sizes: whether the numbers are the same, a trace does not tell.

    Raises:
        NotMeasured: the trace cannot be trusted, tells no sizes, or nothing of autograd's nodes.
    """
    nodes, trace, windows = facts.require_nodes(), facts.trace, facts.steps.on_host
    rows = nodes.others.where(windows.containing(nodes.others.start_ns) >= 0)
    facts.require_sizes(rows)
    found: dict[Function, list[tuple[list[int], Sizes]]] = {}
    for function, places, size in _found(trace, rows):
        found.setdefault(function, []).append((places, size))
    written = []
    for function in FUNCTIONS:
        mine = found.get(function, [])
        if not mine:
            continue
        members = np.array([place for places, _ in mine for place in places], np.intp)
        back = nodes.made_by(rows, members)
        written.append(
            Written(
                function=function,
                forward=Times.union(rows.start_ns[members], rows.end_ns[members]),
                nodes=Times.union(back.start_ns, back.end_ns),
                calls=len(mine) / len(windows),
                operators=members.size / len(mine),
                size=max((size for _, size in mine), key=math.prod),
            )
        )
    return tuple(written)


def _found(trace: Trace, rows: Events) -> Iterator[tuple[Function, list[int], Sizes]]:
    letters = {
        name: _LETTERS.get(trace.names[name].removeprefix("aten::"), "") for name in np.unique(rows.name).tolist()
    }
    arranges = trace.named(_ARRANGE.__contains__)
    places: list[int] = []
    size: Sizes = ()
    text = ""
    for place, (name, told, track) in enumerate(
        zip(rows.name.tolist(), rows.told.tolist(), rows.track.tolist(), strict=True)
    ):
        inputs = trace.inputs[told] if told >= 0 else None
        letter = letters[name] if inputs is None else _by_row(letters[name], inputs)
        if arranges[name] and text:
            continue
        if letter and inputs is not None:
            if text and rows.track[places[0]] == track and _belongs(letter, inputs, size):
                places.append(place)
                text += letter
                continue
            yield from _matches(text, places, size)
            places, text, size = [], "", _whole(inputs)
            if math.prod(size) >= _LEAST_NUMBERS and _belongs(letter, inputs, size):
                places, text = [place], letter
            continue
        yield from _matches(text, places, size)
        places, text = [], ""
    yield from _matches(text, places, size)


def _by_row(letter: str, inputs: Inputs) -> str:
    """The letter of what has one number for each row as its second operand, or, of a product, as either."""
    if letter not in _BY_ROW or len(inputs.sizes) < 2:
        return letter
    first, second = inputs.sizes[:2]
    if letter == "*" and math.prod(first) < math.prod(second):
        first, second = second, first
    of_rows = len(first) > 1 and second in ((*first[:-1], 1), first[:-1]) and first[-1] > 1
    return _BY_ROW[letter] if of_rows else letter


def _whole(inputs: Inputs) -> Sizes:
    return max(inputs.sizes[:2], key=math.prod, default=())


def _belongs(letter: str, inputs: Inputs, size: Sizes) -> bool:
    """Whether it is given the numbers of ``size``, one for each of their rows, or a weight of one for each column."""
    rows = size[:-1]
    fits = {size, rows, (*rows, 1), size[-1:], ()}
    if any(one not in fits for one in inputs.sizes[:2]):
        return False
    if letter not in _ALONG:
        return True
    if letter == "v" and "".join(inputs.numbers[2:3]) not in _OF_ALL:
        return False
    along = "".join(inputs.numbers[1:2])
    return inputs.sizes[0] == size and along in ("-1", "[-1]", str(len(size) - 1), f"[{len(size) - 1}]")


def _matches(text: str, places: list[int], size: Sizes) -> Iterator[tuple[Function, list[int], Sizes]]:
    """The functions that letters spell, each place in one of them."""
    for function in FUNCTIONS:
        taken = [match.span() for match in function.letters.finditer(text)]
        for begin, end in taken:
            yield function, places[begin:end], size
        text = function.letters.sub(lambda match: " " * len(match[0]), text) if taken else text
