"""Which kinds of containers a file of the user's makes of its names: what a slow line works on, by its source alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perf_diagnostics.parsed_python import parsed

#: Kinds of which it matters what is done to them, by the names of what makes them.
_MAKERS = {
    **{name: name for name in ("deque", "list", "dict", "set", "frozenset", "tuple", "DataFrame", "Series")},
    **{"OrderedDict": "dict", "defaultdict": "dict", "Counter": "dict", "sorted": "list"},
    **{"Deque": "deque", "List": "list", "Dict": "dict", "Set": "set", "Tuple": "tuple"},
    **{"read_csv": "DataFrame", "read_parquet": "DataFrame", "read_pickle": "DataFrame"},
}

#: What a literal makes.
_DISPLAYS: dict[type[ast.expr], str] = {
    **{ast.List: "list", ast.ListComp: "list", ast.Dict: "dict", ast.DictComp: "dict"},
    **{ast.Set: "set", ast.SetComp: "set", ast.Tuple: "tuple"},
}

#: A name is made something that is none of these, or not known.
_OTHER = ""

#: The kind of what is made anew of itself and more, again and again: ``seen = np.append(seen, x)`` in a loop.
GROWN = "grown"

#: The kind of what grows so, and the loop reads for nothing else: it could as well be joined once behind it.
COLLECTED = "collected"

#: The kind of what is made anew of a part of itself and what is new, and so stays as long as it is:
#: ``bank = torch.cat([bank, x])[-size:]``.
WINDOW = "window"

#: The kind of what may lie column by column: ``x = torch.tensor(df[names].values)``, ``x = y.T``.
COLUMNS = "columns"

#: What gives the numbers of a table, or turns a matrix round: attributes, and methods.
_TURNS = {False: ("values", "T", "mT"), True: ("to_numpy", "t", "transpose")}

#: Functions and methods whose result lies as what they are given does.
_KEEPS = (
    *("tensor", "as_tensor", "from_numpy", "asarray", "asanyarray", "FloatTensor", "DoubleTensor"),
    *("to", "float", "double", "half", "bfloat16", "astype", "cpu", "cuda", "detach", "numpy"),
)

#: Methods that give what they are called of, or a copy.
_COPIES = ("contiguous", "clone", "copy", "detach")

#: The kind of what holds tuples, the parts of all items by their place: ``Transition(*zip(*batch))``.
ZIPPED = "zipped"

#: Functions that make an array or a tensor of the numbers in a container.
_ARRAYS = ("tensor", "as_tensor", "FloatTensor", "LongTensor", "BoolTensor", "array", "asarray", "stack")

#: The kind of what counts: the variable of ``for i in range(…)``, also reversed, or the first of ``enumerate``.
COUNTER = "counter"

#: The kind of what is read by two counters and more: ``token = ids[i, j]``, a number of a tensor or an array.
NUMBER = "number"

#: Longer files are not looked through: parsing takes some 5 µs a line.
_MOST_LETTERS = 1_000_000


def container_kinds(source: str) -> dict[str, str]:
    """The kinds by name: a variable by its own, an attribute behind a dot, whatever it is an attribute of.

    What is made anew of itself and more in a loop that makes nothing else of it, or as an attribute in a function that
    does not, is ``grown``, ``collected`` where the loop reads it for nothing else, or a ``window`` where a part of it
    goes. A name that is made of several kinds somewhere in
    the file, or of something that the source does not tell, is left out; None and what is handed in as an argument
    without a type do not count.

    >>> container_kinds("class A:\\n    def __init__(self):\\n        self.old = deque(maxlen=9)\\nseen = []")
    {'.old': 'deque', 'seen': 'list'}
    >>> container_kinds("seen = []\\nif big:\\n    seen = set()")
    {}
    >>> container_kinds("x = torch.tensor(df[names].values, dtype=torch.float32)\\ny = x.t().contiguous()")
    {'x': 'columns'}
    >>> container_kinds("x, y = zip(*batch)\\nx = torch.tensor(x).float()\\nz = Transition(*zip(*batch))")
    {'x': 'tuple', 'y': 'tuple', 'z': 'zipped'}
    >>> container_kinds("for i in range(n):\\n    for j in range(m):\\n        token = ids[i, j]")
    {'i': 'counter', 'j': 'counter', 'token': 'number'}
    """
    if len(source) > _MOST_LETTERS:
        return {}
    try:
        tree = parsed(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    found: dict[str, set[str]] = {}
    for target, kind in _made(tree):
        name = _name(target)
        if name and kind is not None:
            found.setdefault(name, set()).add(kind)
    alone = {name: next(iter(kinds)) for name, kinds in found.items() if len(kinds) == 1 and _OTHER not in kinds}
    if COUNTER in alone.values():
        numbers = {name for name, kinds in found.items() if kinds == {_OTHER}} & _read_by_counters(tree, alone)
        alone |= dict.fromkeys(numbers, NUMBER)
    return dict(sorted({**alone, **dict(_made_of_themselves(tree))}.items()))


def kinds_in(text: str, kinds: dict[str, str]) -> tuple[tuple[str, str], ...]:
    """Of these kinds those whose names stand in a line: a variable's where it is none's attribute, an attribute's
    behind a dot.

    >>> kinds_in("x = self.old[i] + seen", {".old": "deque", "seen": "list", "old": "set"})
    (('.old', 'deque'), ('seen', 'list'))
    """
    words = _words(text)
    return tuple((name, kind) for name, kind in kinds.items() if name in words)


def _words(text: str) -> set[str]:
    words: set[str] = set()
    word = before = ""
    for letter in f"{text} ":
        if letter.isidentifier() or (word and letter.isalnum()):
            word += letter
            continue
        if word:
            words.add(f".{word}" if before == "." else word)
            word = ""
        before = letter
    return words


def _made_of_themselves(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """What an innermost loop, or of an attribute a function, only ever makes of itself and more; with its kind."""
    loops, functions = (ast.For, ast.AsyncFor, ast.While), (ast.FunctionDef, ast.AsyncFunctionDef)
    for block in ast.walk(tree):
        if not isinstance(block, (*loops, *functions)):
            continue
        adds = [node for node in _inside(block) if isinstance(node, ast.Assign) and _adds_to_itself(node)]
        for node in adds:
            name, kind = _name(node.targets[0]), _adds_to_itself(node)
            if isinstance(block, functions) and not name.startswith("."):
                continue
            named = [one for one in ast.walk(block) if isinstance(one, ast.Name | ast.Attribute) and _name(one) == name]
            stored = sum(isinstance(one.ctx, ast.Store) for one in named)
            if stored == sum(_name(add.targets[0]) == name for add in adds):
                yield name, COLLECTED if kind == GROWN and len(named) == 2 * stored and name[0] != "." else kind
        if isinstance(block, functions):
            yield from _by_way_of_a_name(block)


def _by_way_of_a_name(function: ast.AST) -> Iterator[tuple[str, str]]:
    """What a function makes of an attribute and more under another name, and then that attribute of: both names.

    ``queue = torch.cat([keys, self.queue])[:n]``, and then ``self.queue = normalize(queue)``, or ``= queue``.
    """
    assigns = [node for node in _inside(function) if isinstance(node, ast.Assign) and len(node.targets) == 1]
    for kept in assigns:
        name = _name(kept.targets[0])
        made, _ = _uncut(kept.value)
        if isinstance(made, ast.Call) and made.args:
            made = made.args[0]
        if not name.startswith(".") or not isinstance(made, ast.Name):
            continue
        makes = [node for node in assigns if _name(node.targets[0]) == made.id]
        if len(makes) == 1 and (kind := _adds(kept.targets[0], makes[0].value)):
            yield from ((made.id, kind), (name, kind))


def _inside(block: ast.AST) -> Iterator[ast.AST]:
    """What stands in a block, without the loops and functions in it."""
    for child in ast.iter_child_nodes(block):
        yield child
        if not isinstance(
            child, ast.For | ast.AsyncFor | ast.While | ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
        ):
            yield from _inside(child)


def _adds_to_itself(node: ast.Assign) -> str:
    """The kind of what ``x = f(x, …)``, ``x = f([x, …])`` or ``x = x + […]`` makes; empty where it is none.

    A part of x is cut off where it is ``f([x[1:], …])``, ``f([x, …])[-n:]``, or turned round by ``roll(x, …)``.
    """
    if len(node.targets) != 1 or not _name(node.targets[0]):
        return ""
    return _adds(node.targets[0], node.value)


def _adds(to: ast.expr, value: ast.expr) -> str:
    """The kind of what is made of ``to`` and more; empty where it is made of something else."""
    target = ast.dump(to).replace("Store()", "Load()")
    value, cut = _uncut(value)
    parts: list[ast.expr] = []
    if isinstance(value, ast.Call) and value.args:
        first = value.args[0]
        parts = first.elts if isinstance(first, ast.List | ast.Tuple) else [first] if len(value.args) > 1 else []
        cut = cut or (isinstance(value.func, ast.Attribute) and value.func.attr == "roll")
    elif isinstance(value, ast.BinOp) and isinstance(value.right, ast.List):
        parts = [value.left]
    for part in parts:
        whole, shorter = _uncut(part)
        if ast.dump(whole) == target:
            return WINDOW if cut or shorter else GROWN
    return ""


def _uncut(value: ast.expr) -> tuple[ast.expr, bool]:
    """What a slice is cut from, and copied, and whether there was one."""
    cut = False
    while True:
        if isinstance(value, ast.Subscript) and any(isinstance(one, ast.Slice) for one in ast.walk(value.slice)):
            value, cut = value.value, True
        elif (
            isinstance(value, ast.Call)
            and isinstance(value.func, ast.Attribute)
            and value.func.attr in _COPIES
            and not value.args
        ):
            value = value.func.value
        else:
            return value, cut


def _made(tree: ast.Module) -> Iterator[tuple[ast.expr | ast.arg, str | None]]:
    """What is assigned to, and the kind; None where that says nothing."""
    plain: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.For | ast.comprehension):
            counter = _counter(node.target, node.iter)
            if counter is not None:
                plain.add(id(counter))
                yield counter, COUNTER
        if isinstance(node, ast.Assign):
            for target in node.targets:
                plain.add(id(target))
                yield from _assigned(target, node.value, plain)
        elif isinstance(node, ast.AnnAssign):
            plain.add(id(node.target))
            told = _maker(node.annotation)
            made = None if node.value is None else _kind(node.value)
            yield node.target, made if made is not None and told == _OTHER else told
        elif isinstance(node, ast.AugAssign):
            plain.add(id(node.target))  # what it is stays
        elif isinstance(node, ast.arg) and node.annotation is not None:
            yield node, _maker(node.annotation)
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store) and id(node) not in plain:
            yield node, _OTHER  # of a loop, an unpacking, a with


def _assigned(target: ast.expr, value: ast.expr, plain: set[int]) -> Iterator[tuple[ast.expr, str | None]]:
    """What ``target = value`` makes, also of the parts of ``a, b = x, y``; a part of itself is what it was."""
    if (
        isinstance(target, ast.Tuple | ast.List)
        and isinstance(value, ast.Tuple | ast.List)
        and len(target.elts) == len(value.elts)
        and not any(isinstance(one, ast.Starred) for one in (*target.elts, *value.elts))
    ):
        plain.update(map(id, target.elts))
        for each, made in zip(target.elts, value.elts, strict=True):
            yield from _assigned(each, made, plain)
        return
    if isinstance(target, ast.Tuple | ast.List) and _zips(value):
        parts = [one for one in target.elts if not isinstance(one, ast.Starred)]
        plain.update(map(id, parts))
        for part in parts:
            yield part, "tuple"
        return
    of = value.value if isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Slice) else _as_array(value)
    yield target, None if ast.dump(of) == ast.dump(target).replace("Store()", "Load()") else _kind(value)


def _as_array(value: ast.expr) -> ast.expr:
    """What ``torch.tensor(x, dtype=…).to(device)`` makes a tensor of: until there a name held what it held before."""
    call = value
    while isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
        if call.func.attr in _ARRAYS and call.args:
            return call.args[0]
        call = call.func.value
    return value


def _zips(value: ast.expr) -> bool:
    """``zip(*items)``, also in ``list(…)`` or ``tuple(…)``: gives a tuple for each place of the items."""
    if isinstance(value, ast.Call) and _called(value) in ("list", "tuple") and len(value.args) == 1:
        value = value.args[0]
    return (
        isinstance(value, ast.Call) and _called(value) == "zip" and any(isinstance(a, ast.Starred) for a in value.args)
    )


def _read_by_counters(tree: ast.Module, kinds: dict[str, str]) -> set[str]:
    """The variables that are only ever assigned what two counters and more choose."""
    found: dict[str, bool] = {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign):
            continue
        index = node.value.slice if isinstance(node.value, ast.Subscript) else None
        chosen = (
            isinstance(index, ast.Tuple)
            and len(index.elts) > 1
            and all(isinstance(one, ast.Name) and kinds.get(one.id) == COUNTER for one in index.elts)
        )
        for target in node.targets:
            if isinstance(target, ast.Name):
                found[target.id] = found.get(target.id, True) and chosen
    return {name for name, chosen in found.items() if chosen}


def _counter(target: ast.expr, over: ast.expr) -> ast.expr | None:
    """What of a loop's target counts, if anything does."""
    while isinstance(over, ast.Call) and over.args and _called(over) in ("reversed", "tqdm", "trange"):
        if _called(over) == "trange":
            return target
        over = over.args[0]
    if not isinstance(over, ast.Call):
        return None
    if _called(over) == "enumerate" and isinstance(target, ast.Tuple) and target.elts:
        return target.elts[0]
    return target if _called(over) == "range" else None


