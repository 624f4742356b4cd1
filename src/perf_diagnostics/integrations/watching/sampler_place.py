"""Names what chooses the samples of a DataLoader: its class, and the line of its ``__iter__`` if that is the user's."""

from __future__ import annotations

from types import CodeType
from typing import Any

from perf_diagnostics.measure.code.code_places import CodePlaces
from perf_diagnostics.measure.code.own_code import Kind, OwnCode
from perf_diagnostics.records import Json

#: Samplers have others inside: those for batches have one for samples, those for ranks have one for batches.
_INSIDE = ("batch_sampler", "sampler")
_DEEPEST = 6


def sampler_of_iterator(iterator: Any) -> dict[str, Json]:
    """What a DataLoader's iterator draws its indices from; empty of a stream, which has none.

    ``name`` is the class; of one whose ``__iter__`` is the user's own code ``place`` has its file, line, function and
    text. Of several, one inside of the other, the outermost of the user's own is named, else the innermost.
    """
    samplers = _chain(vars(iterator).get("_index_sampler"))
    if not samplers or type(samplers[-1]).__name__ == "_InfiniteConstantSampler":
        return {}
    own = OwnCode()
    for sampler in samplers:
        code = getattr(getattr(type(sampler), "__iter__", None), "__code__", None)
        if isinstance(code, CodeType) and own.kind_of(code.co_filename) is Kind.OWN:
            place = CodePlaces().place(code, code.co_firstlineno)
            named: dict[str, Json] = {"file": place.file, "line": place.line, "function": place.function}
            return {"name": type(sampler).__qualname__, "place": {**named, "text": place.text}}
    return {"name": type(samplers[-1]).__qualname__}


def _chain(sampler: Any) -> list[Any]:
    """A sampler and those inside of it, as they keep them."""
    found: list[Any] = []
    while sampler is not None and len(found) < _DEEPEST:
        found.append(sampler)
        held = getattr(sampler, "__dict__", {})
        sampler = next((held[name] for name in _INSIDE if held.get(name) is not None), None)
    return found
