"""Processes of one machine are known as such, and nobody learns which machine it is."""

from __future__ import annotations

from pathlib import Path

from perf_diagnostics.measure.host.host_identity import HostIdentity

BOOT = "3e4f8f0e-52c5-4a3b-9f43-0e8ab1a1a0b2"


def machine(root: Path, boot: str | None = BOOT, namespace: str | None = "time:[4026531834]") -> HostIdentity:
    kernel, process = root / "proc" / "sys" / "kernel" / "random", root / "proc" / "self" / "ns"
    kernel.mkdir(parents=True)
    process.mkdir(parents=True)
    if boot is not None:
        (kernel / "boot_id").write_text(f"{boot}\n")
    if namespace is not None:
        (process / "time").symlink_to(namespace)
    return HostIdentity.here(root=root)


def test_two_processes_of_a_machine_share_host_and_clock(tmp_path: Path) -> None:
    one, other = machine(tmp_path / "a"), machine(tmp_path / "b")
    assert one == other
    assert (len(one.host), one.host == one.clock) == (12, False)


def test_another_machine_or_another_start_is_another_host(tmp_path: Path) -> None:
    one, other = machine(tmp_path / "a"), machine(tmp_path / "b", boot=BOOT.replace("3", "4"))
    assert one.host != other.host and one.clock != other.clock


def test_a_container_with_a_clock_of_its_own_is_on_the_same_host(tmp_path: Path) -> None:
    one, other = machine(tmp_path / "a"), machine(tmp_path / "b", namespace="time:[4026532999]")
    assert one.host == other.host and one.clock != other.clock


def test_without_a_boot_id_the_machine_still_has_an_identity_that_names_nobody(tmp_path: Path) -> None:
    import platform

    found = machine(tmp_path / "a", boot=None, namespace=None)
    assert found == machine(tmp_path / "b", boot=None, namespace=None)
    assert len(found.host) == 12 and platform.node() not in found.host


def test_the_boot_id_itself_is_not_told(tmp_path: Path) -> None:
    assert machine(tmp_path).host not in BOOT.replace("-", "")