def _called(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _kind(value: ast.expr) -> str | None:
    if isinstance(value, ast.Constant) and value.value is None:
        return None
    display = _DISPLAYS.get(type(value))
    if display is not None:
        return display
    if _by_columns(value):
        return COLUMNS
    if isinstance(value, ast.Call) and any(isinstance(one, ast.Starred) and _zips(one.value) for one in value.args):
        return ZIPPED
    return _maker(value.func) if isinstance(value, ast.Call) else _OTHER


def _by_columns(value: ast.expr) -> bool:
    """Whether this is a matrix turned round, or the numbers of several of a table's columns, and nobody laid it anew.

    ``df["target"].values`` is one column.
    """
    call = isinstance(value, ast.Call)
    function = value.func if isinstance(value, ast.Call) else value
    if not isinstance(function, ast.Attribute):
        return False
    if function.attr in _TURNS[call]:
        of = function.value
        column = (
            isinstance(of, ast.Subscript) and isinstance(of.slice, ast.Constant) and isinstance(of.slice.value, str)
        )
        return not (column and function.attr in ("values", "to_numpy"))
    if not call or function.attr not in _KEEPS:
        return False
    # A function's argument is laid as it is, and what a method is called of.
    of_module = isinstance(function.value, ast.Name) and function.value.id in ("np", "numpy", "torch")
    given = value.args[0] if of_module and isinstance(value, ast.Call) and value.args else function.value
    return _by_columns(given)


def _maker(maker: ast.expr) -> str:
    """``collections.deque``, ``deque[int]`` and ``"deque"`` make a deque."""
    if isinstance(maker, ast.Subscript):
        maker = maker.value
    name = maker.attr if isinstance(maker, ast.Attribute) else maker.id if isinstance(maker, ast.Name) else ""
    return _MAKERS.get(name, _OTHER)


def _name(target: ast.expr | ast.arg) -> str:
    if isinstance(target, ast.arg):
        return target.arg
    if isinstance(target, ast.Attribute):
        return f".{target.attr}"
    return target.id if isinstance(target, ast.Name) else ""
