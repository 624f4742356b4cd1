"""What to do about steps that take longer and longer: by the line that grows, its phase, and what may carry a graph."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from perf_diagnostics.diagnose.code_share import CodeShare
from perf_diagnostics.diagnose.facts.facts import TrialFacts
from perf_diagnostics.diagnose.finding import Remedy
from perf_diagnostics.diagnose.rule_parts.growing_lines import GrowingLine
from perf_diagnostics.parsed_python import parsed
from perf_diagnostics.records import CodePlace, Phase

_FILE = Remedy(
    "Write only what is new: open the file to append (mode 'a') and add one line a step, or write all of it once, or "
    "every so many steps."
)
_SUMS = Remedy(
    "Carry what is needed from step to step (running sums and counts, a best so far), or keep the last few values only "
    "(collections.deque(maxlen=100)), instead of going through all of them anew."
)
_SET = Remedy("Look it up in a set or a dict: that takes as long however many there are; a list is gone through.")
_BUFFER = Remedy(
    "Write into memory made large enough once (a ring buffer: buffer[step % size] = x) and choose rows from it by "
    "index, instead of joining all that was kept anew in each step."
)
_BOUND = Remedy(
    "Look for what gets longer by a little in each step and is gone through in the next: keep the last few only "
    "(collections.deque(maxlen=…), a ring buffer), or running sums of it."
)
_GRAPH = Remedy(
    "Look for what is carried from step to step with its graph: add loss.item() or loss.detach() to sums, and detach() "
    "states and averages before the next step, or each backward goes through all steps before."
)
_HOOKS = Remedy(
    "Look for what is added in each step and never taken away: hooks registered inside of the loop, wrappers around "
    "the model, a state or an input that gets longer."
)
_WORK = Remedy(
    "Forward takes longer as well, so it is the work that grows: inputs, states or sequences that get longer, hooks or "
    "layers that are added. Where that is meant (a curriculum), this is its price."
)
_READING = Remedy(
    "Look for what the data set does by the number of the sample, or over all it has read so far: a file read from its "
    "beginning, a list gone through. Read by an offset or an index that is made once."
)
_OF_PHASES = {
    Phase.BACKWARD: _GRAPH,
    Phase.FORWARD: _HOOKS,
    Phase.DATA_WAIT: _READING,
}

#: What a line that grows does, by its text or by the library's function that it calls, and what helps.
_BY_TEXT = (
    (re.compile(r"\bdumps?\(|\.write(lines)?\(|\bto_(csv|json|parquet)\(|savefig\(|\bsave\w*\("), _FILE),
    (re.compile(r"^(if|elif|while|assert)\b.*\bin\b|\.index\(|\.count\("), _SET),
    (re.compile(r"\b(np|numpy|torch|pd|pandas)\.(cat|stack|[vh]stack|concat|concatenate|append)\("), _BUFFER),
    (re.compile(r"\b(sum|min|max|mean|median|std|sorted|unique|quantile|percentile|average)\("), _SUMS),
)


def against_growth(growing: Sequence[tuple[Phase, Sequence[GrowingLine]]], *, with_forward: bool) -> tuple[Remedy, ...]:
    """What to try against phases that grow: by the line where most of it was seen, where that tells, or the phase.

    ``with_forward``: of backward, whether forward grows as well (:func:`grows_with_forward`).
    """
    found: list[Remedy] = []
    for phase, lines in growing:
        remedy = _OF_PHASES.get(phase) or next((one for line in lines[:1] if (one := _by_text(line.line))), _BOUND)
        if phase is Phase.BACKWARD and with_forward:
            remedy = _WORK
        found += [] if remedy in found else [remedy]
    return tuple(found)


def _by_text(line: CodeShare) -> Remedy | None:
    places = [line.place, *(one.place for one in line.below)]
    return next((remedy for place in places for found, remedy in _BY_TEXT if found.search(place.text)), None)


def carries_graph(facts: TrialFacts) -> CodePlace | None:
    """The line, of those that were seen, that adds to what it was before and takes no graph off it; None without one.

    ``total = total + loss`` and ``total += loss``, of a name that is no counter: by its text alone.
    """
    code = facts.result.code
    seen = () if code is None else tuple(sorted(code.paths, key=lambda path: -code.seconds(path)))
    for path in seen:
        if code is not None and path.places and _adds_to_itself(code.places[path.places[-1]].text):
            return code.places[path.places[-1]]
    return None


def _adds_to_itself(text: str) -> bool:
    try:
        (statement,) = parsed(text).body
    except (SyntaxError, ValueError):
        return False
    if re.search(r"\.(item|detach|tolist|numpy|data)\b|\bfloat\(|\blen\(", text):
        return False
    if isinstance(statement, ast.AugAssign):
        return isinstance(statement.op, ast.Add) and not isinstance(statement.value, ast.Constant)
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return False
    target = ast.unparse(statement.targets[0])
    return isinstance(statement.value, ast.BinOp) and any(
        isinstance(node, ast.Name | ast.Attribute) and ast.unparse(node) == target for node in ast.walk(statement.value)
    )
