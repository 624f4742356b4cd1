"""Counts the training's passes over its data, and the DataLoaders that they came from."""

from __future__ import annotations

import functools
import weakref
from types import CodeType
from typing import Any

from torch.utils.data import DataLoader

from perf_diagnostics.measure.code.code_places import CodePlaces
from perf_diagnostics.measure.code.own_code import Kind, OwnCode
from perf_diagnostics.measure.faults import FAULTS
from perf_diagnostics.records import Json
from perf_diagnostics.workloads.batch_parts import BatchParts
from perf_diagnostics.workloads.loaders import batches_a_pass, loader_facts
from perf_diagnostics.workloads.padded_length import PaddedLength, padded_length

#: Batches that are looked through for what they are made of: some loaders give them of changing length.
_LOOKED_THROUGH = 4


class Passes:
    """The passes so far; a loader that is gone is not taken for another one at its address.

    ``facts`` are those of the first DataLoader, how many batches a whole pass over it has (``batches_a_pass``, where
    torch's own samplers tell), how many passes DataLoaders gave (``passes``), and of how many of them
    (``loaders``): as many where one is made anew for each pass. What its first batches held is the mean of
    ``batch_tensors``, tensors with memory of their own, and ``batch_bytes``. Where sequences in all of these batches
    were equally long (``batch_length``), ``batch_length_unused`` is the mean of the places at one end in which all
    samples of a batch held the same number. ``batch_padding`` are the parts of the places of these batches that are
    padding for certain, where all of them held sequences; ``collate`` is the line of the function that makes the
    batches, if that is the user's own.
    """

    def __init__(self) -> None:
        self.facts: dict[str, Json] = {}
        self._passes = self._loaders = 0
        self._met: weakref.WeakValueDictionary[int, DataLoader[Any]] = weakref.WeakValueDictionary()
        #: Loaders of other classes: whoever watches one keeps it.
        self._others: set[int] = set()
        self._held: list[BatchParts] = []
        self._lengths: list[PaddedLength | None] = []
        self._opaque = False
        #: Of the pass that began last: whether it is counted, its loader by identity if that is new, and whether the
        #: facts came with it.
        self._last: tuple[bool, int | None, bool] = (False, None, False)

    def knows(self, loader: object) -> bool:
        """Whether a pass came from it already."""
        return self._met.get(id(loader)) is loader or id(loader) in self._others

    def begin(self, loader: object) -> None:
        """A pass over this loader's data begins."""
        known = self.knows(loader)
        counted = isinstance(loader, DataLoader)
        self._last = (counted, None if known else id(loader), counted and not self.facts)
        if not isinstance(loader, DataLoader):
            self._others.add(id(loader))
            return
        if not known:
            self._met[id(loader)] = loader
            self._loaders += 1
            if not self.facts:
                batches = batches_a_pass(loader)
                self.facts = loader_facts(loader) | ({} if batches is None else {"batches_a_pass": batches})
                self.facts |= _own_collate(loader)
        self._passes += 1
        self.facts |= {"passes": self._passes, "loaders": self._loaders}

    def take_back(self) -> None:
        """The pass that began last was an evaluation's."""
        counted, loader, first = self._last
        self._last = (False, None, False)
        if loader is not None:
            self._others.discard(loader)
            self._met.pop(loader, None)
            self._loaders -= counted
        self._passes -= counted
        if first:
            self.facts = {}
            self._held, self._lengths, self._opaque = [], [], False
        elif counted:
            self.facts |= {"passes": self._passes, "loaders": self._loaders}

    def batch_came(self, batch: object) -> None:
        """A batch of the training; the first ones are looked through, unless one cannot be."""
        if len(self._held) >= _LOOKED_THROUGH or not self.facts or self._opaque:
            return
        try:
            self._held.append(BatchParts.of(batch))
            self._lengths.append(padded_length(batch))
        except FAULTS:  # a class of the user's own, which measuring does not end for
            self._opaque = True
            return
        looked = len(self._held)
        self.facts["batch_tensors"] = sum(held.tensors for held in self._held) / looked
        self.facts["batch_bytes"] = sum(held.bytes for held in self._held) / looked
        known = [length for length in self._lengths if length is not None]
        if len(known) == looked:
            self.facts["batch_padding"] = [length.padding for length in known]
        else:
            self.facts.pop("batch_padding", None)
        if len(known) == looked and len({length.length for length in known}) == 1:
            self.facts["batch_length"] = known[0].length
            self.facts["batch_length_unused"] = sum(length.unused for length in known) / looked
        else:
            self.facts.pop("batch_length", None)
            self.facts.pop("batch_length_unused", None)


def _own_collate(loader: DataLoader[Any]) -> dict[str, Json]:
    """The line of the user's own function that makes a batch of samples; empty where it is torch's or a library's."""
    function: Any = loader.collate_fn
    while isinstance(function, functools.partial):
        function = function.func
    called = function if hasattr(function, "__code__") else vars(type(function)).get("__call__")
    code = getattr(called, "__code__", None)
    if not isinstance(code, CodeType) or OwnCode().kind_of(code.co_filename) is not Kind.OWN:
        return {}
    place = CodePlaces().place(code, code.co_firstlineno)
    return {"collate": {"file": place.file, "line": place.line, "function": place.function, "text": place.text}}
