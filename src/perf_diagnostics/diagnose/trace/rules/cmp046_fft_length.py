"""CMP046 for traces of the CPU: Fourier transforms of lengths with large prime factors, by their inputs' sizes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from perf_diagnostics.diagnose.facts.facts import Interval, NotApplicable, NotMeasured
from perf_diagnostics.diagnose.finding import Evidence, Family, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade
from perf_diagnostics.diagnose.rules.cmp046_fft_length import PAD, FftLength
from perf_diagnostics.diagnose.trace.events import Events, Kind
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.inputs import TRANSFORMS, Inputs
from perf_diagnostics.diagnose.trace.intervals import Times
from perf_diagnostics.diagnose.trace.python_frames import in_functions
from perf_diagnostics.diagnose.trace.rule import caused
from perf_diagnostics.diagnose.wording import counted, percent
from perf_diagnostics.prime_factors import fast_length, largest_factor

#: From 23 on a prime factor is told: of 34, 4,352 and 69,632 numbers, which are 17 times powers of 2, MKL's transforms
#: were slower by 0 to 41 % only.
_SLOW_FACTOR = 23

#: The part of a transform's time that the next fast length saves: of 46 lengths from 129 to 15,801 with such factors,
#: forth and back, the least, the median and the most (torch 2.13 with MKL, two cores).
_LEAST, _USUAL, _MOST = 0.44, 0.82, 0.94

#: No longer transform is looked at: finding a prime factor takes the longer, the longer it is.
_LONGEST = 2**24


@dataclass(frozen=True)
class SlowTransforms:
    """Transforms along one dimension have a length with a large prime factor."""

    code: ClassVar[str] = FftLength.code
    name: ClassVar[str] = FftLength.name
    family: ClassVar[Family] = FftLength.family
    looks_at: ClassVar[Literal["trace"]] = "trace"

    limits: FftLength = field(default_factory=FftLength)

    def check(self, facts: TraceFacts) -> Answer:
        facts.require_sound()
        facts.require_steady()
        trace = facts.trace
        transforms = trace.named(lambda name: name in TRANSFORMS)
        operators = trace.of(Kind.OPERATOR)
        operators = operators.where(
            transforms[operators.name] & (facts.steps.windows.containing(operators.start_ns) >= 0)
        )
        if facts.on_device or not len(operators):
            raise NotApplicable("transforms", "no Fourier transform of the CPU is in the trace")
        operators = operators.where(operators.told >= 0)
        if not len(operators):
            raise NotMeasured("input_dims", "the trace does not tell how long transforms are: record_shapes=True does")
        lengths = np.array([_length(inputs) for inputs in trace.inputs])
        slow = np.array([largest_factor(length) >= _SLOW_FACTOR for length in lengths.tolist()], np.bool_)
        rows = operators.where(slow[operators.told])
        times = Times.union(rows.start_ns, rows.end_ns)
        share = facts.share_of(times)
        saved = Interval(_USUAL * share.value, _LEAST * share.value, _MOST * share.value, len(facts.steps))
        number = evidence("transforms of slow lengths", share, "%", limit=self.limits.info_share)
        levels = (Severity.INFO, self.limits.info_share), (Severity.WARNING, self.limits.warn_share)
        level = grade(saved, levels)
        if level is None:
            return cleared(self, f"transforms of slow lengths take {percent(share.value)} of a step", number)
        dearest, *others = _by_time(rows, lengths)
        return caused(
            self,
            facts,
            level,
            summary=f"{percent(share.value)} of each step goes into Fourier transforms of "
            f"{_lengths(dearest, len(others))}, which libraries do the slow way; {fast_length(dearest):,} has small "
            f"factors alone{in_functions(facts, times)}.",
            numbers=(
                number,
                Evidence(metric="length of the transforms", value=dearest),
                Evidence(metric="next fast length", value=fast_length(dearest)),
            ),
            remedies=(PAD,),
            gain=saved,
        )


def _length(inputs: Inputs) -> int:
    """How many numbers a transform along one dimension is of; 1 of all else."""
    given, numbers = inputs.sizes[0] if inputs.sizes else (), inputs.numbers
    try:
        dim, last = int(numbers[1].strip("[]")), numbers[3]
        # Back to real numbers the input is about half as long as what comes out, whose length is the last argument.
        length = int(last) if last not in ("True", "False") else given[dim]
    except (IndexError, ValueError):
        return 1
    return length if 1 < length <= _LONGEST else 1


def _by_time(rows: Events, lengths: NDArray[np.int_]) -> list[int]:
    """The lengths of these transforms, the one that takes most first."""
    found, number = np.unique(lengths[rows.told], return_inverse=True)
    took = np.bincount(number, weights=rows.duration_ns)
    return [int(found[at]) for at in np.argsort(-took, kind="stable")]


def _lengths(dearest: int, others: int) -> str:
    factor = largest_factor(dearest)
    prime = "a prime" if factor == dearest else f"of which {factor:,} is a prime factor"
    more = f", and of {counted(others, 'other length')}" if others else ""
    return f"{dearest:,} numbers ({prime}){more}"
