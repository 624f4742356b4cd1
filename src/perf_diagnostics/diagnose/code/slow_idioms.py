"""Ways of writing a line that are known to be slow: why, and what to write instead; told beside a line that takes time.

The text of the line is read as Python, what is torn off from a longer statement as far as it goes. What a name holds is
told only where its file makes it such a container and nothing else (``CodePlace.kinds``); otherwise an advice that
depends on it says so, or is not given. Where the sampler saw the line spend most of its time in a library's function,
an advice about something else is not given.

All times are CPU time on one core of a cloud machine, the best of five rounds: Python 3.11, numpy 2.4, pandas 3.0,
torch 2.13, 23 Nov 2026. They are told as ratios and orders of growth, which hold elsewhere, too.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from perf_diagnostics.diagnose.code_share import CodeShare, LineShare
from perf_diagnostics.parsed_python import parsed
from perf_diagnostics.records import CodePlace, Phase

#: A line that takes less of a step is told without: mending it would not pay. A judgement.
LEAST_SHARE = 0.05


#: The name of the idiom that works through tensors or arrays number by number.
NUMBER_BY_NUMBER = "number-by-number"

#: Rows of which the different ones are asked for: 20,000 of four numbers took 70 ms by torch.unique(dim=0), 26 by
#: numpy.unique(axis=0), and 2 by numbers that stand for them (two threads). Also what a trace is told.
ONE_NUMBER_A_ROW = (
    "make one number of each row first, key = (x[:, 0] * n + x[:, 1]) * n + x[:, 2] with n above all of them, and ask "
    "for the unique ones of these"
)

#: The name of the idiom that copies all of what it keeps to put in what is new.
WINDOW_BY_COPIES = "window-by-copies"


@dataclass(frozen=True)
class SlowIdiom:
    """Why a line is slow, and what to write instead; both begin in lower case and have no full stop."""

    name: str
    why: str
    instead: str
    place: CodePlace

    @property
    def says(self) -> str:
        """``an index into a deque walks to it …: keep the items in a list``"""
        return f"{self.why}: {self.instead}"


@dataclass(frozen=True)
class _Node:
    """A piece of a line: its syntax, and what containers its names are."""

    tree: ast.AST
    kinds: Mapping[str, str]

    def kind(self, of: ast.expr | None) -> str:
        """The container that an expression is, as far as its file tells; empty where it does not."""
        if isinstance(of, ast.List | ast.ListComp):
            return "list"
        if isinstance(of, ast.Attribute):
            return self.kinds.get(f".{of.attr}", "")
        return self.kinds.get(of.id, "") if isinstance(of, ast.Name) else ""


#: Looks at a piece of a line and tells whether it is so; the text that is told may name what it is about.
_Is = Callable[[_Node], str]


@dataclass(frozen=True)
class _Known:
    """An idiom: how it is recognised, and in what functions it may spend its time.

    ``found`` gives the name of what the line does it to, for ``{}`` in the texts, or empty where it is none. ``inside``
    matches the library's function that the sampler saw the line in; ``shown``: it is seen in every case, for it is
    written in Python, so that without it the line's time is spent on something else. ``of_models``: it is slow in a
    model's forward, too.
    """

    name: str
    found: _Is
    why: str
    instead: str
    inside: str = r"(?!)"
    shown: bool = False
    of_models: bool = True


def slow_idiom(line: CodeShare) -> SlowIdiom | None:
    """What is known to be slow about a line that takes a sizeable share of the step; None of others.

    Where a function's time is spread over several lines, or lies in functions that the line calls, each line that takes
    such a share is looked at, the one with the most first.
    """
    own = line.within or (LineShare(line.place, line.share, line.looks, line.called),)
    largest = sorted((*own, *line.below), key=lambda one: -one.share.value)
    in_model = line.phase in (Phase.FORWARD, Phase.BACKWARD)
    found = (idiom_of(one.place, one.called, in_model=in_model) for one in largest if one.share.value >= LEAST_SHARE)
    return next((idiom for idiom in found if idiom is not None), None)


@functools.lru_cache(maxsize=4096)
def idiom_of(place: CodePlace, called: str = "", *, in_model: bool = False) -> SlowIdiom | None:
    """The first idiom in a line's text that fits the library's function it spends most of its time in, if any.

    ``in_model``: the line was seen in a model's forward, whose layers may well join what grows from one to the next.
    """
    tree = _parsed(place.text)
    if tree is None:
        return None
    kinds = dict(place.kinds)
    for known in _KNOWN:
        if not _fits(known, called) or (in_model and not known.of_models):
            continue
        about = next((name for node in ast.walk(tree) if (name := known.found(_Node(node, kinds)))), "")
        if about:
            return SlowIdiom(known.name, known.why.format(about), known.instead.format(about), place)
    return None


def _fits(known: _Known, called: str) -> bool:
    return re.match(known.inside, called) is not None if called else not known.shown


def _parsed(text: str) -> ast.Module | None:
    """A line by itself: the head of a block gets a body, and of a torn statement brackets are closed or left out."""
    for attempt in _attempts(text.strip()):
        try:
            return parsed(attempt)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
    return None


_CLOSES = {"(": ")", "[": "]", "{": "}"}


def _attempts(text: str) -> Iterator[str]:
    whole = text.rstrip("\\").rstrip()
    for body in (whole, _closed(whole), _closed(whole.rstrip(",")), _closed(re.sub(r"^\w+\s*=(?!=)\s*", "", whole))):
        yield body
        yield f"{body} pass"
        yield f"if 1: pass\n{body} pass"  # elif, else
        yield f"({body})"  # the middle of a comprehension, or of a call's arguments
        yield f"[0 {body}]"  # its "for … in …"
        yield f"async def f():\n {body}"


def _closed(text: str) -> str:
    """With the brackets closed that it opens, and opened that it closes; a text in quotes counts as none."""
    opened: list[str] = []
    missing = ""
    for letter in re.sub(r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"", "''", text):
        if letter in _CLOSES:
            opened.append(letter)
        elif letter in _CLOSES.values():
            if opened:
                opened.pop()
            else:
                missing = {closing: opening for opening, closing in _CLOSES.items()}[letter] + missing
    return f"{missing}{text}{''.join(_CLOSES[letter] for letter in reversed(opened))}"


def _named(tree: ast.AST | None) -> str:
    """An expression as it is written, if it is a name or an attribute, else what it is a part of."""
    if isinstance(tree, ast.Name | ast.Attribute | ast.Subscript):
        return ast.unparse(tree)
    return ""


def _call(node: ast.AST, *names: str, of: tuple[str, ...] | None = None) -> ast.Call | None:
    """A call of one of these functions or methods; ``of``: of one of these modules."""
    if not isinstance(node, ast.Call):
        return None
    function = node.func
    if isinstance(function, ast.Attribute) and function.attr in names:
        return node if of is None or _named(function.value) in of else None
    return node if of is None and isinstance(function, ast.Name) and function.id in names else None


def _owner(call: ast.Call | None) -> ast.expr | None:
    """What a method is called of."""
    return call.func.value if call is not None and isinstance(call.func, ast.Attribute) else None


def _is_number(tree: ast.AST | None, *values: int) -> bool:
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub) and isinstance(tree.operand, ast.Constant):
        return isinstance(tree.operand.value, int) and -tree.operand.value in values
    return isinstance(tree, ast.Constant) and tree.value in values


def _argument(call: ast.Call, name: str) -> ast.expr | None:
    return next((one.value for one in call.keywords if one.arg == name), None)


def _none(tree: ast.expr | None) -> bool:
    """Whether an argument is left out, or None."""
    return tree is None or (isinstance(tree, ast.Constant) and tree.value is None)


def _false(tree: ast.expr | None) -> bool:
    return isinstance(tree, ast.Constant) and tree.value is False


_NUMPY, _TORCH, _PANDAS = ("np", "numpy"), ("torch",), ("pd", "pandas")
_MAKES_TENSORS = ("tensor", "as_tensor", "FloatTensor", "LongTensor")
_TENSORS = tuple(f"torch.{name}" for name in _MAKES_TENSORS)
_LINEAR = ("torch.linalg", "linalg", "np.linalg", "numpy.linalg", "scipy.linalg")
_DECOMPOSITIONS = ("svd", "svdvals", "eig", "eigh", "eigvals", "eigvalsh", "pinv", "matrix_exp", "matrix_rank", "cond")


#: Methods of a model that go through all of it; those of the second kind give it one by one.
_GATHER = ("state_dict",)
_GATHER_FROM = ("parameters", "named_parameters", "modules", "named_modules", "buffers", "named_buffers")


def _deque_index(node: _Node) -> str:
    tree = node.tree
    if not isinstance(tree, ast.Subscript) or node.kind(tree.value) != "deque" or _is_number(tree.slice, 0, -1):
        return ""
    return "" if isinstance(tree.slice, ast.Slice) else _named(tree.value)


def _deque_sample(node: _Node) -> str:
    call = _call(node.tree, "sample", "choice", "choices", "shuffle", of=("random",))
    return _named(call.args[0]) if call is not None and call.args and node.kind(call.args[0]) == "deque" else ""


def _pop_first(node: _Node) -> str:
    call = _call(node.tree, "pop")
    owner = _owner(call)
    first = call is not None and len(call.args) == 1 and _is_number(call.args[0], 0)
    return _named(owner) if first and node.kind(owner) == "list" else ""


def _insert_first(node: _Node) -> str:
    call = _call(node.tree, "insert")
    owner = _owner(call)
    first = call is not None and len(call.args) == 2 and _is_number(call.args[0], 0)
    return _named(owner) if first and node.kind(owner) == "list" else ""


def _cut_first(node: _Node) -> str:
    """``rest = rest[n:]`` of a list, also where the first are taken in the same line: ``first, rest = …``.

    A slice keeps Python's lock: a look sees this line only where a loop's round ends with it, or another call is in it.
    """
    tree = node.tree
    if not isinstance(tree, ast.Assign) or len(tree.targets) != 1:
        return ""
    target, value = tree.targets[0], tree.value
    pairs = [(target, value)]
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        pairs = list(zip(target.elts, value.elts, strict=True))
    for to, made in pairs:
        if not isinstance(made, ast.Subscript) or not isinstance(made.slice, ast.Slice) or node.kind(to) != "list":
            continue
        from_start = made.slice.upper is None and made.slice.step is None and made.slice.lower is not None
        if from_start and not _is_negative(made.slice.lower) and ast.unparse(made.value) == ast.unparse(to):
            return ast.unparse(to)
    return ""


def _is_negative(tree: ast.expr | None) -> bool:
    """Whether these are the last so many: ``x[-n:]``, of which few may stay."""
    return isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub)


def _in_list(node: _Node) -> str:
    tree = node.tree
    if isinstance(tree, ast.Compare) and len(tree.ops) == 1 and isinstance(tree.ops[0], ast.In | ast.NotIn):
        return _named(tree.comparators[0]) if node.kind(tree.comparators[0]) in ("list", "deque", "tuple") else ""
    call = _call(tree, "index", "count", "remove")
    return _named(_owner(call)) if node.kind(_owner(call)) in ("list", "deque", "tuple") else ""


def _grown(node: _Node) -> str:
    """``x = np.append(x, …)``, ``x = torch.cat([x, …])``, ``x = x + […]``: what is longer each time is copied whole.

    Only of what its file makes nothing else of meanwhile: ``x = torch.cat([x, skip])`` of a new x grows nothing.
    """
    target, value = _made_anew(node, "grown", "collected")
    return target if _joins(value) else ""


def _collected(node: _Node) -> str:
    """The same of what the loop reads for nothing else, as layers do that join what they get to what they make."""
    target, value = _made_anew(node, "collected")
    return target if _joins(value) else ""


def _joins(value: ast.AST) -> bool:
    of_torch = _call(value, "cat", "concat", "vstack", "hstack", of=_TORCH)
    return bool(
        _call(value, "append", "concatenate", "vstack", "hstack", "insert", of=_NUMPY)
        or (of_torch and not _draws(value))
        or _call(value, "concat", of=_PANDAS)
        or (isinstance(value, ast.BinOp) and isinstance(value.right, ast.List))
    )


def _draws(value: ast.AST) -> bool:
    """Whether what is added is chosen in the same line: an answer grows by a token a row, which is quickly copied.

    The model is asked for the next one with all before it, and choosing it takes longer than to copy what there is.
    """
    for one in ast.walk(value):
        sampled = _call(one, "sample")
        if _call(one, "multinomial", "argmax", "topk") or (sampled is not None and not sampled.args):
            return True
    return False


def _windowed(node: _Node) -> str:
    """``x = torch.cat([x[k:], …])``, ``x = torch.cat([x, …])[-n:]``, ``x = torch.roll(x, …)``: copied whole, too."""
    target, value = _made_anew(node, "window")
    names = ("cat", "concat", "concatenate", "vstack", "hstack", "append", "roll")
    joins = any(_call(one, *names, of=(*_NUMPY, *_TORCH)) for one in ast.walk(value)) if target else False
    return target if joins else ""


def _made_anew(node: _Node, *kinds: str) -> tuple[str, ast.AST]:
    """What an assignment makes of itself, as its file tells of its name, and of what; empty where it is none."""
    tree = node.tree
    if not isinstance(tree, ast.Assign) or len(tree.targets) != 1 or node.kind(tree.targets[0]) not in kinds:
        return "", tree
    return ast.unparse(tree.targets[0]), tree.value


def _choice_without_replacement(node: _Node) -> str:
    call = _call(node.tree, "choice", of=("np.random", "numpy.random"))
    return "np.random.choice" if call is not None and _false(_argument(call, "replace")) else ""


def _choice_by_weights(node: _Node) -> str:
    call = _call(node.tree, "choice")
    if call is not None and (_argument(call, "p") is not None or len(call.args) > 3):
        return f"{ast.unparse(call.func)}(…, p=…)"
    call = _call(node.tree, "choices", of=("random",))
    weighed = call is not None and (_argument(call, "weights") is not None or len(call.args) > 1)
    return "random.choices(…, weights=…)" if weighed else ""


def _unique_rows(node: _Node) -> str:
    call = _call(node.tree, "unique")
    if call is None:
        return ""
    along = next((name for name in ("dim", "axis") if not _none(_argument(call, name))), "")
    return f"{ast.unparse(call.func)}(…, {along}=…)" if along else ""


def _cut_permutation(node: _Node) -> str:
    tree = node.tree
    if not isinstance(tree, ast.Subscript) or not isinstance(tree.slice, ast.Slice) or tree.slice.upper is None:
        return ""
    call = _call(tree.value, "permutation", "randperm")
    return "" if call is None else ast.unparse(call.func)


def _python_shuffle(node: _Node) -> str:
    call = _call(node.tree, "shuffle", of=("random",))
    return "random.shuffle" if call is not None else ""


def _rows_of_a_table(node: _Node) -> str:
    tree = node.tree
    if isinstance(tree, ast.Subscript) and isinstance(tree.value, ast.Attribute):
        several = any(isinstance(part, ast.Slice) for part in ast.walk(tree.slice))
        if tree.value.attr in ("iloc", "loc", "at", "iat") and not several:
            return f"{_named(tree.value.value) or '…'}.{tree.value.attr}[…]"
        return ""
    call = _call(tree, "iterrows")
    return "" if call is None else f"{_named(_owner(call)) or '…'}.iterrows()"


def _applied(node: _Node) -> str:
    call = _call(node.tree, "apply", "applymap", "map", "transform")
    return ast.unparse(call.func) if call is not None and call.args and _owner(call) is not None else ""


def _chosen_rows(node: _Node) -> str:
    """``df[df["user"] == user]``"""
    tree = node.tree
    if not isinstance(tree, ast.Subscript) or not isinstance(tree.slice, ast.Compare):
        return ""
    table, left = ast.unparse(tree.value).removesuffix(".loc"), tree.slice.left
    column = isinstance(left, ast.Attribute) or (
        isinstance(left, ast.Subscript) and isinstance(left.slice, ast.Constant) and isinstance(left.slice.value, str)
    )
    of_table = isinstance(left, ast.Attribute | ast.Subscript) and ast.unparse(left.value) == table
    return table if column and of_table and isinstance(tree.slice.ops[0], ast.Eq) else ""


def _rows_sampled(node: _Node) -> str:
    """``df.sample(32)``, ``df.sample(n=size)``; of all rows (``frac=1``) a permutation is what is wanted, and with
    ``replace=`` none is made.
    """
    call = _call(node.tree, "sample")
    if call is None or any(_argument(call, name) is not None for name in ("frac", "replace")):
        return ""
    return f"{_named(_owner(call)) or '…'}.sample(…)" if call.args or _argument(call, "n") is not None else ""


def _rows_of_columns(node: _Node) -> str:
    """``x[index]``, ``x.index_select(0, index)`` of what may lie column by column; a slice copies nothing."""
    tree = node.tree
    if isinstance(tree, ast.Subscript) and isinstance(tree.ctx, ast.Load):
        picks = not isinstance(tree.slice, ast.Slice | ast.Tuple | ast.Constant)
        return _named(tree.value) if picks and node.kind(tree.value) == "columns" else ""
    call = _call(tree, "index_select", "take")
    if call is None:
        return ""
    of = call.args[0] if isinstance(call.func, ast.Attribute) and _named(call.func.value) in _TORCH else _owner(call)
    return _named(of) if node.kind(of) == "columns" else ""


def _searched(node: _Node) -> str:
    """``[x for x in rows if x.user == user]``, ``next(x for x in rows if …)``: all of them, to find some."""
    tree = node.tree
    if not isinstance(tree, ast.ListComp | ast.GeneratorExp | ast.SetComp) or len(tree.generators) != 1:
        return ""
    one = tree.generators[0]
    equal = any(isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Eq) for test in one.ifs)
    return ast.unparse(one.iter) if equal and isinstance(one.iter, ast.Attribute | ast.Name) else ""


def _item_by_item(node: _Node) -> str:
    """``[x.item() for x in t]``, ``[float(x) for x in t]`` of a tensor is not known to be one."""
    tree = node.tree
    if not isinstance(tree, ast.ListComp | ast.GeneratorExp | ast.SetComp):
        return ""
    call = tree.elt if isinstance(tree.elt, ast.Call) else None
    return ast.unparse(tree.generators[0].iter) if _call(call or tree, "item") is not None else ""


def _number_by_number(node: _Node) -> str:
    """``rewards[t, env] + gamma * values[t + 1]`` in loops over t and env: two reads by what counts, or one by two."""
    if not isinstance(node.tree, ast.stmt):
        return ""
    if tested := _tested(node):
        return tested
    calls = {id(one.func) for one in ast.walk(node.tree) if isinstance(one, ast.Call)}
    read = [
        (one, counters)
        for one in ast.walk(node.tree)
        if isinstance(one, ast.Subscript) and isinstance(one.ctx, ast.Load) and id(one) not in calls
        for counters in [_counters(one.slice, node)]
        if counters
    ]
    if len(read) < 2 and not any(counters > 1 for _, counters in read):
        return ""
    return " and ".join(dict.fromkeys(ast.unparse(one) for one, _ in read[:2]))


def _tested(node: _Node) -> str:
    """``if token in (PAD, CLS)``, where token is one number of a tensor: each comparison is an operation."""
    compared = [
        one
        for test in ast.walk(node.tree)
        if isinstance(test, ast.Compare)
        for one in (test.left, *test.comparators)
        if isinstance(one, ast.Name) and node.kind(one) == "number"
    ]
    return f"single numbers such as {compared[0].id}" if compared else ""


def _convolved(node: _Node) -> str:
    """``np.convolve(wave, room)``"""
    call = _call(node.tree, "convolve", "correlate", of=_NUMPY)
    return "" if call is None else ast.unparse(call.func)


def _counters(index: ast.expr, node: _Node) -> int:
    """How many names an index is made of, one of which counts, with whole numbers added at most; 0 for any other."""
    found = [
        one
        for part in (index.elts if isinstance(index, ast.Tuple) else [index])
        for one in (
            (part.left, part.right)
            if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Add | ast.Sub)
            else (part,)
        )
        if not (isinstance(one, ast.Constant) and isinstance(one.value, int))
    ]
    numbers = all(isinstance(one, ast.Name) and node.kind(one) in ("counter", "") for one in found)
    return len(found) if numbers and any(node.kind(one) == "counter" for one in found) else 0


def _tensor_of_a_list(node: _Node) -> str:
    """``torch.tensor(states)`` of lists and tuples, also as ``map(torch.tensor, zip(*batch))``."""
    mapped = _call(node.tree, "map")
    if mapped is not None and _owner(mapped) is None and len(mapped.args) == 2:
        function, over = ast.unparse(mapped.args[0]), _call(mapped.args[1], "zip")
        return function if function in _TENSORS and over is not None and _owner(over) is None else ""
    call = _call(node.tree, *_MAKES_TENSORS, of=_TORCH)
    if call is None or not call.args:
        return ""
    first = call.args[0]
    if isinstance(first, ast.List) and not any(isinstance(one, ast.ListComp | ast.Starred) for one in first.elts):
        return ""  # so many numbers as are written there: no time to speak of
    part = first.value if isinstance(first, ast.Attribute | ast.Subscript) else None
    made = isinstance(first, ast.ListComp) or _call(first, "tolist", "list") is not None
    held = node.kind(first) in ("list", "tuple") or node.kind(part) == "zipped"
    return ast.unparse(call.func) if made or held else ""


def _array_of_a_list(node: _Node) -> str:
    """``np.array(self.priorities)`` of what is kept as a list; one that the line makes itself may take longer."""
    call = _call(node.tree, "array", "asarray", of=_NUMPY)
    kept = call is not None and call.args and isinstance(call.args[0], ast.Name | ast.Attribute)
    return ast.unparse(call.args[0]) if call and kept and node.kind(call.args[0]) in ("list", "deque") else ""


def _gathered_for_one(node: _Node) -> str:
    """``model.state_dict()[name]``, ``dict(model.named_parameters())[name]``, ``list(model.parameters())[i]``."""
    tree = node.tree
    if not isinstance(tree, ast.Subscript) or isinstance(tree.slice, ast.Slice):
        return ""
    call = _call(tree.value, "dict", "list", "tuple")
    inner = call.args[0] if call is not None and len(call.args) == 1 else tree.value
    gathers = _call(inner, *_GATHER, *(() if call is None else _GATHER_FROM))
    return "" if gathers is None else f"{ast.unparse(gathers.func)}()"


def _deep_copy(node: _Node) -> str:
    return "copy.deepcopy" if _call(node.tree, "deepcopy") is not None else ""


def _json(node: _Node) -> str:
    call = _call(node.tree, "loads", "load", of=("json",))
    return "" if call is None else ast.unparse(call.func)


def _read_member(node: _Node) -> str:
    """``shard["waves"]`` of what ``np.load`` made of an ``.npz``, whatever is asked of it: ``shard["waves"][k]``."""
    found: ast.expr | ast.AST = node.tree
    asked: list[ast.Subscript] = []
    while isinstance(found, ast.Subscript):
        asked.append(found)
        found = found.value
    named = [one for one in asked if _is_text(one.slice)] or [one for one in asked if isinstance(one.slice, ast.Name)]
    return ast.unparse(named[-1]) if named else ""


def _is_text(tree: ast.expr) -> bool:
    return isinstance(tree, ast.JoinedStr) or (isinstance(tree, ast.Constant) and isinstance(tree.value, str))


def _text_of_numbers(node: _Node) -> str:
    call = _call(node.tree, "loadtxt", "genfromtxt", "fromstring", of=_NUMPY) or _call(
        node.tree, "read_csv", "read_json", "read_excel", of=_PANDAS
    )
    return "" if call is None else ast.unparse(call.func)


def _parsed_time(node: _Node) -> str:
    call = _call(node.tree, "strptime") or _call(node.tree, "to_datetime", of=_PANDAS)
    return "" if call is None else ast.unparse(call.func)


def _decomposed(node: _Node) -> str:
    older = "matrix_exp", "pinverse", "svd"
    call = _call(node.tree, *_DECOMPOSITIONS, of=_LINEAR) or _call(node.tree, *older, of=_TORCH)
    if call is None:
        norm = _call(node.tree, "norm", "matrix_norm", of=(*_LINEAR, *_TORCH))
        orders = () if norm is None else (*norm.args[1:2], _argument(norm, "ord"), _argument(norm, "p"))
        nuclear = any(isinstance(one, ast.Constant) and one.value == "nuc" for one in orders)
        call = norm if nuclear else None
    return "" if call is None else ast.unparse(call.func)


def _inverse(node: _Node) -> str:
    call = _call(node.tree, "inv", "inv_ex", of=_LINEAR) or _call(node.tree, "inverse", of=_TORCH)
    return "" if call is None else ast.unparse(call.func)


def _vectorised(node: _Node) -> str:
    call = _call(node.tree, "vectorize", "apply_along_axis", "apply_over_axes", "frompyfunc", of=_NUMPY)
    return "" if call is None else ast.unparse(call.func)


def _sorted_by_function(node: _Node) -> str:
    call = _call(node.tree, "sorted", "sort", "min", "max")
    key = None if call is None else _argument(call, "key")
    return ast.unparse(call.func) if call is not None and isinstance(key, ast.Lambda) else ""


def _decoded(node: _Node) -> str:
    call = _call(node.tree, "open", of=("Image", "PIL.Image")) or _call(
        node.tree, "imread", "read_image", "decode_image", "decode_jpeg", "imdecode", "read_video"
    )
    return "" if call is None else ast.unparse(call.func)


#: First what says most: an idiom inside of another one's line is told where the other is not.
_COPIED = "each time all of {} is copied to add to it, so that it takes longer the longer it gets"

_KNOWN = (
    _Known(
        "deque-index",
        _deque_index,
        "{} is a deque, in which an index walks to its place from the nearer end (1.7 µs in the middle of 100,000 "
        "items that lie in the cache; a list's takes 0.1 µs wherever it is)",
        "keep the items in a list or an array and write round it: items[n % size] = new",
    ),
    _Known(
        "deque-sample",
        _deque_sample,
        "{} is a deque, in which each item drawn is walked to from the nearer end",
        "keep the items in a list or arrays that are written round, and draw their indices "
        "(torch.randint, numpy's Generator.integers)",
        inside=r"random\.",
    ),
    _Known(
        "list-pop-first",
        _pop_first,
        "taking the first of a list away moves all others up (18 µs of 100,000; a deque takes 0.1 µs)",
        "make {} a collections.deque, and use popleft()",
    ),
    _Known(
        "list-insert-first",
        _insert_first,
        "putting something before the first of a list moves all others on (47 µs of 100,000)",
        "make {} a collections.deque, and use appendleft()",
    ),
    _Known(
        "list-cut-first",
        _cut_first,
        "all that is left of {} is copied to a new list to take the first away (0.4 to 2.5 ms of 100,000)",
        "keep a number of where the rest begins, and cut once at the end, or del {}[:n] (0.02 ms); numbers belong into "
        "an array or a tensor, of which a slice copies nothing",
    ),
    _Known(
        "search-in-list",
        _in_list,
        "{} is searched from its beginning each time (1 ms for 100,000 numbers; a set or dict takes 0.1 µs)",
        "keep a set, or a dict from the item to its place, beside it",
    ),
    _Known(
        "grown-by-copies",
        _collected,
        _COPIED,
        "append to a list, and join it once behind the loop",
    ),
    _Known(
        "grown-by-copies",
        _grown,
        _COPIED,
        "append to a list and join it once where it is needed, or write into an array made large enough before",
        inside=r"numpy\.|pandas\.",
        of_models=False,
    ),
    _Known(
        WINDOW_BY_COPIES,
        _windowed,
        "each time all of {} is copied to put in what is new",
        "write that over the oldest where it lies: x[at : at + k] = new, at = (at + k) % len(x)",
        inside=r"numpy\.|torch\.functional\.",
        of_models=False,
    ),
    _Known(
        "choice-without-replacement",
        _choice_without_replacement,
        "{} with replace=False shuffles all numbers up to n to take a few (1.5 ms for 32 of 100,000)",
        "a generator made once, rng = np.random.default_rng(), draws only these: rng.choice(n, size, replace=False) "
        "(18 µs)",
        inside=r"numpy\.",
    ),
    _Known(
        "choice-by-weights",
        _choice_by_weights,
        "{} adds all weights up at each call (1 to 3 ms for 100,000)",
        "keep their cumulative sum while they do not change and look up np.searchsorted(sums, rng.random(size) * "
        "sums[-1]) (9 µs), or use random.choices(cum_weights=…); weights that do change belong into a sum tree",
        inside=r"random\.|numpy\.",
    ),
    _Known(
        "unique-rows",
        _unique_rows,
        "{} compares whole rows with each other (70 ms for 20,000 rows of 4, with axis= 26; one number a row takes 2)",
        ONE_NUMBER_A_ROW,
        inside=r"torch\.|numpy\.",
        of_models=False,
    ),
    _Known(
        "cut-permutation",
        _cut_permutation,
        "{} orders all numbers at random to take the first few (0.7 to 1.5 ms for 100,000)",
        "draw the few alone: Generator.choice(n, k, replace=False), or torch.randint where one may come twice "
        "(2 µs for 32)",
    ),
    _Known(
        "python-shuffle",
        _python_shuffle,
        "{} draws and swaps item by item in Python (45 ms for 100,000)",
        "shuffle indices in one call: numpy's Generator.permutation or torch.randperm (1 ms)",
        inside=r"random\.",
        shown=True,
    ),
    _Known(
        "rows-sampled-each-time",
        _rows_sampled,
        "{} shuffles the numbers of all rows to take a few (3 ms for 256 of 100,000 rows, 34 of 800,000)",
        "take the columns out once, before the loop, as arrays (df.to_numpy(), torch.from_numpy), and index these by "
        "rng.integers(n, size=k) (0.1 ms), or by parts of a permutation that is made once a pass",
        inside=r"pandas\.core\.(generic\.NDFrame|sample)\.sample",
        shown=True,
    ),
    _Known(
        "rows-chosen-each-time",
        _chosen_rows,
        "all rows of {} are compared to find some (0.3 ms for 10,000 rows)",
        "group them once, before the loop: dict(tuple(df.groupby(…))), or an index of row numbers",
        inside=r"pandas\.",
        shown=True,
    ),
    _Known(
        "rows-of-columns",
        _rows_of_columns,
        "{} was made of a table's .values or turned round, so its numbers may lie column by column, and each row's are "
        "gathered from all over its memory (2.5 times as long for 20,000 rows of 100, 26 times for 160,000 of 400)",
        "lay them row by row once, before the loop: .contiguous(), or np.ascontiguousarray; .stride() tells how they "
        "lie",
        inside=r"torch\.|numpy\.",
        of_models=False,
    ),
    _Known(
        "rows-of-a-table",
        _rows_of_a_table,
        "{} goes through pandas' own indexing each time (20 to 40 µs; a row of a numpy array takes 0.2 µs)",
        "take the columns out once, before the loop, as arrays (df.to_numpy(), torch.from_numpy) and index these",
        inside=r"pandas\.",
        shown=True,
    ),
    _Known(
        "applied-row-by-row",
        _applied,
        "{} calls a Python function for each row or value (22 µs a row with axis=1; on whole columns 0.2 µs)",
        "compute on whole columns or arrays, and once before the training where the data does not change",
        inside=r"pandas\.",
        shown=True,
    ),
    _Known(
        "vectorised-in-name",
        _vectorised,
        "{} calls a Python function for each element or row (0.15 µs an element, 8 µs a row; numpy's own arithmetic "
        "takes 0.001 µs an element)",
        "write the function with numpy's operators on the whole array, with axis= where it goes by rows",
        inside=r"numpy\.",
        shown=True,
    ),
    _Known(
        "all-gathered-for-one",
        _gathered_for_one,
        "{} goes through the whole model in Python to take one out (1 ms for 160 tensors)",
        "ask for it once, before the loop, and take all out of that",
        inside=r"torch\.nn\.modules\.module\.|collections\.",
        shown=True,
    ),
    _Known(
        "deep-copy",
        _deep_copy,
        "{} walks through all that is inside in Python (0.2 µs for each number of a list, 34 µs for a tensor that "
        "clone() copies in 2)",
        "copy only what is changed: tensor.clone(), list(x), dict(x), or load_state_dict into a model that is there",
        inside=r"copy\.",
        shown=True,
    ),
    _Known(
        "items-one-by-one",
        _item_by_item,
        "each element is made a tensor and then a number by itself (1 µs each; on a GPU each waits for the device)",
        "{}.tolist() gives all numbers in one call, 60 times as fast",
        inside=r"torch\.",
    ),
    _Known(
        NUMBER_BY_NUMBER,
        _number_by_number,
        "{} are read one by one in a loop of Python, where each read and each sum of tensors is an operation of its "
        "own (some microseconds, of NumPy's arrays half of one)",
        "compute with whole rows or columns at once (x[t] instead of x[t, i], slices, cumsum), or loop over numbers of "
        "Python (x.tolist() before: 0.1 µs)",
        of_models=False,
    ),
    _Known(
        "tensor-of-a-list",
        _tensor_of_a_list,
        "{} reads a list element by element (0.2 µs each, and as much for each number of arrays in the list)",
        "keep the data in arrays or tensors: torch.from_numpy(np.stack(arrays)) or torch.stack(tensors) copy whole "
        "blocks (20 times as fast for 32 arrays of 100)",
    ),
    _Known(
        "array-of-a-list",
        _array_of_a_list,
        "{} is a list, of which an array is made item by item each time (0.02 µs a number, 0.07 of pairs)",
        "keep it as an array that is made large enough before, and write into it: x[at] = new; what is drawn by its "
        "weights, in a sum tree",
        inside=r"numpy\.",
    ),
    _Known(
        "convolved-directly",
        _convolved,
        "{} takes as many products as its inputs have numbers, multiplied (2 ms for 16,000 with 2,000, 42 for 48,000 "
        "with 8,000)",
        "scipy.signal.fftconvolve or oaconvolve (0.5 and 1.6 ms), with many sequences at once along an axis; where the "
        "shorter one has less than some hundred numbers it is as fast as it is",
        inside=r"numpy\.",
    ),
    _Known(
        "decomposition-each-time",
        _decomposed,
        "{} takes as long as 7 to 36 products of its matrix with one as large (of 128 to 512 rows)",
        "compute it every so many steps; for the largest singular value one step of power iteration is enough each "
        "time (torch.nn.utils.parametrizations.spectral_norm), and torch.linalg.cholesky takes 0.5 to 3 products where "
        "the matrix is symmetric and positive",
    ),
    _Known(
        "inverse-each-time",
        _inverse,
        "{} takes as long as 5 to 13 products of its matrix with one as large (of 128 to 512 rows)",
        "torch.linalg.solve(a, b) in place of inv(a) @ b takes 1 to 3 for a few columns, and the inverse of a matrix "
        "that stays the same is computed once",
    ),
    _Known(
        "text-parsed-each-time",
        _json,
        "{} parses text each time it is read (0.6 µs a number; bytes of an array take none)",
        "parse it once before the training, and keep arrays, in memory or as files of numpy (np.save)",
        inside=r"json\.",
        shown=True,
    ),
    _Known(
        "archive-read-each-time",
        _read_member,
        "{} reads a whole array from its .npz (and decompresses it, if it is) each time, whatever part of it is "
        "used (1 ms for 1 MB, 9 where compressed)",
        "take the arrays out of the archive once and keep them, or np.save each into a file of its own: np.load(…, "
        "mmap_mode='r') reads only what is used",
        inside=r"numpy\.lib\.(_npyio_impl|npyio)\.NpzFile\.",
        shown=True,
    ),
    _Known(
        "text-of-numbers",
        _text_of_numbers,
        "{} makes numbers of text each time (0.4 to 1.7 µs a number with numpy)",
        "turn the files once into binary ones (np.save, Parquet, torch.save), and read these; np.load(…, "
        "mmap_mode='r') reads only what is used",
        inside=r"numpy\.|pandas\.",
        shown=True,
    ),
    _Known(
        "time-parsed-each-time",
        _parsed_time,
        "{} works out its format for each text (13 µs; datetime.fromisoformat takes 0.2 µs)",
        "parse the times once, before the training, and keep numbers",
        inside=r"_strptime|pandas\.|datetime\.",
        shown=True,
    ),
    _Known(
        "image-decoded-each-time",
        _decoded,
        "{} reads and decodes the file each time the sample is asked for",
        "store the images at the size that is trained on, decode them once into an array where they fit into memory, "
        "or let draft()/a faster decoder (torchvision.io) do it",
        inside=r"PIL\.|torchvision\.|imageio\.",
    ),
    _Known(
        "search-by-comparing",
        _searched,
        "all of {} is gone through in Python to find what matches (0.02 µs an item at least)",
        "make a dict from the key to the matching items once, and look it up",
    ),
    _Known(
        "sorted-by-a-function",
        _sorted_by_function,
        "{} calls a Python function for each item (0.2 µs each)",
        "np.argsort or torch.topk of an array of the keys does it in one call (7 times as fast for 10,000)",
    ),
)
