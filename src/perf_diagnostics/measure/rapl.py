"""Energy of the processor packages and their memory, from the counters the Linux kernel publishes (RAPL powercap)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from perf_diagnostics.measure.observation import Readings, Track, Unreadable
from perf_diagnostics.records import Quantity

POWERCAP = Path("/sys/class/powercap")

#: No package comes near this (the largest are sold with 500 W): a wrap that would mean more was not a wrap.
MOST_DOMAIN_POWER_W = 2000.0


@dataclass(frozen=True)
class RaplDomain:
    """One counter: ``package-0`` or the ``dram`` of a package. It counts microjoules and wraps after ``range_uj``."""

    name: str
    folder: Path
    range_uj: int

    def read_uj(self) -> int:
        return int(_read(self.folder / "energy_uj"))


def rapl_domains(powercap: Path = POWERCAP) -> tuple[RaplDomain, ...]:
    """Every package and every package's memory, once each. The kernel names AMD's counters ``intel-rapl`` too.

    Left out are the parts of a package (core, uncore), psys (the platform: it contains the packages), and
    ``intel-rapl-mmio``, which is the same package counter by another road.

    Raises:
        Unreadable: there are none (a virtual machine, another system), or they may not be read.
    """
    folders = sorted(powercap.glob("intel-rapl:*")) if powercap.is_dir() else []
    domains = []
    for folder in folders:
        name = _read(folder / "name")
        if name.startswith("package") or name == "dram":
            range_uj = int(_read(folder / "max_energy_range_uj"))
            domains.append(RaplDomain(name, folder, range_uj))
    if not any(domain.name.startswith("package") for domain in domains):
        raise Unreadable(
            "no RAPL counters in /sys/class/powercap: a virtual machine, or a processor or system without them",
            lasting=True,
        )
    return tuple(domains)


class RaplInstrument:
    """Samples all packages and their memory: power between two readings, and the energy of the whole sampled time.

    The counters know packages, not processes: what else runs on the machine is in them.
    """

    name = "RAPL"
    signals = ("cpu_power", "energy_cpu")  # energy_cpu_window_s comes and goes with energy_cpu

    def __init__(self, powercap: Path = POWERCAP) -> None:
        self._powercap = powercap
        self._domains: tuple[RaplDomain, ...] = ()
        self._last_uj: list[int] = []
        self._first_ns: int | None = None
        self._last_ns: int | None = None
        self._total_uj = 0
        self._complete = True
        self._track = Track("cpu_power", "RAPL")

    @property
    def source(self) -> str:
        """``RAPL package + dram, whole machine``: the kinds of domains that are summed."""
        kinds = {"dram" if domain.name == "dram" else "package" for domain in self._domains}
        return f"RAPL {' + '.join(sorted(kinds, reverse=True))}, whole machine"

    def start(self, pid: int) -> None:
        self._domains = rapl_domains(self._powercap)
        for domain in self._domains:
            domain.read_uj()  # a kernel that hides the counter says so here, before anything relies on it
        self._track = Track("cpu_power", self.source)

    def sample(self, now_ns: int) -> None:
        self._complete = False
        # All or none: a sum without one package would look like a drop in power. The counters keep what was missed.
        readings_uj = [domain.read_uj() for domain in self._domains]
        if self._last_ns is None:
            self._last_uj, self._first_ns, self._last_ns = readings_uj, now_ns, now_ns
        elif now_ns > self._last_ns:
            elapsed_ns = now_ns - self._last_ns
            used_uj = sum(
                _used_uj(domain, before, now, elapsed_ns)
                for domain, before, now in zip(self._domains, self._last_uj, readings_uj, strict=True)
            )
            self._last_uj, self._last_ns = readings_uj, now_ns
            self._total_uj += used_uj
            self._track.append(now_ns, used_uj / elapsed_ns * 1e3)  # µJ per ns is kW
        self._complete = True

    def stop(self) -> Readings:
        if not len(self._track) or self._first_ns is None or self._last_ns is None:
            raise Unreadable("the counters were not read twice; energy is the difference of two readings")
        energy = Quantity("energy_cpu", self._total_uj / 1e6, "J", self.source)
        window = Quantity("energy_cpu_window_s", (self._last_ns - self._first_ns) / 1e9, "s", self.source)
        # Where the last reading failed the sum ends before the sampled time does; the gap says why.
        return (self._track.series(),), (energy, window) if self._complete else ()


def _used_uj(domain: RaplDomain, before_uj: int, now_uj: int, elapsed_ns: int) -> int:
    """Microjoules between two readings. A counter that went back has wrapped (it takes minutes), or started again."""
    if now_uj >= before_uj:
        return now_uj - before_uj
    used = now_uj - before_uj + domain.range_uj
    if used / elapsed_ns * 1e3 > MOST_DOMAIN_POWER_W:
        raise Unreadable(f"{domain.name}: the counter started again during the trial (suspended?)", lasting=True)
    return used


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii").strip()
    except PermissionError as refused:
        why = f"no permission to read {file.name} of {file.parent.name} (root only by default since Linux 5.10)"
        raise Unreadable(why, lasting=True) from refused
    except OSError as problem:
        raise Unreadable(f"{file.name} of {file.parent.name}: {problem.strerror}") from problem
