"""The record of one training that is not ours: a run folder with one trial, written piece by piece while it goes on."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from perf_diagnostics import __version__
from perf_diagnostics.integrations import ranks
from perf_diagnostics.integrations.board_sampling import BoardSampling
from perf_diagnostics.integrations.exchanges import Exchanges
from perf_diagnostics.integrations.loop_probe import DATA_WAIT, LoopProbe
from perf_diagnostics.integrations.parts import RankFiles, StepParts
from perf_diagnostics.measure import environment, memory
from perf_diagnostics.measure.cpu_time import CpuTime
from perf_diagnostics.measure.device_clock import EventSource
from perf_diagnostics.measure.observation import Observations
from perf_diagnostics.records import (
    ALL_PHASES,
    MEASURED_PHASES,
    Environment,
    Gap,
    Json,
    Length,
    Outcome,
    Precision,
    Quantity,
    Run,
    Series,
    Settings,
    StepTable,
    Trial,
    TrialResult,
)
from perf_diagnostics.store.run_folder import RunFolder
from perf_diagnostics.store.tables import steps_to_parquet
from perf_diagnostics.store.trial_folder import TrialFolder

#: The first steps allocate, initialise, start loader workers and make the optimizer's state; they are never counted.
WARM_UP_STEPS = 3

#: The first piece is written soon, so that a short training that is killed leaves something; then writing, which on a
#: device synchronises, happens so rarely that it costs less than a thousandth. A kill costs at most this long, or a
#: hundredth of a long training, which keeps the files of a night few.
FIRST_FLUSH_NS = 1_000_000_000
FLUSH_NS = 5_000_000_000
FLUSH_SHARE = 100

#: A block has at most so many steps, whatever their length: some 13 MB of marks and rows.
MOST_STEPS_A_BLOCK = 65_536

#: Around shorter waits, and at the ends of shorter steps, the thread's CPU clock is not read: a cold system call takes
#: some five microseconds.
LEAST_WAIT_NS = 1_000_000
LEAST_STEP_NS = 5_000_000

#: What only a trial of a sweep records, and the columns that only some batches have.
_NOT_IN_A_TRAINING = {
    "flops_per_step": "operations are counted for the trials of a sweep only",
    "traffic_bytes_per_step": "operations are counted for the trials of a sweep only",
    "energy_cpu": "the processor's energy is read beside the trials of a sweep only",
    "host_rss_bytes": "memory is read at each step in the trials of a sweep only",
    "tokens": "the batches have no input_ids to count tokens by",
    "padding_tokens": "the batches have no input_ids with an attention_mask on the CPU to count padding by",
}

DISABLED_VARIABLE = "PERF_DIAGNOSTICS_DISABLED"


def disabled() -> bool:
    """Whether the environment turns all measuring of own loops off."""
    return os.environ.get(DISABLED_VARIABLE, "").strip().lower() not in ("", "0", "false", "no")


def recorded_here() -> bool:
    """Whether this process makes the record: of several of one training (torchrun), rank 0 does."""
    return ranks.rank() == 0


@dataclass
class About:
    """What is known about the training once its first step is over.

    ``samples`` is the batch's size as it was seen, None where nobody could tell; ``why_unseen`` says, for phases by
    name, why they could not be seen, for those that never were; ``notes`` are sentences for the run's record.
    """

    workload: str
    device: str = "cpu"
    samples: int | None = None
    precision: Precision = "float32"
    facts: dict[str, Json] = field(default_factory=dict)
    quantities: list[Quantity] = field(default_factory=list)
    why_unseen: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


class Recording:
    """Takes steps from a probe, keeps them, and writes them down between steps.

    Of several processes of one training, rank 0 makes the record, and the others write their steps beside its own.

    Args:
        probe: where the steps are marked.
        about: what is known about the training.
        describe: fills ``about`` in; called before the first piece is written, when the training is under way.
        observations: where what could not be seen is collected.
        name: of the run; default: the time and the workload.
        results_dir: where runs lie.
        clock: host clock in ns, the probe's.
    """

    def __init__(
        self,
        probe: LoopProbe,
        about: About,
        observations: Observations,
        *,
        describe: Callable[[], None],
        name: str | None,
        results_dir: Path,
        clock: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self.probe = probe
        self.about = about
        self.observations = observations
        self.folder: RunFolder | None = None
        self.result: TrialResult | None = None
        self.steps = 0
        self.warm_up_steps = WARM_UP_STEPS
        self._describe = describe
        self._name = name
        self._results_dir = results_dir
        self.clock = clock
        self._pid = os.getpid()
        self._meeting = ranks.Meeting(results_dir)
        #: What the training's ranks tell beside their steps, where it has several.
        self.exchanges = Exchanges(observations)
        self._place: Path | None = None
        self._held = contextlib.ExitStack()
        self._trial: Trial | None = None
        self._environment = Environment()
        self._parts = StepParts()
        self._board: BoardSampling | None = None
        self._series: tuple[Series, ...] = ()
        self._steady_steps = 0
        self._training_began_ns = 0
        self._began_ns = 0
        self._ended_ns = 0
        self._steady_wall_ns = 0
        self._flush_at_ns = 0
        self._flush_at_step = 0
        self._full_at_step = MOST_STEPS_A_BLOCK
        #: Adds to the result what watching cost a step; who starts the watch knows how (:mod:`.own_cost`).
        self.with_own_cost: Callable[[TrialResult, LoopProbe, Callable[[], int]], TrialResult] = _as_it_is
        #: Called before a block's steps are taken from the probe.
        self.before_take: Callable[[], None] = _nothing
        self._unknown_samples = False
        self._started_at = datetime.now(UTC)
        self._first_step_ns: int | None = None
        self._counters: memory.ProcessCounters | None = None
        self._cpu = CpuTime()
        self._counted_from_ns: int | None = None

    # -- while it goes on

    def use_events(self, events: EventSource) -> None:
        """Time the device from here on; call it between steps. The steps so far are dropped: they lack its clock."""
        self.before_take()
        self.probe.use_events(events)
        self.steps = 0
        self.exchanges.forget()
        self._began_ns = self._ended_ns = self.clock()

    def end_step(self, samples: int | None, tokens: int | None = None, padding_tokens: int | None = None) -> None:
        """A step ends now. A block of steps ends with it when the warm-up is over or writing is due."""
        probe = self.probe
        if samples is None:
            self._unknown_samples = True
        now = probe.end_step(samples=samples or 0, tokens=tokens, padding_tokens=padding_tokens)
        self._ended_ns = now
        self.steps += 1
        if now >= self._flush_at_ns or self.steps >= self._flush_at_step:
            self._border_is_due(now)

    def ended(self, steps: int, at_ns: int) -> None:
        """So many steps more have ended, the last one then, all before :attr:`quiet_until_ns`."""
        self.steps += steps
        self._ended_ns = at_ns

    @property
    def quiet_until_ns(self) -> int:
        """Of steps that end before this time :meth:`ended` may be told later, instead of :meth:`end_step` at once."""
        near = self._flush_at_step - self.steps < MOST_STEPS_A_BLOCK // 16
        return 0 if self.probe.warmup or near else self._flush_at_ns

    def _border_is_due(self, now: int) -> None:
        """What only some steps need: the first ones, and those at which something is to be written."""
        if not self._began_ns:
            self._began_ns = self._training_began_ns = self.probe.block_began_ns
            self._first_step_ns = now - self._began_ns
        if self.probe.warmup:
            self._look_at_ranks()
            if self.steps >= self.warm_up_steps:
                if self._meeting.several and self._board is None:
                    # What one rank does aside, the others wait for in their next step: no steady one, then.
                    self.warm_up_until(self.steps + 1)
                    self.aside(self._prepare)
                    return
                self._measuring_begins()
                self._flush_at_ns = self._training_began_ns + FIRST_FLUSH_NS
                self._wait_for_steps()
            return
        if now < self._flush_at_ns and self.steps < self._full_at_step:
            if self.probe.device_clock == "host":
                self.aside(self._look_at_ranks)
            else:
                self._look_at_ranks()  # the device works on meanwhile; at the end of a block it would run dry
            self._wait_for_steps()
            return
        self.aside(self.flush)
        now = self.clock()
        if self._files() is None and self._meeting.rank:
            self._flush_at_ns = now + ranks.ASK_AGAIN_NS
            return
        self._flush_at_ns = now + max(FLUSH_NS, (now - self._training_began_ns) // FLUSH_SHARE)
        self._wait_for_steps()

    def _wait_for_steps(self) -> None:
        """The next look is due when the block is full or, before that, when ranks of several have something to tell."""
        look = self.exchanges.next_look if self._meeting.several else self._full_at_step
        self._flush_at_step = max(self.steps + 1, min(look, self._full_at_step))

    def _look_at_ranks(self) -> None:
        """Of several ranks, agree on where they meet, and see how they exchange their gradients."""
        with self.observations.guard("ranks"):
            self._meeting.agree()
        if self._meeting.several:
            self.exchanges.look(self.steps)

    def warm_up_until(self, steps: int) -> None:
        """Count steps as warm-up until so many have been seen."""
        self.warm_up_steps = max(self.warm_up_steps, steps)

    def aside(self, work: Callable[[], None]) -> None:
        """Do some work of ours between two steps, in time that belongs to no step."""
        self._close_block()
        work()
        if self._meeting.several:
            self.exchanges.look(self.steps)  # the work may have found the model
        self.probe.start()
        self._began_ns = self._ended_ns = self.clock()

    def _measuring_begins(self) -> None:
        self._close_block()
        self.probe.warmup = False
        last = self._parts.last
        if last is not None and last.columns["host_data_wait_ns"][-1] < LEAST_WAIT_NS:
            self.probe.stop_wait_clock()
        if last is not None and last.wall_ns[-1] < LEAST_STEP_NS:
            self.probe.stop_step_clock()
        with self.observations.guard("involuntary_switches", "major_faults"):
            self._counters = memory.ProcessCounters.now()
        with self.observations.guard("process_cpu_s"):
            self._counted_from_ns = self.clock()
            self._cpu.begin()
        self._start_sampling()
        self.probe.start()
        self._began_ns = self._ended_ns = self.clock()

    def _prepare(self) -> None:
        """What takes long and need not be done between steps that count: making the run, looking for boards."""
        self.flush()
        if self._parts.unwritten:
            # A rank that does not know yet where to write does so later; only the first time takes long.
            with self.observations.guard("records"):
                steps_to_parquet(self._parts.table(self._without_unseen))
        self._start_sampling()

    def _start_sampling(self) -> None:
        if self._board is None:
            self._board = BoardSampling(self.about.device, self.observations, clock=self.clock)
            self._board.start()

    def _close_block(self) -> None:
        """End the block and take its steps; the step that is under way is lost, for it has no end."""
        probe = self.probe
        if not probe.running:
            return
        probe.end_block()
        self.before_take()
        part = probe.take()
        if probe.device_clock != "host":
            self._ended_ns = self.clock()  # the device has done the block's work only now
        self._full_at_step = self.steps + MOST_STEPS_A_BLOCK
        if len(part):
            if self._meeting.several:
                part = self.exchanges.beside(part, self._parts.steps, self.about.device)
            self._parts.add(part)
            if not probe.warmup:
                self._steady_steps += len(part)
                self._steady_wall_ns += self._ended_ns - self._began_ns

    def flush(self) -> None:
        """Write what has been measured and is not yet on disk; what cannot be written becomes a gap."""
        if not self._parts.unwritten or os.getpid() != self._pid:
            return
        with self.observations.guard("records"):
            self._meeting.agree()
            if self._meeting.rank:
                self._place = self._place or self._meeting.place()
            elif self._trial is None:
                self._create()
            files = self._files()
            if files is not None:
                self._parts.write(files, self.probe.seen, self._without_unseen)

    def _files(self) -> RankFiles | None:
        """Where this process' steps go; None as long as nobody knows."""
        return None if self._place is None else RankFiles(TrialFolder(self._place), self._meeting.rank)

    def _create(self) -> None:
        self._describe()
        about = self.about
        accumulation = about.facts.get("accumulation_steps")
        settings = Settings(
            batch_size=max(1, about.samples or 1),
            device=about.device,
            precision=about.precision,
            accumulation_steps=accumulation if isinstance(accumulation, int) and accumulation > 1 else None,
        )
        length = Length(warmup_steps=WARM_UP_STEPS)
        # Trainings of different numbers of ranks are never repetitions of each other.
        options: dict[str, Json] = {"ranks": self._meeting.ranks} if self._meeting.several else {}
        self._trial = Trial(workload=about.workload, settings=settings, options=options, length=length)
        self._environment = environment.capture()
        now = datetime.now(UTC)
        folder = RunFolder.create(
            self._results_dir,
            self._name,
            planned=[self._trial],
            command=str(self._environment.command.get("line", "")),
            environment=self._environment,
            tool_version=__version__,
            now=now,
            notes=self._notes,
        )
        self._held.enter_context(folder.lock())
        folder.begin(self._trial, now=self._started_at)
        self.folder = folder
        self._place = folder.trial_directory(self._trial)
        with self.observations.guard("ranks"):
            self._meeting.tell(self._place)

    def rehearse(self) -> None:
        """Only keep steps from here on: nothing is begun, looked for or written (see :mod:`.own_cost`)."""
        self.probe.warmup = False
        self._flush_at_ns = self._flush_at_step = 2**62

    # -- at the end

    def finish(self, outcome: Outcome, reason: str, stop_reason: str) -> TrialResult | None:
        """Write the result; None if no step was seen, or in a process that was forked off the one that began."""
        if os.getpid() != self._pid or self.result is not None:
            return self.result
        with self.observations.guard("steps"):
            self._close_block()
        self._stop_sampling()
        with self._held, self.observations.guard("records"):
            if not self._parts:
                if not self._meeting.rank:
                    self._meeting.close()
                return None
            self.flush()
            if self._meeting.rank:
                self._finish_rank()
            if self._trial is not None:
                self.result = self._result(self._trial, outcome, reason, stop_reason)
                try:
                    self.result = self.with_own_cost(self.result, self.probe, self.clock)
                finally:  # Ctrl-C meanwhile takes nothing of the record
                    if self.folder is not None:
                        self._rewrite(self.folder, self.result)
        return self.result

    def _finish_rank(self) -> None:
        """The last of a rank's steps: beside rank 0's or, as long as it has no run, where the ranks meet."""
        self._parts.cut_transient()
        files, room = self._files(), None
        if files is None:
            room = self._meeting.room()
            if room is None:
                return
            files = RankFiles(TrialFolder(room), self._meeting.rank)
            self._parts.write(files, self.probe.seen, self._without_unseen)
        self._parts.rewrite(files, self.probe.seen, self._without_unseen)
        if room is not None:
            self._meeting.leave(room)

    def _stop_sampling(self) -> None:
        if self._board is not None and self._steady_steps:
            self._series, sampled = self._board.stop(self._steady_steps, self._ended_ns)
            self.about.quantities.extend(sampled)

    @property
    def speaks(self) -> bool:
        """Whether this process says what was measured: of several of one training, rank 0 does."""
        return self._meeting.rank == 0

    @property
    def run(self) -> Run | None:
        """The records in the form that rules and reports read; None before the end, or where no step was seen.

        Of a long training (see :mod:`.parts`), and of one with several ranks, the steps are read from disk each time
        this is asked for.
        """
        if self.result is None:
            return None
        result, files = self.result, self._files()
        if files is not None and (self._parts.spilled or self._meeting.several):
            result = files.folder.read_result()
        return Run(
            name=self.folder.path.name if self.folder is not None else self.about.workload,
            created_at=self._started_at.isoformat(timespec="seconds"),
            tool_version=__version__,
            planned=(result.trial,),
            results=(result,),
            environment=self._environment,
            notes=self._notes,
        )

    @property
    def _notes(self) -> tuple[str, ...]:
        return ("Measured inside a training of the user's own.", *self.about.notes)

    def _result(self, trial: Trial, outcome: Outcome, reason: str, stop_reason: str) -> TrialResult:
        steady, cut_ns = self._parts.cut_transient()
        quantities = [*self.about.quantities, *self._measured_quantities(cut_ns)]
        return TrialResult(
            trial=trial,
            outcome=outcome,
            reason=reason,
            steps=(self._parts.table(self._without_unseen),),
            series=self._series,
            quantities=tuple(quantities),
            gaps=(*self._gaps(), *self.observations.gaps),
            facts={**self.about.facts, **self._rank_facts()},
            provenance={"host_clock": "perf_counter_ns", "device_clock": self.probe.device_clock},
            environment=self._environment,
            started_at=self._started_at.isoformat(timespec="milliseconds"),
            finished_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
            stop_reason=stop_reason,
            steady=steady,
        )

    def _rank_facts(self) -> dict[str, Json]:
        """What is known about the ranks of several."""
        meeting = self._meeting
        if not meeting.several:
            return {}
        backend = meeting.backends.get(self.about.device.partition(":")[0])
        known: dict[str, Json] = {} if backend is None else {"backend": backend}
        return {"ranks": meeting.ranks, **known, **self.exchanges.facts()}

    def _of_this_rank(self, quantities: Iterable[Quantity]) -> list[Quantity]:
        """Without what everybody else used of the machine, where other ranks of the same training are among them."""
        if not self._meeting.several:
            return list(quantities)
        self.observations.note("other_cpu_s", "the other ranks of this training would count as somebody else")
        return [quantity for quantity in quantities if quantity.name != "other_cpu_s"]

    def _measured_quantities(self, cut_ns: int) -> list[Quantity]:
        found: list[Quantity] = []
        if self._first_step_ns is not None and self.probe.device_clock == "host":
            found.append(Quantity("first_step_s", self._first_step_ns / 1e9, "s", "perf_counter_ns"))
        if self._steady_wall_ns > cut_ns:
            source = "perf_counter_ns around each block"
            found.append(Quantity("measured_wall_s", (self._steady_wall_ns - cut_ns) / 1e9, "s", source))
        with self.observations.guard("host_memory_peak"):
            peak = memory.vm_hwm_bytes()
            if peak is not None:
                found.append(Quantity("host_memory_peak", float(peak), "bytes", "VmHWM"))
        if self._counted_from_ns is not None:
            with self.observations.guard("process_cpu_s"):
                found.extend(self._of_this_rank(self._cpu.finish(self.observations)))
                self.about.facts["cpu_window_s"] = (self.clock() - self._counted_from_ns) / 1e9
        if self._counters is not None:
            found.extend((memory.ProcessCounters.now() - self._counters).quantities())
        drift, forced = self.probe.clock_drift, self.probe.forced_syncs
        if drift is not None:
            found.append(Quantity("clock_drift", drift, "1", "two synchronised anchors a block"))
        if forced is not None:
            found.append(Quantity("forced_syncs", float(forced), "1", "event ring"))
        return found

    def _gaps(self) -> list[Gap]:
        why = self.about.why_unseen
        gaps = [
            Gap(f"host_{phase}_ns", why.get(str(phase), f"the loop marked no {phase}; its time is in other"))
            for index, phase in enumerate(MEASURED_PHASES)
            if not self.probe.has_seen(index)
        ]
        if self.probe.has_seen(DATA_WAIT) and not self.probe.cpu_clock:
            why_not = f"the waits are under {LEAST_WAIT_NS / 1e6:g} ms, too short to read the thread's CPU clock around"
            gaps.append(Gap("data_wait_cpu_ns", why_not))
        if not self.probe.step_clock:
            why_not = (
                f"the steps are under {LEAST_STEP_NS / 1e6:g} ms, too short to read the thread's CPU clock in each"
            )
            gaps.append(Gap("thread_cpu_ns", why_not))
        recorded = {*self._parts.table(self._without_unseen).columns, *(q.name for q in self.about.quantities)}
        gaps += [Gap(signal, why_not) for signal, why_not in _NOT_IN_A_TRAINING.items() if signal not in recorded]
        if "loss" in why and not self.probe.has_loss:
            gaps.append(Gap("loss", why["loss"]))
        if self._parts.lost:
            gaps.append(Gap("steps", f"{self._parts.lost} steps could not be written, and were too many to keep"))
        if self._unknown_samples:
            gaps.append(Gap("samples", "the size of some batches could not be told, so throughput is too low"))
        return gaps

    def _without_unseen(self, part: StepTable) -> StepTable:
        """The part without the phases that were never seen: their zeros were not measured."""
        unseen = [ALL_PHASES[index] for index in range(len(MEASURED_PHASES)) if not self.probe.has_seen(index)]
        absent = {f"{clock}_{phase}_ns" for phase in unseen for clock in ("host", "device")}
        if not (self.probe.has_seen(DATA_WAIT) and self.probe.cpu_clock):
            absent.add("data_wait_cpu_ns")
        if not self.probe.step_clock:
            absent.add("thread_cpu_ns")
        if not self.exchanges.seen:
            absent |= {"exchange_ns", "exchange_hidden_ns"}
        return StepTable({name: values for name, values in part.columns.items() if name not in absent})

    def _rewrite(self, folder: RunFolder, result: TrialResult) -> None:
        """The parts of which more is known now than when they were written; then the result, which ends the trial."""
        files = self._files()
        if files is not None:
            self._parts.rewrite(files, self.probe.seen, self._without_unseen)
            with self.observations.guard("ranks"):
                self._meeting.collect(files.folder.path)
        folder.finish(result)


def _as_it_is(result: TrialResult, _probe: LoopProbe, _clock: Callable[[], int]) -> TrialResult:
    """Nobody measures what watching cost."""
    return result


def _nothing() -> None:
    """Nothing is to be done."""
