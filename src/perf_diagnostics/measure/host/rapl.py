"""Energy of the processor packages and their memory, from the counters the Linux kernel publishes (RAPL powercap)."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from perf_diagnostics.measure.observation import Readings, Track, Unreadable
from perf_diagnostics.records import Quantity
from perf_diagnostics.records.energies import DomainUse, EnergyCurve

POWERCAP = Path("/sys/class/powercap")

#: No package comes near this (the largest are sold with 500 W): a wrap that would mean more was not a wrap.
MOST_DOMAIN_POWER_W = 2000.0


@dataclass(frozen=True)
class RaplDomain:
    """One counter: ``package-0`` or the ``dram`` of a package. It counts microjoules and wraps after ``range_uj``."""

    name: str
    folder: Path
    range_uj: int

    @property
    def label(self) -> str:
        """``intel-rapl:0:0 dram``: one domain of this machine, and no other."""
        return f"{self.folder.name} {self.name}"

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
        self._knots_ns = array("q")
        self._joules: list[array[float]] = []
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
        if not self._knots_ns:
            self._joules = [array("d", [0.0]) for _ in self._domains]
            self._knots_ns.append(now_ns)
            self._last_uj = readings_uj
        elif now_ns > self._knots_ns[-1]:
            elapsed_ns = now_ns - self._knots_ns[-1]
            used_uj = [
                _used_uj(domain, before, now, elapsed_ns)
                for domain, before, now in zip(self._domains, self._last_uj, readings_uj, strict=True)
            ]
            for joules, used in zip(self._joules, used_uj, strict=True):
                joules.append(joules[-1] + used / 1e6)
            self._knots_ns.append(now_ns)
            self._last_uj = readings_uj
            self._track.append(now_ns, sum(used_uj) / elapsed_ns * 1e3)  # µJ per ns is kW
        self._complete = True

    def domains(self) -> tuple[DomainUse, ...]:
        """How the energy of each domain came together since the first reading; none before the second one."""
        if len(self._knots_ns) < 2:
            return ()
        times_ns = np.array(self._knots_ns, dtype=np.int64)
        return tuple(
            DomainUse(domain.label, EnergyCurve(times_ns, np.array(joules, dtype=np.float64)))
            for domain, joules in zip(self._domains, self._joules, strict=True)
        )

    def stop(self) -> Readings:
        if not len(self._track):
            raise Unreadable("the counters were not read twice; energy is the difference of two readings")
        total_j = sum(joules[-1] for joules in self._joules)
        energy = Quantity("energy_cpu", total_j, "J", self.source)
        window = Quantity("energy_cpu_window_s", (self._knots_ns[-1] - self._knots_ns[0]) / 1e9, "s", self.source)
        # Where the last reading failed the sum ends before the sampled time does; the gap says why.
        return (self._track.series(),), (energy, window) if self._complete else ()


def _used_uj(domain: RaplDomain, before_uj: int, now_uj: int, elapsed_ns: int) -> int:
    """Microjoules between two readings. A counter that went back has wrapped (it takes minutes), or started again."""
    if elapsed_ns / 1e3 * MOST_DOMAIN_POWER_W >= domain.range_uj:  # W times µs are µJ
        raise Unreadable(
            f"{domain.name}: nobody read the counter for {elapsed_ns / 1e9:.3g} s, in which it may have wrapped more "
            "than once (was the process stopped?)",
            lasting=True,
        )
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
