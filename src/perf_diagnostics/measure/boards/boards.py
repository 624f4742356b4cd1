"""A GPU board as its driver knows it, what can be read from it, and which board is behind a framework's device."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from perf_diagnostics.measure.observation import Unreadable

_PCI = re.compile(r"([0-9a-fA-F]{4,8}):([0-9a-fA-F]{1,2}):([0-9a-fA-F]{1,2})")
_UUID = re.compile(r"(?:GPU|MIG)-[0-9A-Za-z-]+")


class PowerKind(enum.StrEnum):
    """What one power reading is: the draw at that moment, or the mean of about the last second (which lags)."""

    INSTANT = "instantaneous power"
    AVERAGE = "power averaged over 1 s"


@dataclass(frozen=True, kw_only=True)
class Board:
    """One GPU as the driver knows it; what the driver does not report is None.

    ``pcie_generation_max`` and ``pcie_width_max`` (in lanes) are the best link that board and machine can have.
    ``split`` says that the board is divided into MIG instances, whose power and utilisation NVML does not report.
    """

    uuid: str
    pci_bus_id: str | None = None
    name: str | None = None
    driver: str | None = None
    power_limit_w: float | None = None
    default_power_limit_w: float | None = None
    power_kind: PowerKind | None = None
    pcie_generation_max: int | None = None
    pcie_width_max: int | None = None
    split: bool = False


class BoardReader(Protocol):
    """Reads boards by UUID. Every method raises Unreadable for what cannot be read."""

    def boards(self) -> tuple[Board, ...]:
        """All boards the driver lists."""

    @property
    def unlisted(self) -> tuple[str, ...]:
        """Why a board the driver counts could not be listed, a sentence each."""

    def read(self, uuid: str, signal: str) -> float:
        """One reading of a ``gpu_*`` signal of :data:`~perf_diagnostics.records.SERIES`, in its unit."""

    def process_memory(self, uuid: str) -> Mapping[int, int]:
        """Memory each process holds on the board, in bytes, by process id."""


def series_source(uuid: str, kind: PowerKind | None = None) -> str:
    """The source of a board's series: ``NVML GPU-…``, and what sets an averaged power reading apart."""
    return f"NVML {uuid}, {kind}" if kind is PowerKind.AVERAGE else f"NVML {uuid}"


def board_of(source: str) -> str | None:
    """The UUID of the board a series' source names, or None if it names none."""
    found = _UUID.search(source)
    return None if found is None else found[0]


def power_kind_of(source: str) -> PowerKind:
    """What the readings of a power series are, by its source."""
    return PowerKind.AVERAGE if source.endswith(PowerKind.AVERAGE) else PowerKind.INSTANT


def board_uuid(text: str) -> str:
    """A board's UUID as NVML writes it: ``GPU-`` and 36 lower-case characters. torch writes it without the prefix."""
    plain = text.strip()
    if plain.startswith("MIG-"):
        return plain
    return "GPU-" + plain.removeprefix("GPU-").lower()


def pci_address(text: str) -> str:
    """A PCI address in one spelling: NVML writes ``00000000:3B:00.0``, the kernel ``0000:3b:00.0``."""
    found = _PCI.search(text)
    if found is None:
        return text.strip().lower()
    domain, bus, device = (int(part, 16) for part in found.groups()[:3])
    return f"{domain:04x}:{bus:02x}:{device:02x}.0"


def match_board(
    boards: tuple[Board, ...], *, uuid: str | None, pci_bus_id: str | None, unlisted: tuple[str, ...] = ()
) -> Board:
    """The board behind a device of the framework: by UUID, else by PCI address, never by index.

    Indexes differ: ``CUDA_VISIBLE_DEVICES`` and ``CUDA_DEVICE_ORDER`` change the framework's, not the driver's.

    Raises:
        Unreadable: the device carries neither, no listed board has it, or the board is split into MIG instances.
    """
    wanted = None if uuid is None else board_uuid(uuid)
    address = None if pci_bus_id is None else pci_address(pci_bus_id)
    found = next((board for board in boards if board.uuid == wanted), None) or next(
        (board for board in boards if address is not None and board.pci_bus_id == address), None
    )
    # torch tells an instance's own UUID without the prefix that says so, and older versions tell no PCI address.
    unplaced = found is None and wanted is not None and address is None
    instance = (wanted or "").startswith("MIG-") or (found is not None and found.split)
    if instance or (unplaced and boards and all(board.split for board in boards)):
        raise Unreadable(
            "the device is a MIG instance, and NVML reports power, energy and utilisation of whole boards only",
            lasting=True,
        )
    if found is not None:
        return found
    if uuid is None and pci_bus_id is None:
        raise Unreadable("the framework gives neither UUID nor PCI address of the device", lasting=True)
    listed = ", ".join(board.uuid for board in boards) or "none"
    why = "; ".join((f"the driver lists no board {wanted or pci_bus_id} (listed: {listed})", *unlisted))
    raise Unreadable(why, lasting=True)
