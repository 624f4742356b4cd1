"""The user's own program as statements that read and write names, from its text; nothing of it is run.

A name is a key: a variable of a function by its name; a field (``self.buffer``, ``agent.buffer``) as ``.buffer``,
whatever object it is of; what a function reads from outside of itself as ``::name``.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from perf_diagnostics.parsed_python import parsed

#: Attributes that say what a tensor is, and carry none of its numbers.
_NO_NUMBERS = frozenset({"shape", "device", "dtype", "ndim", "is_cuda", "training", "requires_grad", "is_leaf"})

#: Attributes by which a tensor's own memory is reached.
_TRANSPARENT = frozenset({"data", "T", "mT", "real", "imag", "grad", "module"})

#: Methods that set how an object works, and put nothing into it; backward writes gradients, which no loss reads.
_SETS_NOTHING = frozenset({"eval", "train", "zero_grad", "backward", "requires_grad_", "cpu", "cuda", "close", "flush"})

#: Methods of loops' drivers and bars of progress that report what they are given: no batch and no loss comes of it.
_REPORTS = frozenset({"print", "log", "log_dict", "log_metrics", "set_postfix", "set_description"})

#: Library functions that write what they are given first, beside those whose names end with ``_``.
_WRITES_FIRST = frozenset({"shuffle", "heappush", "heappop", "heapify", "copyto"})

#: Methods that containers have, too, whatever else of the user's own is called so.
_OF_CONTAINERS = frozenset({"append", "appendleft", "add", "clear", "extend", "insert", "pop", "push", "put", "update"})

#: Methods that list all of a model's tensors.
LISTS_TENSORS = frozenset({"parameters", "named_parameters", "buffers", "named_buffers", "state_dict"})

#: Methods that models have; those of optimizers that are called so depend on models, too.
_OF_MODELS = LISTS_TENSORS | {"eval", "zero_grad", "load_state_dict", "requires_grad_"}

#: Methods and functions that give what they are given in other clothes: who writes into the result writes into it.
_PASSES_ON = frozenset({"list", "tuple", "dict", "iter", "values", "items", "get", "detach", "view", "param_groups"})

_ITSELF = ("self", "cls")

_BUILTINS = frozenset(dir(builtins))


@dataclass(frozen=True)
class Argument:
    """What is read for an argument, and whose results are: functions of the user's own that are called for it."""

    reads: frozenset[str] = frozenset()
    made_by: tuple[Function, ...] = ()


@dataclass
class Call:
    """A call of functions of the user's own (those that it may be), with its arguments.

    ``everything`` is what is read for all of it, and whose results are; ``starred``: which argument is for which
    parameter is not told by the text.
    """

    functions: tuple[Function, ...]
    positional: tuple[Argument, ...]
    named: Mapping[str, Argument]
    everything: Argument
    starred: bool = False

    def given_to(self, function: Function, parameter: str) -> Argument:
        """What is given for a parameter; all where that cannot be told."""
        if parameter in self.named:
            return self.named[parameter]
        if self.starred:
            return self.everything
        names = function.parameters
        at = names.index(parameter) if parameter in names else len(self.positional)
        return self.positional[at] if at < len(self.positional) else Argument() if names else self.everything


@dataclass
class Statement:
    """One simple statement, or the head of one that holds others (``bodies``).

    ``reads``: what its result depends on; ``sets``: variables that it gives a new value; ``writes``: groups of keys, of
    which it writes into something that is reached by one; ``trains``: what a backward pass that it starts depends on;
    ``averages``: it writes parameters' values, weighed or copied, into something; ``lists``: it lists
    a model's tensors; ``makes_model``: it makes one, and ``models`` are the variables that it gives one; ``wraps``: it
    gives each of several variables what it was, made ready by a library, as ``model, optimizer, loader =
    accelerator.prepare(model, optimizer, loader)`` does.
    """

    first: int
    last: int
    reads: frozenset[str] = frozenset()
    sets: frozenset[str] = frozenset()
    writes: tuple[frozenset[str], ...] = ()
    calls: tuple[Call, ...] = ()
    trains: frozenset[str] | None = None
    returns: bool = False
    averages: bool = False
    lists: bool = False
    makes_model: bool = False
    models: frozenset[str] = frozenset()
    wraps: bool = False
    loops: bool = False
    bodies: tuple[tuple[Statement, ...], ...] = ()

    def all(self) -> Iterator[Statement]:
        """It and all that it holds."""
        yield self
        for body in self.bodies:
            for one in body:
                yield from one.all()


