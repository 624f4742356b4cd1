"""How much a device's PCIe link can carry, as it ran in the steady steps, and how much of it the trial's copies used.

The rate is that of the link at hand, never a fixed number: 20 GB/s are more than generation 3 can carry and a third of
what generation 5 can.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from perf_diagnostics.diagnose.facts.facts import Interval, NotMeasured, TrialFacts
from perf_diagnostics.diagnose.facts.power_facts import within_steps
from perf_diagnostics.records import Float64, Phase, Series

#: Bytes a second of one lane in one direction, after the line code: transfers a second times 8b/10b (generations 1 and
#: 2), 128b/130b (3 to 5) or 242 of 256 bytes of a flit (6) (PCI Express Base Specification, revisions 1.0 to 6.0).
LANE_BYTES_PER_S: Mapping[int, float] = {
    1: 2.5e9 * 8 / 10 / 8,
    2: 5e9 * 8 / 10 / 8,
    3: 8e9 * 128 / 130 / 8,
    4: 16e9 * 128 / 130 / 8,
    5: 32e9 * 128 / 130 / 8,
    6: 64e9 * 242 / 256 / 8,
}

#: What is left of it for data: headers of packets of 256 bytes, acknowledgements, flow control (the catalogue's 0.85).
PAYLOAD = 0.85

#: More than this over what the link can carry is a wrong count, or another link (NVLink-C2C).
IMPOSSIBLE = 1 / PAYLOAD

#: The part of the driver's samples above which the busiest are: a copy fills a part of a step, and few samples hit it.
_BUSIEST = 0.90


@dataclass(frozen=True)
class Link:
    """A link as it ran in the steps, and the best that board and machine can have (None: not recorded)."""

    generation: int
    width: int
    generation_max: int | None
    width_max: int | None

    @property
    def bytes_per_s(self) -> float:
        """What it can carry in one direction, in bytes of data a second."""
        return LANE_BYTES_PER_S[self.generation] * self.width * PAYLOAD

    @property
    def reduced(self) -> bool:
        """Whether it ran below what it could."""
        slower = self.generation_max is not None and self.generation < self.generation_max
        return slower or (self.width_max is not None and self.width < self.width_max)

    def __str__(self) -> str:
        return f"generation {self.generation} x{self.width}"

    @property
    def best(self) -> str:
        """The best it could be, in the same words."""
        return f"generation {self.generation_max or self.generation} x{self.width_max or self.width}"


def link_of(facts: TrialFacts) -> Link:
    """The link at its best in the steady steps: it runs slower while the board is idle.

    Raises:
        NotMeasured: it was not sampled in them, or is of a generation that is not known here.
    """
    generation, width = (int(_in_steps(facts, f"gpu_pcie_{what}").max()) for what in ("generation", "width"))
    if generation not in LANE_BYTES_PER_S or width < 1:
        raise NotMeasured("gpu_pcie_generation", f"nothing is known of a link of generation {generation} x{width}")
    return Link(generation, width, _noted(facts, "pcie_generation_max"), _noted(facts, "pcie_width_max"))


def used_share(facts: TrialFacts, link: Link) -> tuple[Interval, str]:
    """How much of what the link can carry the copies to the device used while they ran, and how that is known.

    From the bytes that a step copies in ``transfer`` over the device's time in it; else from what the driver counted
    in the busiest tenth of its samples, without an interval.

    Raises:
        NotMeasured: neither was recorded, or they are more than the link can carry.
    """
    found, how = _by_copies(facts, link) or _by_samples(facts, link)
    if found.value > IMPOSSIBLE:
        raise NotMeasured(
            "gpu_pcie_received",
            f"{found.value:.2f} times what PCIe {link} carries: the copies take another link, or a count is wrong",
        )
    return found.within(0.0, 1.0), how


def pinned_rate_share(facts: TrialFacts) -> float:
    """How fast the copies in ``transfer`` are, over large copies from pinned memory, 0…1.

    Raises:
        NotMeasured: the bytes, the device's time in transfer, or the rate from pinned memory are not known.
    """
    copied = facts.quantity("copies_in_transfer_bytes")
    time = facts.phase_time_s(Phase.TRANSFER).value
    if not time > 0:
        raise NotMeasured("device_transfer_ns", "the copies took no time")
    return min(1.0, copied / time / facts.quantity("host_to_device_bandwidth"))


def _by_copies(facts: TrialFacts, link: Link) -> tuple[Interval, str] | None:
    copied = facts.result.value("copies_in_transfer_bytes")
    if not copied or facts.table.device_ns(Phase.TRANSFER) is None:
        return None
    time = facts.phase_time_s(Phase.TRANSFER)
    if not time.value > 0:
        return None
    amount = copied / link.bytes_per_s
    low = None if time.high is None else amount / time.high
    high = None if time.low is None or time.low <= 0 else amount / time.low
    return Interval(amount / time.value, low, high, time.n), "bytes copied in transfer over the device's time in it"


def _by_samples(facts: TrialFacts, link: Link) -> tuple[Interval, str]:
    received = within_steps(facts, "gpu_pcie_received")
    busiest = float(np.quantile(received.values, _BUSIEST))
    share = Interval(busiest / link.bytes_per_s, None, None, int(received.values.size))
    return share, f"{received.source}, busiest 10 % of the samples"


def _in_steps(facts: TrialFacts, name: str) -> Float64:
    facts.require_accelerator(name)
    series: Series | None = facts.result.series_named(name)
    if series is None or not series.values.size:
        raise facts.missing(name, f"{name} was not sampled")
    began_ns, starts = facts.quantity("steps_began_s") * 1e9, facts.column("start_ns")
    ended_ns = began_ns + float(starts[-1] - starts[0]) + float(facts.column("wall_ns")[-1])
    inside: Float64 = series.values[(series.times_ns >= began_ns) & (series.times_ns <= ended_ns)]
    if not inside.size:
        raise NotMeasured(name, "no sample (every 0.5 s) lies in the steady steps; measure for longer")
    return inside


def _noted(facts: TrialFacts, name: str) -> int | None:
    """A fact about the trial's device that the environment recorded."""
    for device in facts.result.environment.devices:
        value = device.get(name)
        if device.get("name") == facts.result.trial.settings.device and isinstance(value, int):
            return value
    return None
