"""Why torch.compile made another graph of a function: what a guard means in words, and what can be done about it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from perf_diagnostics.diagnose.code.code_words import function, place
from perf_diagnostics.diagnose.facts.compilation_facts import Compiled, Guard
from perf_diagnostics.diagnose.finding import Remedy

#: Python's numbers as they stand in a guard.
_A_NUMBER = r"-?\d[\d.]*(?:e[+-]?\d+)?"

#: How torch writes what it reaches from a function's arguments: ``L['self'].updates``.
_LOCAL = re.compile(r"\bL\['(\w+)'\]")

_GENERAL = Remedy(
    "Let what changes from call to call come in as a tensor, and keep all else the same; TORCH_LOGS=recompiles tells "
    "of each graph why it was made."
)


@dataclass(frozen=True)
class _Kind:
    """Guards of one kind: how they are written, what one that fails says, and what can be done."""

    written: re.Pattern[str]
    says: Callable[[re.Match[str]], str]
    remedy: Callable[[re.Match[str]], Remedy]


def _number_remedy(found: re.Match[str]) -> Remedy:
    says = f"Let {_named(found)} be a tensor, of which one graph does for all values"
    if not _named(found).startswith("self."):
        return Remedy(f"{says}, or compute what needs it outside of what is compiled.")
    return Remedy(
        f"{says} (register_buffer of a module), or compute what needs it outside of what is compiled. An integer of a "
        "module may stay one with torch._dynamo.config.allow_unspec_int_on_nn_module = True, where your torch has that."
    )


def _size_remedy(found: re.Match[str]) -> Remedy:
    return Remedy(
        f"Mark the dimension as dynamic: torch._dynamo.mark_dynamic({_named(found)}, {found['dimension']}) before the "
        "call, or torch.compile(…, dynamic=True), where dynamic=False stands now. Or pad to few sizes."
    )


_KINDS = (
    _Kind(
        re.compile(r"tensor '(?P<name>.+)' size mismatch at index (?P<dimension>\d+)\..*"),
        lambda found: f"dimension {found['dimension']} of {_named(found)} has another size",
        _size_remedy,
    ),
    _Kind(
        re.compile(r"tensor '(?P<name>.+)' (?:stride|dtype|device) mismatch.*|tensor '(?P<other>.+)' .*mismatch.*"),
        lambda found: f"{_named(found)} is another kind of tensor",
        lambda found: Remedy(f"Bring {_named(found)} into one form (type, layout, gradient or none) before the call."),
    ),
    _Kind(
        re.compile(r"len\((?P<name>.+)\) == \d+"),
        lambda found: f"{_named(found)} has another length",
        lambda found: Remedy(f"Let {_named(found)} be one tensor (stacked, padded), or always as long."),
    ),
    _Kind(
        re.compile(rf"(?P<name>.+?) (?:==|<=|>=|<|>|!=) {_A_NUMBER}"),
        lambda found: f"{_named(found)} is another number",
        _number_remedy,
    ),
    _Kind(
        re.compile(r"(?P<name>GLOBAL_STATE) changed: .*"),
        lambda _found: "torch's global state (gradients on or off, threads, precision) is another one",
        lambda _found: Remedy("Call it in one state: evaluation without gradients needs a graph of its own, but one."),
    ),
    _Kind(
        re.compile(r"___check_(?:obj|type)_id\((?P<name>[^,]+),.*"),
        lambda found: f"{_named(found)} is another object",
        lambda found: Remedy(f"Make {_named(found)} once, not anew for each call."),
    ),
)


def why_again(guard: Guard) -> str:
    """Why a graph did not do, in a clause: ``self.updates is another number each time (model.py:73)``."""
    kind = _kind(guard)
    often = " each time" if guard.times > 1 else ""
    says = f"`{guard.text}` did not hold" if kind is None else f"{kind[0].says(kind[1])}{often}"
    return says if guard.place is None else f"{says} ({place(guard.place)})"


def against_guard(guard: Guard) -> Remedy:
    """What can be done so that one graph does."""
    kind = _kind(guard)
    return _GENERAL if kind is None else kind[0].remedy(kind[1])


def told_function(compiled: Compiled) -> str:
    """``Net.forward (model.py:76)``; what torch wraps around modules of its own is all that it tells of these."""
    if compiled.wraps_torch:
        return "a module of torch's own (such as a Sequential)"
    name = function(compiled.place)
    return f"{name} ({place(compiled.place)})" if name else place(compiled.place)


def _kind(guard: Guard) -> tuple[_Kind, re.Match[str]] | None:
    for kind in _KINDS:
        found = kind.written.fullmatch(guard.text)
        if found is not None:
            return kind, found
    return None


def _named(found: re.Match[str]) -> str:
    """What a guard speaks of, as it stands in the program."""
    names = found.groupdict()
    name = names["name"] or names.get("other") or ""
    return "a value that was read" if name.startswith("___stack") else _LOCAL.sub(r"\1", name)