@dataclass(eq=False)
class Function:
    """A function of the user's own; a file's own statements are one, too.

    ``captured``: its variables that functions inside of it read. ``aliases``: which keys a variable was got from.
    ``models``: the keys of what it treats as a model.
    """

    name: str
    file: str
    first: int
    last: int
    parameters: tuple[str, ...] = ()
    is_method: bool = False
    is_module: bool = False
    variables: frozenset[str] = frozenset()
    captured: frozenset[str] = frozenset()
    body: tuple[Statement, ...] = ()
    aliases: dict[str, set[str]] = field(default_factory=dict)
    models: set[str] = field(default_factory=set)

    def all(self) -> Iterator[Statement]:
        """All of its statements."""
        for one in self.body:
            yield from one.all()


class Program:
    """All functions of some files.

    Args:
        texts: by the files' names; what cannot be parsed is left out.
    """

    def __init__(self, texts: Mapping[str, str]) -> None:
        self.functions: list[Function] = []
        self._by_name: dict[str, list[Function]] = {}
        #: Names of classes whose objects are called as models are.
        self.modules: set[str] = set()
        #: Fields that the program itself gives values, and variables that hold objects of its own classes.
        self.fields: set[str] = set()
        self.objects: set[str] = set()
        self._classes: dict[str, list[Function]] = {}
        readers: list[tuple[_Reader, Function, Sequence[ast.stmt]]] = []
        for file, text in texts.items():
            try:
                tree = parsed(text)
            except (SyntaxError, ValueError, RecursionError):
                continue
            imported = _imported(tree, texts)
            for function, body in self._found(tree, file, len(text.splitlines()) + 1):
                readers.append((_Reader(self, function, imported), function, body))
            self.fields |= {
                one.attr for one in ast.walk(tree) if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Store)
            }
        for _, _, body in readers:
            for node in _walk(body):
                if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                    made = _last_name(node.value.func)
                    if made in self._classes and made not in self.modules:
                        self.objects |= {one.id for one in node.targets if isinstance(one, ast.Name)}
        for reader, function, body in readers:
            reader.look_for_aliases(body)
            function.body = reader.statements(body)

    def named(self, name: str, *, methods: bool) -> tuple[Function, ...]:
        """The user's own functions of a name; of a class's name, what makes its objects."""
        found = [one for one in self._by_name.get(name, ()) if one.is_method == methods]
        return tuple(found or ([] if methods else self._classes.get(name, [])))

    def knows(self, name: str) -> bool:
        """Whether a name is that of a function or class of the user's own."""
        return name in self._by_name or name in self._classes

    def _found(self, tree: ast.Module, file: str, last: int) -> Iterator[tuple[Function, Sequence[ast.stmt]]]:
        module = Function("<module>", file, 0, last, is_module=True, variables=frozenset(_stored(tree.body)))
        self.functions.append(module)
        yield module, tree.body
        yield from self._inner(tree.body, file, in_class="")

    def _is_model(self, node: ast.ClassDef) -> bool:
        """Whether a class is one of models: a module that has parts or parameters, which a transform of audio or images
        may have none of.
        """
        bases = [_last_name(base) for base in node.bases]
        if any(base in self.modules for base in bases):
            return True
        if bases != ["Module"]:
            return any(base.endswith("Module") for base in bases)  # of a library, whose own may have some
        return not all(map(_is_plain, ast.walk(node)))

    def _inner(
        self, body: Iterable[ast.AST], file: str, *, in_class: str
    ) -> Iterator[tuple[Function, Sequence[ast.stmt]]]:
        for node in body:
            if isinstance(node, ast.ClassDef):
                self._classes.setdefault(node.name, [])
                if self._is_model(node):
                    self.modules.add(node.name)
                yield from self._inner(node.body, file, in_class=node.name)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                given = node.args
                names = [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
                names += [one.arg for one in (given.vararg, given.kwarg) if one is not None]
                static = any(_last_name(one) == "staticmethod" for one in node.decorator_list)
                function = Function(
                    node.name,
                    file,
                    min([node.lineno, *(one.lineno for one in node.decorator_list)]),
                    node.end_lineno or node.lineno,
                    parameters=tuple(names[1:] if in_class and not static else names),
                    is_method=bool(in_class),
                    variables=frozenset((*names, *_stored(node.body))),
                    captured=frozenset(_read_inside(node.body)),
                )
                self.functions.append(function)
                self._by_name.setdefault(node.name, []).append(function)
                if in_class and node.name == "__init__":
                    self._classes[in_class].append(function)
                yield function, node.body
                yield from self._inner(node.body, file, in_class="")
            else:
                yield from self._inner(ast.iter_child_nodes(node), file, in_class=in_class)


class _Reader:
    """Turns one function's text into statements."""

    def __init__(self, program: Program, function: Function, imported: frozenset[str]) -> None:
        self._program, self._function, self._imported = program, function, imported
        #: Variables that hold tensors of a model, by a list of all of them.
        self._tensors: set[str] = set()

    def look_for_aliases(self, body: Sequence[ast.stmt]) -> None:
        """What was got from what, wherever in the function."""
        for node in _walk(body):
            if isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
                self._alias(node.target, node.iter)
            elif isinstance(node, ast.Assign) and len(node.targets) == 1 and _is_way(node.value):
                self._alias(node.targets[0], node.value)
        for node in _walk(body):
            if isinstance(node, ast.Attribute) and node.attr in _OF_MODELS:
                self._function.models |= self._written(node.value)

    def _alias(self, target: ast.expr, source: ast.expr) -> None:
        if isinstance(source, ast.Call) and isinstance(target, ast.Tuple | ast.List):
            name = _last_name(source.func)
            if name in ("zip", "zip_longest") and len(source.args) == len(target.elts):
                for one, given in zip(target.elts, source.args, strict=True):
                    self._alias(one, given)
                return
            if name == "enumerate" and len(target.elts) == 2 and source.args:
                self._alias(target.elts[1], source.args[0])
                return
        keys = self._source(source)
        tensors = self._of_tensors(source)
        for one in target.elts if isinstance(target, ast.Tuple | ast.List) else [target]:
            for node in ast.walk(one) if isinstance(one, ast.Name | ast.Tuple | ast.List) else ():
                if isinstance(node, ast.Name):
                    self._function.aliases.setdefault(node.id, set()).update(keys - {node.id})
                    if tensors:
                        self._tensors.add(node.id)

    def _source(self, node: ast.expr) -> frozenset[str]:
        """The keys of what an expression gives a part of, as it is; empty where it makes something new."""
        if isinstance(node, ast.Starred):
            return self._source(node.value)
        if isinstance(node, ast.ListComp):
            return self._source(node.generators[0].iter) if _is_way(node.elt) else frozenset()
        if not isinstance(node, ast.Call):
            return self._written(node) if isinstance(node, ast.Name | ast.Attribute | ast.Subscript) else frozenset()
        name = _last_name(node.func)
        if isinstance(node.func, ast.Attribute) and name in (_PASSES_ON | LISTS_TENSORS):
            return self._source(node.func.value)
        of_library = isinstance(node.func, ast.Name) or name in ("chain", "zip_longest")
        given = node.args if of_library and not self._functions(node) else []
        return frozenset().union(*(self._source(one) for one in given))

    def _of_tensors(self, node: ast.AST) -> bool:
        """Whether it is got from a list of all of a model's tensors."""
        return any(
            (isinstance(one, ast.Attribute) and one.attr in LISTS_TENSORS)
            or (isinstance(one, ast.Name) and one.id in self._tensors)
            for one in ast.walk(node)
        )

    def statements(self, body: Sequence[ast.stmt]) -> tuple[Statement, ...]:
        """Of these lines; definitions and imports are none."""
        return tuple(one for node in body for part in _parts(node) if (one := self._statement(part)) is not None)

    def _statement(self, node: ast.stmt) -> Statement | None:
        if isinstance(node, ast.If | ast.While):
            both = self.statements(node.body), self.statements(node.orelse)
            return self._simple(node, [node.test], bodies=both, loops=isinstance(node, ast.While))
        if isinstance(node, ast.For | ast.AsyncFor):
            both = self.statements(node.body), self.statements(node.orelse)
            return self._simple(node, [node.iter], targets=[node.target], bodies=both, loops=True)
        if isinstance(node, ast.With | ast.AsyncWith):
            targets = [one.optional_vars for one in node.items if one.optional_vars is not None]
            given = [one.context_expr for one in node.items]
            return self._simple(node, given, targets=targets, bodies=(self.statements(node.body),))
        if isinstance(node, ast.Try):
            parts = [*node.body, *node.orelse, *node.finalbody]
            handlers = [self.statements(one.body) for one in node.handlers]
            return self._simple(node, [], bodies=(self.statements(parts), *handlers))
        if isinstance(node, ast.Match):
            cases = tuple(self.statements(one.body) for one in node.cases)
            return self._simple(node, [node.subject], bodies=cases)
        if isinstance(node, ast.Assign):
            return self._simple(node, [node.value], targets=node.targets)
        if isinstance(node, ast.AnnAssign):
            return None if node.value is None else self._simple(node, [node.value], targets=[node.target])
        if isinstance(node, ast.AugAssign):
            return self._simple(node, [node.value], targets=[node.target], adds=True)
        if isinstance(node, ast.Return):
            return self._simple(node, [] if node.value is None else [node.value], returns=True)
        if isinstance(node, ast.Expr):
            gives = isinstance(node.value, ast.Yield | ast.YieldFrom)
            return self._simple(node, [node.value], returns=gives)
        return None

    def _simple(
        self,
        node: ast.stmt,
        given: Sequence[ast.expr],
        *,
        targets: Sequence[ast.expr] = (),
        bodies: tuple[tuple[Statement, ...], ...] = (),
        loops: bool = False,
        returns: bool = False,
        adds: bool = False,
    ) -> Statement:
        reads: set[str] = set()
        sets: set[str] = set()
        writes: list[frozenset[str]] = []
        for one in given:
            reads |= self.keys(one)
        for target in targets:
            for part in target.elts if isinstance(target, ast.Tuple | ast.List) else [target]:
                inner = part.value if isinstance(part, ast.Starred) else part
                if isinstance(inner, ast.Name):
                    sets.add(self._key(inner.id))
                    reads |= {self._key(inner.id)} if adds else set()
                elif isinstance(inner, ast.Tuple | ast.List):
                    sets |= {self._key(one.id) for one in ast.walk(inner) if isinstance(one, ast.Name)}
                else:
                    writes.append(self._written(inner))
                    reads |= self.keys(inner) if adds else set()
                    if isinstance(inner, ast.Subscript):
                        reads |= self.keys(inner.slice)
        calls = [one for expression in given for one in _walk([expression]) if isinstance(one, ast.Call)]
        for call in calls:
            writes += self._written_by(call, alone=isinstance(node, ast.Expr) and call is node.value)
        trained = [
            self.keys(call.func).union(*map(self.keys, (*call.args, *(word.value for word in call.keywords))))
            for call in calls
            if _starts_backward(call)
        ]
        last = node.end_lineno or node.lineno
        if bodies:
            inner_lines = [one.first for body in bodies for one in body]
            ends = [one.end_lineno or one.lineno for one in (*given, *targets)]
            last = min([max([node.lineno, *ends]), *(first - 1 for first in inner_lines if first > node.lineno)])
        return Statement(
            first=node.lineno,
            last=last,
            reads=frozenset(reads),
            sets=frozenset(sets),
            writes=tuple(one for one in writes if one),
            calls=(
                *(found for call in calls if (found := self._own_call(call)) is not None),
                *self._handed_over(given, calls),
            ),
            trains=frozenset().union(*trained) if trained else None,
            returns=returns,
            lists=not bodies and any(name in self._tensors for name in sets),
            makes_model=any(self._makes_model(call) for call in calls),
            models=frozenset(self._given_models(given, targets)) & sets,
            wraps=len(given) == len(targets) == 1 and self._wraps(given[0], targets[0]),
            averages=not bodies and self._averages(node, targets, calls, adds=adds),
            loops=loops,
            bodies=bodies,
        )

    def _given_models(self, given: Sequence[ast.expr], targets: Sequence[ast.expr]) -> Iterator[str]:
        """The variables that are given a model, each its own in ``model, transform = Net(), Transform()``."""
        for target in targets:
            pairs = [(target, one) for one in given]
            for value in given:
                both = [one.elts for one in (target, value) if isinstance(one, ast.Tuple | ast.List)]
                if len(both) == 2 and len(both[0]) == len(both[1]):
                    pairs = [*zip(*both, strict=True)]
            for name, value in pairs:
                if any(isinstance(one, ast.Call) and self._makes_model(one) for one in _walk([value])):
                    yield from (self._key(one.id) for one in ast.walk(name) if isinstance(one, ast.Name))

    def _wraps(self, value: ast.expr, target: ast.expr) -> bool:
        if not isinstance(value, ast.Call) or not isinstance(target, ast.Tuple) or self._functions(value):
            return False
        several = [[one.id if isinstance(one, ast.Name) else "" for one in some] for some in (target.elts, value.args)]
        return several[0] == several[1] and all(several[0])

    def _makes_model(self, call: ast.Call) -> bool:
        name = _last_name(call.func)
        of_torch = isinstance(call.func, ast.Attribute) and _last_name(call.func.value) == "nn"
        return name in self._program.modules or (of_torch and name[:1].isupper() and not name.endswith("Loss"))

    def _key(self, name: str) -> str:
        return name if name in self._function.variables else f"::{name}"

    def keys(self, node: ast.AST) -> frozenset[str]:
        """What an expression depends on."""
        if isinstance(node, ast.Attribute):
            if node.attr in _NO_NUMBERS:
                return frozenset()
            inner = self.keys(node.value)
            if node.attr in self._program.fields and isinstance(node.value, ast.Name):
                inner = frozenset() if node.value.id in self._program.objects else inner
            plain = node.attr in _TRANSPARENT or (isinstance(node.value, ast.Name) and node.value.id in self._imported)
            return inner if plain else inner | {f".{node.attr}"}
        if isinstance(node, ast.Name):
            if node.id in self._function.variables and node.id not in (*_ITSELF, *self._imported):
                return frozenset({node.id})
            known = node.id in self._imported or node.id in _BUILTINS or node.id in _ITSELF
            return frozenset() if known or self._program.knows(node.id) else frozenset({self._key(node.id)})
        if isinstance(node, ast.Call):
            found: set[str] = set()
            own = self._functions(node)
            if not own:  # of the user's own, its body tells what is read besides what it is given
                found |= self.keys(node.func)
            for one in (*node.args, *(word.value for word in node.keywords)):
                found |= self.keys(one)
            return frozenset(found)
        if isinstance(node, ast.Lambda):
            bound = {one.arg for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)}
            return self.keys(node.body) - bound - {f"::{one}" for one in bound}
        if isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp):
            parts = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
            bound = {one.id for part in node.generators for one in ast.walk(part.target) if isinstance(one, ast.Name)}
            inner_keys: set[str] = set()
            for expression in (*parts, *(one for part in node.generators for one in (part.iter, *part.ifs))):
                inner_keys |= self.keys(expression)
            return frozenset(one for one in inner_keys if one.removeprefix("::") not in bound)
        return frozenset().union(*(self.keys(one) for one in ast.iter_child_nodes(node)))

    def _functions(self, call: ast.Call) -> tuple[Function, ...]:
        """The user's own functions that a call may be of."""
        if isinstance(call.func, ast.Name):
            return self._program.named(call.func.id, methods=False)
        if isinstance(call.func, ast.Attribute):
            root = _root(call.func)
            name = call.func.attr
            if isinstance(root, ast.Name) and root.id in self._imported:
                return ()
            return self._program.named(name, methods=True) or self._program.named(name, methods=False)
        return ()

    def _own_call(self, call: ast.Call) -> Call | None:
        functions = self._functions(call)
        if not functions:
            return None
        starred = any(isinstance(one, ast.Starred) for one in call.args)
        positional = () if starred else tuple(map(self._argument, call.args))
        named = {word.arg: self._argument(word.value) for word in call.keywords if word.arg is not None}
        values = (*call.args, *(word.value for word in call.keywords))
        made_by = tuple(one for value in values for one in self._called(value))
        return Call(functions, positional, named, Argument(self.keys(call), made_by), starred)

    def _argument(self, node: ast.expr) -> Argument:
        return Argument(self.keys(node), tuple(self._called(node)))

    def _called(self, node: ast.expr) -> Iterator[Function]:
        """The functions of the user's own that an expression calls."""
        for one in _walk([node]):
            if isinstance(one, ast.Call):
                yield from self._functions(one)

    def _handed_over(self, given: Sequence[ast.expr], calls: Sequence[ast.Call]) -> Iterator[Call]:
        """Functions of the user's own that are named and not called: somebody else may; a property is read so."""
        called = {id(one.func) for one in calls}
        for node in _walk(given):
            found: tuple[Function, ...] = ()
            if isinstance(node, ast.Name) and id(node) not in called and node.id not in self._function.variables:
                found = self._program.named(node.id, methods=False)
            elif isinstance(node, ast.Attribute) and id(node) not in called and node.attr not in self._program.fields:
                found = self._program.named(node.attr, methods=True)
            if found:
                yield Call(found, (), {}, Argument())

    def _written(self, node: ast.AST) -> frozenset[str]:
        """The keys of what is written into: of a field the field, else the variable, and all that it was got from."""
        attributes: list[str] = []
        while True:
            if isinstance(node, ast.Attribute):
                if node.attr not in _TRANSPARENT:
                    attributes.append(node.attr)
                node = node.value
            elif isinstance(node, ast.Subscript):
                node = node.value
            elif isinstance(node, ast.Call):
                if not isinstance(node.func, ast.Attribute):
                    return frozenset().union(*(self._written(one) for one in node.args[:1]))
                node = node.func.value
            else:
                break
        if attributes:
            return frozenset(f".{one}" for one in attributes)
        if not isinstance(node, ast.Name) or node.id in self._imported or node.id in _ITSELF:
            return frozenset()
        found, left = {self._key(node.id)}, [node.id]
        while left:
            for key in self._function.aliases.get(left.pop(), ()):
                if key not in found:
                    found.add(key)
                    left.append(key)
        return frozenset(found)

    def _written_by(self, call: ast.Call, *, alone: bool) -> list[frozenset[str]]:
        """What a call of a library's function writes into; ``alone``: nothing takes its result."""
        name = _last_name(call.func)
        if name in _SETS_NOTHING or (name not in _OF_CONTAINERS and self._functions(call)):
            return []
        in_place = name.endswith("_") and not name.startswith("__")
        of_library = not isinstance(call.func, ast.Attribute) or (
            isinstance(root := _root(call.func), ast.Name) and root.id in self._imported
        )
        if of_library:
            writes = in_place or name in _WRITES_FIRST or (name == "at" and alone)
            return [self._written(call.args[0])] if writes and call.args else []
        assert isinstance(call.func, ast.Attribute)
        if not in_place and (not alone or name in _REPORTS or (name not in _OF_CONTAINERS and _tells_text(call))):
            return []
        found = self._written(call.func.value)
        if not in_place:
            return [found]
        # A model's tensor that is written by a field of it: the model is.
        root = _root(call.func)
        whole = self._written(root) if isinstance(root, ast.Name) else frozenset[str]()
        return [found | whole]

    def _averages(self, node: ast.stmt, targets: Sequence[ast.expr], calls: Sequence[ast.Call], *, adds: bool) -> bool:
        """Whether it writes models' tensors, weighed or copied, into tensors; not their gradients, nor as a number."""
        if not self._of_tensors(node):
            return False
        names = {one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute)}
        if names & {"grad", "item", "tolist"}:
            return False
        if any(_last_name(call.func).endswith("_") and _last_name(call.func) not in _SETS_NOTHING for call in calls):
            return True
        weighs = any(isinstance(one, ast.BinOp) and isinstance(one.op, ast.Mult | ast.Div) for one in ast.walk(node))
        value = getattr(node, "value", None)
        if not targets or value is None:
            return False
        if adds:
            return weighs or (isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Mult | ast.Div))
        written = frozenset().union(*(self._written(one) for one in targets))
        return (weighs or "lerp" in names) and bool(written & (self.keys(value) | _all_names(value)))


