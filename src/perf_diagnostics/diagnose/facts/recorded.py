"""A trial's records behind one door: a column, a quantity, a fact, or NotMeasured with the gap that was recorded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from perf_diagnostics.diagnose.not_measured import NotApplicable, NotMeasured
from perf_diagnostics.diagnose.statistics.intervals import Interval, ratio_interval
from perf_diagnostics.records import COLUMNS, QUANTITIES, CodePlace, Float64, Json, Phase, StepTable, TrialResult

P = ParamSpec("P")
T = TypeVar("T")


def ask(question: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T | None:
    """The answer, or None if nobody measured it: for evidence that is welcome but not needed."""
    try:
        return question(*arguments, **named)
    except NotMeasured:
        return None


def place_of(told: Json) -> CodePlace | None:
    """The line of the user's code that a fact names by ``file``, ``line``, ``function`` and ``text``; None without."""
    if not isinstance(told, dict):
        return None
    file, line, function = told.get("file"), told.get("line"), told.get("function")
    if isinstance(file, str) and isinstance(line, int) and isinstance(function, str):
        return CodePlace(file=file, line=line, function=function, text=str(told.get("text", "")))
    return None


@dataclass(frozen=True, eq=False)
class Recorded:
    """A trial's result and its table of steady steps (rank 0); every look-up gives a value or raises NotMeasured."""

    result: TrialResult
    table: StepTable

    @property
    def batch_size(self) -> int:
        return self.result.trial.settings.batch_size

    @property
    def on_accelerator(self) -> bool:
        return not self.result.trial.settings.device.startswith("cpu")

    @property
    def compiled(self) -> bool:
        """Whether the model is known to be compiled, by the trial's settings or by what was seen of it."""
        return self.result.trial.settings.compile_mode is not None or self.result.facts.get("compiled") is True

    @property
    def steps(self) -> int:
        """Steady steps, warm-up excluded; 0 where there are none."""
        return len(self.table)

    @cached_property
    def step_numbers(self) -> NDArray[np.intp]:
        """Which of the recorded steps the steady ones are: steps that do not count may lie among them, too."""
        steady = np.flatnonzero(~self.result.steps[0].columns["warmup"]) if self.result.steps else np.arange(0)
        return steady if steady.size == self.steps else np.arange(self.steps)

    def number(self, fact: str) -> float:
        """A plain number among the trial's facts, such as ``num_workers``."""
        value = self.result.facts.get(fact)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.missing(fact, f"{fact} was not recorded")
        return float(value)

    def word(self, fact: str) -> str | None:
        """A plain text among the trial's facts, or None."""
        value = self.result.facts.get(fact)
        return value if isinstance(value, str) else None

    def quantity(self, name: str) -> float:
        """A quantity about the whole trial, in the unit that :data:`QUANTITIES` gives."""
        value = self.result.value(name)
        if value is None:
            raise self.missing(name, _not_recorded(name))
        return value

    def column(self, name: str, *, least: int = 1) -> NDArray[Any]:
        """A column of the steady steps, of which there are at least so many."""
        if self.steps < least:
            ended = f" ({self.result.outcome}: {self.result.reason})" if self.result.reason else ""
            raise NotMeasured("steps", f"{self.steps} steady steps; this needs at least {least}{ended}")
        values = self.table.get(name)
        if values is None:
            raise self.missing(name, _not_recorded(name))
        return values

    def finite_column(self, name: str) -> Float64:
        """The values of a column without those that were lost."""
        values = self.column(name)
        known: Float64 = values[np.isfinite(values)]
        if not known.size:
            raise self.missing(name, f"no step has a value of {name}")
        return known

    def host_column(self, phase: Phase) -> NDArray[Any]:
        """The host's time of a phase in each steady step, in ns."""
        self.column("wall_ns")
        values = self.table.host_ns(phase)
        if values is None:
            raise self.missing(f"host_{phase}_ns", f"the loop does not mark its {phase}")
        return values

    def ratio(self, signal: str, above: NDArray[Any], below: NDArray[Any]) -> Interval:
        """The sum of one column over that of another."""
        if not below.sum() > 0:
            raise NotMeasured(signal, "what it is a share of is zero")
        return ratio_interval(above, below)

    def require_accelerator(self, signal: str) -> None:
        """Raise NotApplicable in a trial on the CPU."""
        if not self.on_accelerator:
            raise NotApplicable(signal, "the trial ran on the CPU")

    def missing(self, signal: str, otherwise: str) -> NotMeasured:
        """What to raise for a signal that is not there: with the trial's own reason, if it recorded one."""
        gap = self.result.gap(signal)
        return NotMeasured(signal, otherwise if gap is None else gap.why)


def _not_recorded(name: str) -> str:
    """The bare name of a signal says nothing to a reader who does not know the records."""
    says = QUANTITIES[name][1] if name in QUANTITIES else COLUMNS[name].says if name in COLUMNS else ""
    return f"{name} was not recorded: {says}" if says else f"{name} was not recorded"
