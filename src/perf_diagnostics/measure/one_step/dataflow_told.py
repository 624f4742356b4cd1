"""What the operators of one step show that need not have been done, as facts tell it.

Each of the lists has one entry a line of the user's own: ``file``, ``line``, ``function`` and ``text``, how many
``operators`` of forward it is about, and the seconds that would not be needed, ``seconds_forward`` and
``seconds_backward``.

``computed_again``: what an earlier operator of the step had given already. ``first`` is the line at which it was
computed first, and the entry's own the one at which it was computed again; they are the same where a line is passed
several times. ``inside``, where there is one, is the innermost line with most of it.
``constants_made``: what is made of nothing but numbers in the code.
``dense_products``: parameters multiplied with each other before the batch is, where the other order takes fewer
operations: ``rows``, ``inner`` and ``columns`` of the first such product, ``batch_rows``, how many ``uses`` there are,
and ``seconds_instead``, what the other order takes at the speed of the batch's products. Half of what backward takes
for the batch's product counts where the gradient of a frozen weight is asked for by the first order alone.
``never_used``: what came to nothing: no operator read it that was used itself, nor did autograd.
``beside_the_loss``: what was made of what the loss is made of, and is used, but by nothing that trains.
``repeated_calls``: small operators that a loop in Python calls, ``passes`` times for each backward, and whether each
pass needs what the one before made (``recurs``), or all have parameters of their own and need nothing of each other
(``layers``). Their seconds are those of the calls of all passes but one,
``seconds_more`` what they take beside that.

``python_seconds_forward`` is what Python may have taken to make the numbers of tensors, beside all operators.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from perf_diagnostics.measure.code.code_places import CodePlaces
from perf_diagnostics.measure.one_step.beside_the_loss import beside_the_loss
from perf_diagnostics.measure.one_step.dataflow_columns import Columns, Line
from perf_diagnostics.measure.one_step.dataflow_storages import Held, Origin
from perf_diagnostics.measure.one_step.dense_products import DenseProduct
from perf_diagnostics.measure.one_step.operator_lines import as_told
from perf_diagnostics.measure.one_step.repeated_calls import Loop, repeated_calls
from perf_diagnostics.records import Json

SIGNALS = (
    *("beside_the_loss", "computed_again", "constants_made", "dense_products", "never_used"),
    *("python_seconds_forward", "repeated_calls"),
)

#: So many lines are told at most, those with the most seconds, and none with less of all than this part.
_MOST_TOLD, _LEAST_PART = 8, 0.005

#: Products of few rows run at a lower speed than those of many.
_SLOWER = 2.0

#: What does not stay as it is from one call to the next.
_CHANGING = Origin.UNKNOWN | Origin.RANDOM

#: Where others take more than this part of what is theirs on a line, the line does not say which is meant.
_MUCH = 0.25

StackTable = Sequence[tuple[tuple[Line, ...], bool]]


class Site:
    """One entry in the making: the rows of the operators that it is about."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.forward = self.backward = 0.0
        #: Operators of ``torch.autograd.grad``, each pass of which is a row.
        self.in_passes = 0
        self.lines: dict[Line, float] = {}
        self.more: dict[str, Any] = {}

    def add(self, row: int, forward: float, backward: float, line: Line) -> None:
        self.rows.append(row)
        self.forward += forward
        self.backward += backward
        self.lines[line] = self.lines.get(line, 0.0) + forward + backward

    @property
    def seconds(self) -> float:
        return self.forward + self.backward

    @property
    def line(self) -> Line:
        """The one with most of its seconds."""
        return max(self.lines, key=lambda line: self.lines[line])


def told_of(
    columns: Columns, stacks: StackTable, products: Sequence[DenseProduct], memories: Sequence[Held]
) -> dict[str, Json]:
    """The lists by their names."""
    used = columns.used()
    told = Telling(sum(columns.seconds) + sum(columns.backward))
    idle = (row for row in range(len(columns)) if not (used[row] or columns.views[row] or columns.beside[row]))
    made = (row for row in constants(columns, stacks) if used[row])
    beside = [row for row in beside_the_loss(columns, memories) if used[row]]
    return {
        "python_seconds_forward": sum(columns.between),
        "beside_the_loss": told.sites(_sites(columns, stacks, beside, _function, derived=True, apart_from_others=True)),
        "computed_again": told.sites(_again(columns, stacks, used).values(), _first_lines(told)),
        "constants_made": told.sites(_sites(columns, stacks, made, _function)),
        "dense_products": told.sites(_dense(columns, stacks, products).values(), lambda site: site.more),
        "never_used": told.sites(_sites(columns, stacks, idle, lambda line: line, derived=True)),
        "repeated_calls": told.loops(repeated_calls(columns, stacks), columns),
    }