def _parts(node: ast.stmt) -> Iterable[ast.stmt]:
    """``a, b = c, d`` as two assignments, and ``a, b = wrapped(a, b)`` as well; anything else as it is."""
    if not isinstance(node, ast.Assign) or len(node.targets) != 1 or not isinstance(node.targets[0], ast.Tuple):
        return [node]
    targets, value = node.targets[0].elts, node.value
    values: Sequence[ast.expr] = ()
    if isinstance(value, ast.Tuple):
        values = value.elts
    elif isinstance(value, ast.Call) and any(map(_same_name, targets, value.args)):
        values = [ast.copy_location(ast.Call(value.func, [one], value.keywords), value) for one in value.args]
    if len(values) != len(targets) or any(isinstance(one, ast.Starred) for one in (*targets, *values)):
        return [node]
    return [
        ast.copy_location(ast.Assign(targets=[one], value=given), node)
        for one, given in zip(targets, values, strict=True)
    ]


def _same_name(one: ast.expr, other: ast.expr) -> bool:
    return isinstance(one, ast.Name) and isinstance(other, ast.Name) and one.id == other.id


def _all_names(node: ast.AST) -> frozenset[str]:
    return frozenset(one.id for one in ast.walk(node) if isinstance(one, ast.Name))


def _is_way(node: ast.expr) -> bool:
    """Whether an expression gives something that there is already, or a part of it."""
    if isinstance(node, ast.Attribute | ast.Subscript):
        return _is_way(node.value)
    if isinstance(node, ast.ListComp):
        return _is_way(node.elt)
    passed = _PASSES_ON | LISTS_TENSORS | {"zip", "getattr"}
    return isinstance(node, ast.Name) or (isinstance(node, ast.Call) and _last_name(node.func) in passed)


