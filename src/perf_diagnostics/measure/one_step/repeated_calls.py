"""The same small operators called again and again in one step by a loop in Python, over samples, steps or pairs.

A loop is known by its operators: those of one instruction on one way through the user's functions that come many times
in a step. Layers of a model come many times, too, and differ in their parameters: then nothing on their way that comes
as often is a loop, nor is one that comes once a backward (accumulated batches); but layers of one shape that need
nothing of each other (heads, members of an ensemble) are. What is made of nothing but numbers, or was computed before,
is told as that.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from types import CodeType

from perf_diagnostics.measure.one_step.dataflow_columns import Columns, Line
from perf_diagnostics.measure.one_step.dataflow_storages import Origin

#: What comes so many times in a step is worth one call for all. A judgement: heads and scales come less often.
LEAST_PASSES = 16

#: Of what comes *n* times with *n* / 4 different parameters or more the passes are layers.
_LAYERS = 4

#: Layers and what stands between them may differ by the first and the last.
_ABOUT = 2

#: So many layers beside each other are worth one for all; of two (twin critics) or three one call saves little.
_BESIDE = 4

#: So many of those beside each other have to be of one size.
_ALIKE = 0.9

#: A loop with so much of its time in passes that need the one before is a recurrence; adding up is less.
_RECURS = 0.25

#: So many of a loop's instructions, those with the most time, tell whether each pass needs the one before.
_ASKED = 6

StackTable = Sequence[tuple[tuple[Line, ...], bool]]


@dataclass
class Group:
    """The operators of one instruction: ``passes`` is how often it comes for each backward of the step.

    ``beside``: so many of these need nothing of each other, 0 where their sizes differ.
    """

    rows: list[int]
    lines: tuple[Line, ...]
    passes: float = 0.0
    parameters: int = 0
    beside: float = 0.0


@dataclass
class Loop:
    """What one function of the user's calls again and again.

    ``forward`` and ``backward`` are the seconds that calling takes of that, all passes but one, ``by_line`` by line;
    ``rest`` is what else the operators take, some of which may go as well. ``layers``: the passes differ in their
    parameters, and need nothing of each other.
    """

    passes: int = 0
    operators: int = 0
    forward: float = 0.0
    backward: float = 0.0
    rest: float = 0.0
    by_line: dict[Line, float] = field(default_factory=dict)
    groups: list[tuple[float, Group]] = field(default_factory=list)
    layers: bool = False

    @property
    def line(self) -> Line:
        """The one with most of it."""
        return max(self.by_line, key=lambda line: self.by_line[line])

    def together(self, columns: Columns) -> float:
        """So many passes need nothing of each other, in the mean, before one needs them: all of a plain loop, 1 where a
        considerable part of it needs, in each pass, what the pass before made; views make nothing.
        """
        if self.layers:
            return self.passes
        making = (one for one in self.groups if not all(columns.views[row] for row in one[1].rows))
        most = sorted(making, key=lambda one: -one[0])[:_ASKED]
        needing = [(seconds, group) for seconds, group in most if _needs_an_earlier_one(columns, group)]
        needed = sum(seconds for seconds, _ in needing)
        if needed <= _RECURS * sum(seconds for seconds, _ in most):
            return self.passes
        # What puts a round together comes once in each.
        beside = [(seconds, _of_one_size(columns, group)) for seconds, group in needing]
        in_rounds = [(seconds, count) for seconds, count in beside if count >= _BESIDE]
        if sum(seconds for seconds, _ in in_rounds) <= needed / 2:
            return 1.0
        return min(count for _, count in in_rounds)

    def left_out(self, together: float) -> float:
        """What is left of its seconds where each call does so many passes, and not all of them."""
        return (1 - 1 / together) / (1 - 1 / self.passes) if 1 < together < self.passes else 1.0


def repeated_calls(columns: Columns, stacks: StackTable) -> Iterable[Loop]:
    """The loops over small operators of a step that is over, by function."""
    groups = _groups(columns, stacks)
    layers: defaultdict[CodeType, set[int]] = defaultdict(set)
    for group in groups:
        if group.passes >= LEAST_PASSES and group.parameters * _LAYERS >= group.passes:
            for code, _ in group.lines:
                layers[code].add(round(group.passes))
    call = _of_a_call(columns)
    loops: dict[CodeType, Loop] = {}
    of_layers = []
    for group in groups:
        if group.passes >= LEAST_PASSES and _is_of_layers(group, layers):
            of_layers.append(group)
        elif group.passes >= LEAST_PASSES:
            _add(loops.setdefault(group.lines[-1][0], Loop()), group, columns, call, group.passes)
    for group in _beside_each_other(of_layers, columns):
        loop = loops.setdefault(group.lines[-1][0], Loop())
        loop.layers = True
        _add(loop, group, columns, call, group.beside)
    return loops.values()


def _beside_each_other(groups: Sequence[Group], columns: Columns) -> list[Group]:
    """Those of layers of one size that need nothing of each other, and what stands between these."""
    for group in groups:
        group.beside = _of_one_size(columns, group) / max(1, len(columns.backward_begins))
    found = [one for one in groups if one.beside >= _BESIDE]
    # One model that is called several times has the same parameters each time: that is for one call, not one layer.
    functions = {one.lines[-1][0] for one in found if one.parameters >= one.passes}
    return [one for one in found if functions & {code for code, _ in one.lines}]


def _groups(columns: Columns, stacks: StackTable) -> list[Group]:
    rows: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    for row in range(len(columns)):
        elsewhere = columns.beside[row] or columns.again_of[row] >= 0 or columns.origin[row] == Origin.CONSTANT
        if not elsewhere and columns.instruction[row] != -1:
            rows[columns.stack[row], columns.instruction[row]].append(row)
    found = [Group(group, stacks[stack][0]) for (stack, _), group in rows.items() if len(group) >= LEAST_PASSES]
    backwards = max(1, len(columns.backward_begins))
    for group in found:
        often = Counter(columns.names[row] for row in group.rows).values()
        # Of one call for a sequence some operators come once, and others for each of its steps.
        in_a_sequence = columns.instruction[group.rows[0]] < -1
        group.passes = (min(often) if in_a_sequence else median(often)) / backwards
        read = (held for row in group.rows for held in columns.from_before.get(row, ()))
        group.parameters = len({id(held) for held in read if held.origin & Origin.PARAMETER})
    return found


def _is_of_layers(group: Group, layers: Mapping[CodeType, set[int]]) -> bool:
    """Whether it comes as often as layers do on its way, or some times for each."""
    if group.parameters * _LAYERS >= group.passes:
        return True
    counts = {count for code, _ in group.lines for count in layers.get(code, ())}
    return any(abs(group.passes - count * max(1, round(group.passes / count))) <= _ABOUT for count in counts)


def _of_a_call(columns: Columns) -> float:
    """What calling an operator takes, in s, by those that only make a view."""
    views = [columns.seconds[row] for row in range(len(columns)) if columns.views[row] and columns.seconds[row] > 0]
    return median(views) if views else 0.0


def _of_one_size(columns: Columns, group: Group) -> float:
    """How many of one operator need nothing of each other, in the mean; 0 where they work on unlike many numbers."""
    mine = _main_rows(columns, group)
    depths: dict[int, int] = {}
    sizes: defaultdict[int, Counter[int]] = defaultdict(Counter)
    for row in range(min(mine), max(mine) + 1):
        depth = max((depths.get(read, 0) for read in columns.read_by(row)), default=0)
        if row in mine:
            depth += 1
            sizes[depth][columns.numbers[row]] += 1
        depths[row] = depth
    alike = sum(max(counted.values()) for counted in sizes.values())
    return len(mine) / len(sizes) if alike >= _ALIKE * len(mine) else 0.0


def _main_rows(columns: Columns, group: Group) -> set[int]:
    """The rows of the operator that comes most often; views make nothing."""
    names = Counter(columns.names[row] for row in group.rows if not columns.views[row])
    name = max(names, key=lambda one: names[one], default=None)
    return {row for row in group.rows if name is None or columns.names[row] == name}


def _add(loop: Loop, group: Group, columns: Columns, call: float, passes: float) -> None:
    forward = sum(_forward_s(columns, row, call) for row in group.rows)
    backward = sum(columns.backward[row] for row in group.rows if columns.tiny[row] or columns.picks_part[row])
    without_one = 1 - 1 / passes
    loop.passes = max(loop.passes, round(passes))
    loop.operators += len(group.rows)
    loop.forward += without_one * forward
    loop.backward += without_one * backward
    seconds = without_one * (forward + backward)
    loop.rest += sum(columns.seconds[row] + columns.backward[row] for row in group.rows) - seconds
    loop.by_line[group.lines[-1]] = loop.by_line.get(group.lines[-1], 0.0) + seconds
    loop.groups.append((seconds, group))


def _forward_s(columns: Columns, row: int, call: float) -> float:
    return columns.seconds[row] if columns.tiny[row] else min(call, columns.seconds[row])


def _needs_an_earlier_one(columns: Columns, group: Group) -> bool:
    """Whether most passes read, directly or by others, what the same instruction gave in an earlier one."""
    mine = _main_rows(columns, group)
    made_of: set[int] = set()
    needing = 0
    for row in range(min(mine), max(mine) + 1):
        needs = any(read in made_of or read in mine for read in columns.read_by(row))
        if row in mine:
            needing += needs
        elif needs:
            made_of.add(row)
    return needing > len(mine) / 2