class Telling:
    """Gives entries their words; ``total`` are all seconds of operators."""

    def __init__(self, total: float) -> None:
        self._places = CodePlaces()
        self._total = total

    def sites(self, sites: Iterable[Site], more: Callable[[Site], dict[str, Json]] = lambda _: {}) -> list[Json]:
        most = sorted(sites, key=lambda site: -site.seconds)[:_MOST_TOLD]
        return [
            {
                **self.place(site.more.get("line") or site.line),
                "operators": len(site.rows) + site.in_passes,
                "seconds_forward": site.forward,
                "seconds_backward": site.backward,
                **more(site),
            }
            for site in most
            if site.seconds > _LEAST_PART * self._total
        ]

    def loops(self, loops: Iterable[Loop], columns: Columns) -> list[Json]:
        most = sorted(loops, key=lambda loop: -(loop.forward + loop.backward))[:_MOST_TOLD]
        return [
            {
                **self.place(loop.line),
                "operators": loop.operators,
                "seconds_forward": loop.forward * left_out,
                "seconds_backward": loop.backward * left_out,
                "seconds_more": loop.rest,
                "passes": loop.passes,
                "together": together,
                "recurs": together == 1,
                "layers": loop.layers,
            }
            for loop in most
            if loop.forward + loop.backward > _LEAST_PART * self._total
            for together in [loop.together(columns)]
            for left_out in [loop.left_out(together)]
        ]

    def place(self, line: Line) -> dict[str, Json]:
        return as_told(self._places.place(*line))


def _sites(
    columns: Columns,
    stacks: StackTable,
    rows: Iterable[int],
    key: Callable[[Line], Any],
    *,
    derived: bool = False,
    apart_from_others: bool = False,
) -> Iterable[Site]:
    """These rows, brought together where the ``key`` of their innermost line is the same.

    Args:
        columns: the operators.
        stacks: the lines that led to them.
        rows: those that are told.
        key: what is the same of lines that are told together.
        derived: what a pass of ``torch.autograd.grad`` took is its own, and not that of the rows it went back through.
        apart_from_others: a line that others run too, such as a model's, is told by the call that is theirs alone.
    """
    sites: dict[Any, Site] = {}
    rows = [*rows]
    line_of = _lines_apart(columns, stacks, rows) if apart_from_others else _innermost
    for row in rows:
        lines, _ = stacks[columns.stack[row]]
        if lines:
            lines = (line_of(lines),)
            site = sites.setdefault(key(lines[-1]), Site())
            if not derived:
                site.add(row, columns.seconds[row], columns.backward[row], lines[-1])
            elif row in columns.passes:
                took = columns.passes[row]
                site.add(row, took.seconds[False], took.seconds[True], lines[-1])
                site.in_passes += took.operators - 1
            else:
                site.add(row, columns.seconds[row], 0.0, lines[-1])
    return sites.values()


def _innermost(lines: Sequence[Line]) -> Line:
    return lines[-1]


def _lines_apart(columns: Columns, stacks: StackTable, rows: Sequence[int]) -> Callable[[Sequence[Line]], Line]:
    """Of a way that led to some of these rows the innermost line; or, where others have much of its time, the first
    call on the way below which most of the time is theirs.
    """
    theirs = {*rows}
    lines: dict[Line, list[float]] = {}
    ways: dict[tuple[Line, ...], list[float]] = {}
    for row in range(len(columns)):
        way, _ = stacks[columns.stack[row]]
        if columns.views[row] or not way:
            continue
        lines.setdefault(way[-1], [0.0, 0.0])[row in theirs] += columns.seconds[row]
        for depth in range(1, len(way) + 1):
            ways.setdefault(way[:depth], [0.0, 0.0])[row in theirs] += columns.seconds[row]

    def line_of(way: Sequence[Line]) -> Line:
        others, own = lines[way[-1]]
        if others <= _MUCH * own:
            return way[-1]
        calls = (tuple(way[:depth]) for depth in range(1, len(way) + 1))
        return next((one[-1] for one in calls if ways[one][True] > ways[one][False]), way[-1])

    return line_of


def _function(line: Line) -> Any:
    """A table is often made over several lines: they are one entry, at the line with most of its time."""
    return line[0]


def constants(columns: Columns, stacks: StackTable) -> Iterator[int]:
    """Of the user's own: what a library makes anew cannot be kept by who calls it; nor can what is then filled.

    Nor what a call of torch makes for itself, as ``torch.sparse.mm`` does the zeros that it adds to.
    """
    inside = array("b", bytes(len(columns)))
    for row in range(len(columns) - 1, -1, -1):
        if inside[row] or columns.origin[row] != Origin.CONSTANT:
            for read in columns.read_by(row):
                if columns.origin[read] == Origin.CONSTANT and columns.of_one_call(read, row):
                    inside[read] = 1
    return (
        row
        for row in range(len(columns))
        if columns.origin[row] == Origin.CONSTANT
        and not (columns.filled[row] or columns.beside[row] or inside[row])
        and stacks[columns.stack[row]][1]
    )