def _starts_backward(call: ast.Call) -> bool:
    """``loss.backward()``, an engine's or a scaler's ``backward(loss)``, ``torch.autograd.grad``."""
    if not isinstance(call.func, ast.Attribute):
        return False
    return call.func.attr == "backward" or (call.func.attr == "grad" and _last_name(call.func.value) == "autograd")


def _tells_text(call: ast.Call) -> bool:
    """Whether all that a call is given is formatted text."""
    given = (*call.args, *(word.value for word in call.keywords))
    return bool(given) and all(isinstance(one, ast.JoinedStr) for one in given)


def _last_name(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Call):
        return _last_name(node.func)
    return node.id if isinstance(node, ast.Name) else ""


def _root(node: ast.AST) -> ast.AST:
    while True:
        if isinstance(node, ast.Attribute | ast.Subscript):
            node = node.value
        elif isinstance(node, ast.Call):
            node = node.func
        else:
            return node


#: What a transform of audio or images is made with: numbers, and tensors that it keeps as buffers.
_PLAIN_MAKERS = frozenset(
    ("torch", "np", "numpy", "math", "scipy", "int", "float", "bool", "len", "tuple", "max", "min")
)


def _is_plain(node: ast.AST) -> bool:
    """Whether a part of a module's text speaks for no parts of it, nor parameters.

    What is stored is a constant, an argument, or made by one of :data:`_PLAIN_MAKERS`, and nothing that is stored is
    called, or gone through; what is registered as a buffer may come of anything.
    """
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        stores = any(isinstance(one, ast.Attribute) and _first_name(one) in _ITSELF for one in targets)
        return (
            not stores
            or not isinstance(node.value, ast.Call | ast.ListComp)
            or _first_name(node.value) in _PLAIN_MAKERS
        )
    if isinstance(node, ast.For | ast.comprehension):
        return _first_name(node.iter) not in _ITSELF
    if not isinstance(node, ast.Call):
        return True
    name = _last_name(node.func)
    if isinstance(node.func, ast.Subscript) or name in ("setattr", "getattr", "register_parameter", "add_module"):
        return False
    if name[:1].isupper() and not name.endswith("Loss"):
        return False
    if any(isinstance(one, ast.Name) and one.id in _ITSELF for one in node.args):
        return False
    # self.encoder(x), self.encoder.features(x): not self.register_buffer(), self.window.to()
    return _first_name(node.func) not in _ITSELF or name in _OWN_OF_MODULES


