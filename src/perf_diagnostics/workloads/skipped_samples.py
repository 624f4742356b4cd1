"""Tells a stream of which each loader worker makes all samples, and keeps its own: by its source alone, nothing is run.

``for n, row in enumerate(map(parse, file)): if n % workers != worker: continue`` parses all rows in each worker; asking
for the number before the row is made leaves each worker its part of the work.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torch.utils.data import DataLoader

from perf_diagnostics.parsed_python import parsed
from perf_diagnostics.records import Json
from perf_diagnostics.workloads.streams import splits_stream, streams_of


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: Functions that take next to nothing a sample, or are what a stream has to read in any case.
_CHEAP = _names(
    "enumerate zip range len next iter int str float open islice chain tuple list reversed min max divmod isinstance "
    "strip rstrip lstrip decode readline read append get items seek tell get_worker_info"
)

#: A longer source is not looked through.
_MOST_LETTERS = 200_000


def skipped_samples(loader: DataLoader[Any]) -> dict[str, Json]:
    """Where samples are made that another worker delivers: ``file``, ``line``, ``function`` and ``text`` of the line
    that leaves them out, and which functions ``makes`` them; empty where none is seen, or there is one worker at most.
    """
    if loader.num_workers < 2 or not splits_stream(loader):
        return {}
    return next((found for stream in streams_of(loader.dataset) if (found := _skips(type(stream)))), {})


def _skips(kind: type) -> dict[str, Json]:
    try:
        lines, first = inspect.getsourcelines(kind)
        file = inspect.getsourcefile(kind) or ""
        source = textwrap.dedent("".join(lines))
        tree = parsed(source) if len(source) <= _MOST_LETTERS else None
    except (OSError, TypeError, SyntaxError, ValueError, RecursionError):  # typed at a prompt, made by code
        return {}
    (made,) = tree.body if tree is not None and len(tree.body) == 1 else (None,)
    if not isinstance(made, ast.ClassDef):
        return {}
    methods = {one.name: one for one in made.body if isinstance(one, ast.FunctionDef)}
    for name, method in methods.items():
        for loop in ast.walk(method):
            if not isinstance(loop, ast.For):
                continue
            at, made_by = _left_out(loop, methods)
            if at is not None and made_by and not _has_another_way(method, loop, methods):
                return {
                    "file": file,
                    "line": first + at.lineno - 1,
                    "function": f"{kind.__qualname__}.{name}",
                    "text": source.splitlines()[at.lineno - 1].strip(),
                    "makes": [*dict.fromkeys(made_by)],
                }
    return {}


def _left_out(loop: ast.For, methods: Mapping[str, ast.FunctionDef]) -> tuple[ast.If | None, list[str]]:
    """The line of a loop that goes by the remainder of a number, and what was called for a sample before it."""
    before: list[ast.AST] = [loop.iter]
    for one in loop.body:
        if isinstance(one, ast.If) and _by_remainder(one.test) and _leaves_out(one):
            return one, [*_called(before, methods, {*methods})]
        before.append(one)
    return None, []


def _has_another_way(method: ast.FunctionDef, loop: ast.For, methods: Mapping[str, ast.FunctionDef]) -> bool:
    """Whether a setting decides if samples come out of this loop, or by another way that leaves none out.

    Whether there are workers at all (``info is None``) is no such setting: there are.
    """
    for branch in ast.walk(method):
        if not isinstance(branch, ast.If) or _asks_for_none(branch.test):
            continue
        if any(_holds(one, loop) for one in branch.body):
            others = branch.orelse
        elif any(_holds(one, loop) for one in branch.orelse) or (
            branch.lineno < loop.lineno and isinstance(branch.body[-1], ast.Return)
        ):
            others = branch.body
        else:
            continue
        inside = [one for other in others for one in ast.walk(other)]
        skips = any(isinstance(one, ast.For) and _left_out(one, methods)[0] is not None for one in inside)
        if not skips and any(isinstance(one, ast.Yield | ast.YieldFrom) for one in inside):
            return True
    return False


def _asks_for_none(test: ast.expr) -> bool:
    """``info is None``, ``not worker_info``."""
    asked = test.operand if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) else test
    named = isinstance(asked, ast.Name) and ("info" in asked.id or "worker" in asked.id)
    return named or any(isinstance(one, ast.Constant) and one.value is None for one in ast.walk(test))


def _by_remainder(test: ast.expr) -> bool:
    """``n % workers != worker``: neither is a number that is written there, as where every tenth sample is kept."""
    if not isinstance(test, ast.Compare):
        return False
    sides = [test.left, *test.comparators]
    parts = [one for one in sides if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Mod)]
    written = [*sides, *(one.right for one in parts)]
    return bool(parts) and not any(isinstance(one, ast.Constant) for one in written)


def _leaves_out(branch: ast.If) -> bool:
    """Whether it decides which samples are delivered: the others are passed over, or these delivered in it."""
    return isinstance(branch.body[-1], ast.Continue) or any(
        isinstance(one, ast.Yield | ast.YieldFrom) for one in ast.walk(branch)
    )


def _called(nodes: Iterable[ast.AST], methods: Mapping[str, ast.FunctionDef], left: set[str]) -> Iterator[str]:
    """The functions that are called there for each sample, in generators of the same class as well; but cheap ones."""
    for node in nodes:
        for one in ast.walk(node):
            if not isinstance(one, ast.Call):
                continue
            name = one.func.attr if isinstance(one.func, ast.Attribute) else getattr(one.func, "id", "")
            if name == "map" and one.args:
                name = ast.unparse(one.args[0])
            if name in left:
                left.discard(name)
                yield from _called(_of_each_sample(methods[name]), methods, left)
            elif name and name not in _CHEAP and name not in methods:
                yield name


def _of_each_sample(method: ast.FunctionDef) -> Iterator[ast.AST]:
    """What a generator does for each of its samples: the bodies of its innermost loops; all of a function without."""
    loops = [one for one in ast.walk(method) if isinstance(one, ast.For | ast.While)]
    innermost = [one for one in loops if not any(other is not one and _holds(one, other) for other in loops)]
    if not innermost:
        yield from method.body
    for one in innermost:
        yield from one.body
        if isinstance(one, ast.For):
            yield one.iter


def _holds(outer: ast.AST, inner: ast.AST) -> bool:
    return any(one is inner for one in ast.walk(outer))