def _again(columns: Columns, stacks: StackTable, used: Sequence[int]) -> dict[Any, Site]:
    """By the line at which something was computed first, what was computed again."""
    sites: dict[Any, Site] = {}
    ways: dict[Any, set[tuple[Line, ...]]] = {}
    for row in range(len(columns)):
        before = columns.again_of[row]
        if before < 0 or not used[row] or columns.origin[row] == Origin.CONSTANT:
            continue
        if columns.beside[row] or columns.beside[before]:
            continue
        if columns.with_node[row] and 0 <= columns.freed_at[before] <= row:
            continue  # its graph was gone through by a backward, and let go
        lines, direct = stacks[columns.stack[row]]
        earlier, _ = stacks[columns.stack[before]]
        depth = apart(earlier, lines)
        if not lines or not earlier or (earlier == lines and not direct):
            continue
        site = sites.setdefault(earlier[depth], Site())
        both = columns.with_node[row] and columns.with_node[before]
        # The same was timed twice: the shorter time is nearer to what it usually takes.
        forward = min(columns.seconds[row], columns.seconds[before])
        backward = min(columns.backward[row], columns.backward[before]) if both else 0.0
        site.add(row, forward, backward, lines[depth])
        inside: dict[Line, float] = site.more.setdefault("inside", {})
        inside[lines[-1]] = inside.get(lines[-1], 0.0) + columns.seconds[row]
        site.more["first"] = earlier[depth]
        changes = bool(columns.origin[row] & _CHANGING)
        of_parameters: list[float] = site.more.setdefault("of_parameters", [0.0, 0.0])
        of_parameters[changes] += columns.seconds[row]
        ways.setdefault(earlier[depth], set()).add(lines[: depth + 1])
    return {key: site for key, site in sites.items() if not _draws_in(ways[key], columns, stacks)}


def apart(earlier: Sequence[Line], later: Sequence[Line]) -> int:
    """At which call, from the loop inwards, two ways part; the innermost one where they do not."""
    same = min(len(earlier), len(later)) - 1
    return next((at for at in range(same) if earlier[at] != later[at]), max(0, same))


def _draws_in(ways: set[tuple[Line, ...]], columns: Columns, stacks: StackTable) -> bool:
    """Whether random numbers are drawn below one of these calls, so that it is computed again on purpose."""
    return any(
        columns.draws[row] and columns.origin[row] & Origin.RANDOM and stacks[columns.stack[row]][0][: len(way)] == way
        for row in range(len(columns))
        if columns.draws[row]
        for way in ways
    )


def _first_lines(told: Telling) -> Callable[[Site], dict[str, Json]]:
    def more(site: Site) -> dict[str, Json]:
        inside: Mapping[Line, float] = site.more["inside"]
        innermost = max(inside, key=lambda line: inside[line])
        return {
            "first": told.place(site.more["first"]),
            # A constant that is kept as a buffer, beside them, is not known to be one.
            "of_parameters": site.more["of_parameters"][False] >= site.more["of_parameters"][True],
            **({"inside": told.place(innermost)} if innermost != site.line else {}),
        }

    return more


def _dense(columns: Columns, stacks: StackTable, products: Sequence[DenseProduct]) -> dict[Line, Site]:
    """By the line that multiplies parameters, where the other order surely takes less."""
    sites: dict[Line, Site] = {}
    for one in products:
        lines, direct = stacks[columns.stack[one.rows_made[0]]]
        if one.broken or not one.uses or not lines or not direct or any(not held.weak.expired() for held in one.held):
            continue
        speed = _speed(columns, one)
        uses = [row for row, _, multiplied in one.uses if multiplied and not one.beside_another]
        rows = [*one.rows_made, *uses]
        with_gradient = 3 if any(columns.backward[row] for row in rows) else 1
        instead = with_gradient * one.instead * _SLOWER / speed if speed else float("inf")
        forward, backward = sum(columns.seconds[row] for row in rows), sum(columns.backward[row] for row in rows)
        operations = with_gradient * (one.operations + sum(one.multiplied(row) for row in uses))
        # Of two products in backward one is for the gradient of the sum, which a frozen weight does not need.
        beside = 0.0
        if one.beside_another and not one.beside_trained and with_gradient > 1:
            beside = sum(columns.backward[row] for row in {row for row, *_ in one.uses}) / 2
            operations += sum(one.multiplied(row) for row in {row for row, *_ in one.uses})
        if with_gradient * one.instead >= operations or instead >= forward + backward + beside:
            continue
        site = sites.setdefault(lines[-1], Site())
        for row in rows:
            site.add(row, columns.seconds[row], columns.backward[row], lines[-1])
        more = site.more
        more.setdefault("rows", one.rows)
        more.setdefault("inner", one.inner)
        more.setdefault("columns", one.columns)
        more.setdefault("batch_rows", one.uses[0][1])
        more["uses"] = more.get("uses", 0) + len(one.uses)
        more["seconds_instead"] = more.get("seconds_instead", 0.0) + instead
        site.backward += beside
    return sites


def _speed(columns: Columns, one: DenseProduct) -> float:
    """Operations a second of the batch's products with it; of its own where the batch only picks rows."""
    rows = {row for row, _, multiplied in one.uses if multiplied}
    seconds = sum(columns.seconds[row] for row in rows)
    if seconds:
        return sum(one.multiplied(row) for row in rows) / seconds
    own = columns.seconds[one.rows_made[0]]
    return one.operations / own if own else 0.0