#: Methods of each module and tensor, which a transform may call.
_OWN_OF_MODULES = frozenset(("register_buffer", "to", "float", "type", "unsqueeze", "view", "expand", "clamp", "size"))


def _first_name(node: ast.AST) -> str:
    """The name that an expression begins with: ``self`` of ``self.layers[0](x)``."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _imported(tree: ast.Module, texts: Mapping[str, str]) -> frozenset[str]:
    """Names that stand for libraries' modules and functions; the user's own modules' stay names of functions."""
    own = {file.replace("\\", "/").rsplit("/", 1)[-1].removesuffix(".py") for file in texts}
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {one.asname or one.name.split(".")[0] for one in node.names if one.name.split(".")[-1] not in own}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[-1] not in own and not node.level:
            found |= {one.asname or one.name for one in node.names if one.name not in own}
    return frozenset(found)


def _walk(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """All nodes but those inside of functions and classes that are defined there."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        yield node
        yield from _walk(ast.iter_child_nodes(node))


def _stored(body: Iterable[ast.AST]) -> Iterator[str]:
    outer: set[str] = set()
    names: list[str] = []
    for node in _walk(body):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.append(node.id)
        elif isinstance(node, ast.Global | ast.Nonlocal):
            outer.update(node.names)
    return (name for name in names if name not in outer)


def _read_inside(body: Iterable[ast.AST]) -> Iterator[str]:
    """Names that functions read which are defined in these lines."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from (one.id for one in ast.walk(node) if isinstance(one, ast.Name))
        else:
            yield from _read_inside(ast.iter_child_nodes(node))
