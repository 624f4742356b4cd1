"""What is gathered while a trial runs, whatever its end."""

from __future__ import annotations

from dataclasses import dataclass, field

from perf_diagnostics.measure.observation import Observations
from perf_diagnostics.records import CodeSamples, Json, Quantity


@dataclass
class Notes:
    """Numbers, plain values, their sources, and what could not be seen."""

    quantities: list[Quantity] = field(default_factory=list)
    facts: dict[str, Json] = field(default_factory=dict)
    provenance: dict[str, str] = field(default_factory=dict)
    observations: Observations = field(default_factory=Observations)
    code: CodeSamples | None = None
    worker_code: CodeSamples | None = None

    def quantity(self, name: str, value: float | None, unit: str, source: str) -> None:
        if value is not None:
            self.quantities.append(Quantity(name, float(value), unit, source))
