"""Which board is behind a device: by UUID, else by PCI address, never by index."""

import pytest

from perf_diagnostics.measure.boards.boards import (
    Board,
    PowerKind,
    board_of,
    board_uuid,
    match_board,
    pci_address,
    power_kind_of,
    series_source,
)
from perf_diagnostics.measure.observation import Unreadable

FIRST = Board(uuid="GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", pci_bus_id="0000:3b:00.0")
SECOND = Board(uuid="GPU-499943e5-f155-f631-f44c-a61ca5995fd2", pci_bus_id="0000:5e:00.0")


def test_the_frameworks_uuid_has_no_prefix() -> None:
    found = match_board((FIRST, SECOND), uuid="499943e5-f155-f631-f44c-a61ca5995fd2", pci_bus_id=None)
    assert found is SECOND


def test_spellings_of_a_uuid_are_one() -> None:
    assert board_uuid(" 499943E5-F155 ") == board_uuid("GPU-499943e5-f155") == "GPU-499943e5-f155"
    assert board_uuid("MIG-Ab12") == "MIG-Ab12"


@pytest.mark.parametrize("spelling", ["00000000:5E:00.0", "0000:5e:00.0", "0000:5e:00"])
def test_without_uuid_the_pci_address_decides_in_any_spelling(spelling: str) -> None:
    assert match_board((FIRST, SECOND), uuid=None, pci_bus_id=spelling) is SECOND


def test_the_uuid_decides_before_the_address() -> None:
    assert match_board((FIRST, SECOND), uuid=SECOND.uuid, pci_bus_id=FIRST.pci_bus_id) is SECOND


def test_an_address_that_is_none_is_not_written_as_one() -> None:
    assert pci_address("unknown") == "unknown"


def test_a_device_that_cannot_be_told_is_refused_even_where_there_is_only_one_board() -> None:
    with pytest.raises(Unreadable, match="gives neither UUID nor PCI address"):
        match_board((FIRST,), uuid=None, pci_bus_id=None)


def test_a_board_that_is_not_listed_is_refused_with_what_is() -> None:
    with pytest.raises(Unreadable) as refused:
        match_board((FIRST,), uuid="ffff", pci_bus_id=None, unlisted=("board 1: the GPU is lost",))
    assert refused.value.why == (f"the driver lists no board GPU-ffff (listed: {FIRST.uuid}); board 1: the GPU is lost")


@pytest.mark.parametrize(
    ("uuid", "address"),
    [
        ("MIG-1d3b", None),
        ("1d3b", None),  # an older torch
        ("1d3b", "0000:3b:00.0"),  # torch writes an instance's UUID without prefix; its address is the whole board's
        (None, "0000:3b:00.0"),
    ],
)
def test_a_mig_instance_is_refused_because_the_whole_board_would_be_read(uuid: str | None, address: str | None) -> None:
    split = Board(uuid=FIRST.uuid, pci_bus_id=FIRST.pci_bus_id, split=True)
    with pytest.raises(Unreadable, match="MIG instance"):
        match_board((split,), uuid=uuid, pci_bus_id=address)


def test_a_series_source_names_the_board_and_sets_averaged_power_apart() -> None:
    instant, average = series_source("GPU-1a", PowerKind.INSTANT), series_source("GPU-1a", PowerKind.AVERAGE)
    assert instant == series_source("GPU-1a") == "NVML GPU-1a"
    assert board_of(instant) == board_of(average) == "GPU-1a"
    assert (power_kind_of(instant), power_kind_of(average)) == (PowerKind.INSTANT, PowerKind.AVERAGE)
    assert board_of("psutil rss") is None
