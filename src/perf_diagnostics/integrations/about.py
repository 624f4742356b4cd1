"""What is known about a training that is not ours, beside its steps."""

from __future__ import annotations

from dataclasses import dataclass, field

from perf_diagnostics.measure.host.pass_reads import PassReads
from perf_diagnostics.records import Json, Precision, Quantity

#: The fact that names the settings that were put into a script, with their values: it does not have them by itself.
FORCED = "forced_settings"


@dataclass
class About:
    """What is known about the training once its first step is over.

    ``samples`` is the batch's size as it was seen, None where nobody could tell; ``why_unseen`` says, for phases by
    name, why they could not be seen, for those that never were; ``notes`` are sentences for the run's record.
    ``loader_facts`` are those of the training's loader, which go on while it does. Whoever sees a pass over the data
    that trains begin or end tells ``pass_reads``. ``looked`` are facts of the steps that were looked through, and
    ``crossings`` numbers of what crossed in them between host and device; ``forced`` tells of settings that were put
    into the script, under :data:`FORCED`.
    """

    workload: str
    device: str = "cpu"
    samples: int | None = None
    precision: Precision = "float32"
    facts: dict[str, Json] = field(default_factory=dict)
    loader_facts: dict[str, Json] = field(default_factory=dict)
    quantities: list[Quantity] = field(default_factory=list)
    why_unseen: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    pass_reads: PassReads = field(default_factory=PassReads)
    looked: dict[str, Json] = field(default_factory=dict)
    crossings: list[Quantity] = field(default_factory=list)
    forced: dict[str, Json] = field(default_factory=dict)
