"""What is read around the steady steps of a training that is not ours: its process, CPU time and energy."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from perf_diagnostics.integrations.about import About
from perf_diagnostics.integrations.readings.board_sampling import BoardSampling
from perf_diagnostics.integrations.readings.boards_at_rest import boards_at_rest
from perf_diagnostics.integrations.readings.processor_energy import ProcessorEnergy
from perf_diagnostics.integrations.readings.rank_energy import rank_energy
from perf_diagnostics.integrations.readings.swapped import Swapped
from perf_diagnostics.measure.host import memory
from perf_diagnostics.measure.host.cpu_time import CpuTime
from perf_diagnostics.measure.host.page_faults import LoopFaults
from perf_diagnostics.measure.host.run_delay import RunDelay
from perf_diagnostics.measure.host.shared_memory import SharedMemory
from perf_diagnostics.measure.observation import Observations
from perf_diagnostics.records import Json, Quantity, Series
from perf_diagnostics.records.energies import RankEnergy
from perf_diagnostics.store.ranks.energy_of_ranks import RANKS_OWN


class SteadyReadings:
    """Begins with the first steady step and ends with the last one.

    Args:
        about: what is known about the training.
        observations: where what cannot be read is noted.
        clock: host clock in ns.
    """

    def __init__(self, about: About, observations: Observations, clock: Callable[[], int]) -> None:
        self._about = about
        self._observations = observations
        self._clock = clock
        self._board: BoardSampling | None = None
        self._processors = ProcessorEnergy(observations, clock=clock)
        self._swapped = Swapped(observations)
        self._counters: memory.ProcessCounters | None = None
        self._cpu = CpuTime()
        self._delay: RunDelay | None = None
        self._faults = LoopFaults(observations, clock=clock)
        self._shared = SharedMemory()
        self._counted_from_ns: int | None = None
        self._block_ended_ns: int | None = None
        self._sampled: tuple[Quantity, ...] = ()
        #: What boards and processors said over time.
        self.series: tuple[Series, ...] = ()

    @property
    def devices(self) -> tuple[dict[str, Json], ...]:
        """The training's devices as an environment records them; nothing before they were looked for, and for a CPU."""
        return () if self._board is None else self._board.described

    @property
    def sampling(self) -> bool:
        """Whether the boards are looked at; finding them takes long."""
        return self._board is not None

    def start_sampling(self) -> None:
        """Look at the boards from here on."""
        if self._board is None:
            before = boards_at_rest.series
            self._board = BoardSampling(self._about.device, self._observations, clock=self._clock, before=before)
            self._board.start()

    def begin(self) -> None:
        """The steady steps begin."""
        with self._observations.guard("involuntary_switches", "major_faults"):
            self._counters = memory.ProcessCounters.now()
        with self._observations.guard("process_cpu_s"):
            self._counted_from_ns = self._clock()
            self._cpu.begin()
        self._delay = RunDelay(clock=self._clock)
        with self._observations.guard("read_bytes_first_pass"):
            self._about.pass_reads.begin()
        boards_at_rest.end()
        self.start_sampling()
        self._processors.begin()
        if self._board is not None:
            self._board.window_begins()  # of several ranks it may have been looked at for a step of the warm-up

    def block_begins(self) -> None:
        """A block of steps begins now, in the loop's thread."""
        if self._delay is not None:
            with self._observations.guard("loop_run_delay_share"):
                self._delay.begin()
        self._faults.begin()

    def block_ended(self) -> None:
        """Its last step is over, on the device, too."""
        if self._processors.readable or (self._board is not None and self._board.described):
            self._block_ended_ns = self._clock()
        self._faults.end()
        if self._delay is not None:
            with self._observations.guard("loop_run_delay_share"):
                self._delay.end()
        self._shared.look()
        if self._counters is not None:
            self._swapped.look()

    def stop_sampling(self, steps: int, until_ns: int) -> None:
        """So many steady steps are over, the last one then."""
        boards_at_rest.end()
        if self._board is None or not steps:
            self._processors.end()
            self._observations.note(
                "energy_cpu", "no steady step was seen, over which the processors' counters are read"
            )
            return
        for series, sampled in (self._processors.stop(until_ns), self._board.stop(steps, until_ns)):
            self.series += series
            self._sampled += sampled

    def rank_energy(self, rank: int, origin_ns: int) -> RankEnergy | None:
        """What this rank's boards and processors have used in the blocks so far; None where nobody can say now.

        Args:
            rank: this process's.
            origin_ns: host clock at 0 of the times of its steps.
        """
        if self._board is None or self._block_ended_ns is None:
            return None
        used = self._board.used(self._block_ended_ns) if self._board.described else None
        processors = self._processors.used(self._block_ended_ns)
        missing = used is None if self._board.described else processors is None
        return None if missing else rank_energy(used, processors, rank=rank, origin_ns=origin_ns)

    def quantities(self, *, several: bool) -> list[Quantity]:
        """What was read; ``several`` where other ranks of the same training are on the machine."""
        found: list[Quantity] = []
        with self._observations.guard("host_memory_peak"):
            peak = memory.vm_hwm_bytes()
            if peak is not None:
                found.append(Quantity("host_memory_peak", float(peak), "bytes", "VmHWM"))
        if self._counted_from_ns is not None:
            with self._observations.guard("process_cpu_s"):
                used = self._cpu.finish(self._observations)
                found.extend(self._of_this_rank(used) if several else used)
                self._about.facts["cpu_window_s"] = (self._clock() - self._counted_from_ns) / 1e9
        if self._delay is not None:
            with self._observations.guard("loop_run_delay_share"):
                found.extend(self._delay.finish(self._observations))
        found.extend(self._faults.finish())
        found.extend(self._swapped.quantities())
        found.extend(one for one in self._sampled if not (several and one.name in RANKS_OWN))
        if (self._about.loader_facts | self._about.facts).get("num_workers"):
            found.extend(self._shared.quantities(self._observations))
        with self._observations.guard("read_bytes_first_pass"):
            found.extend(self._about.pass_reads.quantities(self._observations))
        if self._counters is not None:
            found.extend((memory.ProcessCounters.now() - self._counters).quantities())
        return found

    def _of_this_rank(self, quantities: Iterable[Quantity]) -> list[Quantity]:
        """Without what everybody else used of the machine: other ranks of the same training are among them."""
        self._observations.note("other_cpu_s", "the other ranks of this training would count as somebody else")
        return [quantity for quantity in quantities if quantity.name != "other_cpu_s"]
