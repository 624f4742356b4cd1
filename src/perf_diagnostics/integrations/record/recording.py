"""The steps of one training that is not ours, kept and written down while it goes on, and its result at the end."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from perf_diagnostics.integrations.about import About
from perf_diagnostics.integrations.ranks import ranks
from perf_diagnostics.integrations.ranks.collective_waits import CollectiveWaits
from perf_diagnostics.integrations.ranks.exchanges import Exchanges
from perf_diagnostics.integrations.readings.steady_readings import SteadyReadings
from perf_diagnostics.integrations.record import not_shown
from perf_diagnostics.integrations.record.conclusion import Conclusion, Course
from perf_diagnostics.integrations.record.flush_times import FlushTimes
from perf_diagnostics.integrations.record.training_folder import WARM_UP_STEPS, TrainingFolder, nobody
from perf_diagnostics.integrations.steps.loop_probe import LoopProbe
from perf_diagnostics.measure.code.code_watch import CodeWatch
from perf_diagnostics.measure.code.compilations import Compilations
from perf_diagnostics.measure.code.worker_looks import WorkerLooks
from perf_diagnostics.measure.observation import Observations
from perf_diagnostics.measure.steps.device_clock import EventSource
from perf_diagnostics.records import Outcome, Run, TrialResult
from perf_diagnostics.store.files.tables import steps_to_parquet
from perf_diagnostics.store.run_folder import RunFolder

if TYPE_CHECKING:
    from perf_diagnostics.integrations.looks.looks import Looks
    from perf_diagnostics.integrations.record.window_borders import WindowBorders

DISABLED_VARIABLE = "PERF_DIAGNOSTICS_DISABLED"


def disabled() -> bool:
    """Whether the environment turns all measuring of own loops off."""
    return os.environ.get(DISABLED_VARIABLE, "").strip().lower() not in ("", "0", "false", "no")


def recorded_here() -> bool:
    """Whether this process makes the record: of several of one training (torchrun), rank 0 does."""
    return ranks.rank() == 0


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
        self.result: TrialResult | None = None
        self.steps = 0
        self.warm_up_steps = WARM_UP_STEPS
        self.clock = clock
        #: What the training's ranks tell beside their steps, where it has several.
        self.exchanges = Exchanges(observations)
        #: When they wait for each other beside that.
        self._waits = CollectiveWaits(probe.state, clock)
        #: The profiler window, where one was asked for.
        self.window: WindowBorders | None = None
        #: What looks through one step that does not count, where somebody wants that.
        self.looks: Looks | None = None
        #: Whether an error ended the training.
        self.broke_off = False
        #: After so many steps another one is to be looked through; 0: none is.
        self._look_due = 0
        #: When the script began whose training this is, on the clock; None where that is not known.
        self.script_began_ns: int | None = None
        #: After so many measured steps :attr:`when_enough` is called, between two steps; None: never.
        self.enough: int | None = None
        self.when_enough: Callable[[], None] = _nothing
        #: Adds to the result what watching cost a step; who starts the watch knows how (:mod:`.own_cost`).
        self.with_own_cost: Callable[[TrialResult, LoopProbe, Callable[[], int]], TrialResult] = _as_it_is
        #: Called before a block's steps are taken from the probe.
        self.before_take: Callable[[], None] = _nothing
        self._disk = TrainingFolder(results_dir, name, about, describe=describe, observations=observations)
        self._readings = SteadyReadings(about, observations, clock)
        self._code = CodeWatch(clock, observations)
        self._compilations = Compilations()
        #: Looks in the loader's workers; whoever starts them asks for it.
        self.worker_looks = WorkerLooks(observations)
        self._pid = os.getpid()
        self._began_ns = self._ended_ns = 0
        self._times = FlushTimes()
        self._course = Course()
        self._conclusion = Conclusion(
            about=about,
            probe=probe,
            disk=self._disk,
            readings=self._readings,
            code=self._code,
            compilations=self._compilations,
            worker_looks=self.worker_looks,
            exchanges=self.exchanges,
            observations=observations,
            course=self._course,
        )
        self._disk.rank_energy = self._conclusion.rank_energy

    def record_window(self) -> None:
        """Record a profiler window once enough was measured; of several ranks only the first one does."""
        if recorded_here():
            from perf_diagnostics.integrations.record.window_borders import WindowBorders

            self.window = WindowBorders(
                about=self.about,
                probe=self.probe,
                course=self._course,
                observations=self.observations,
                between_blocks=self._between_blocks,
                place=self._place,
                clock=self.clock,
            )

    def share_name(self, made: Callable[[Path], None] = nobody) -> None:
        """The script may train in several processes: the first of them gets the run's name, the others other ones.

        Args:
            made: told the run's folder when it is made.
        """
        self._disk.made = made
        self._disk.shares_name = True

    def use_events(self, events: EventSource) -> None:
        """Time the device from here on; call it between steps. The steps so far are dropped: they lack its clock."""
        self.before_take()
        self.probe.use_events(events)
        self._disk.parts.forget()
        self.steps = 0
        self.exchanges.forget()
        self._began_ns = self._ended_ns = self.clock()

    def end_step(self, samples: int | None, tokens: int | None = None, padding_tokens: int | None = None) -> None:
        """A step ends now. A block of steps ends with it when the warm-up is over or writing is due."""
        probe = self.probe
        if samples is None:
            self._course.unknown_samples = True
        now = probe.end_step(samples=samples or 0, tokens=tokens, padding_tokens=padding_tokens)
        self._ended_ns = now
        self.steps += 1
        if now >= self._times.at_ns or self.steps >= self._times.at_step:
            self._border_is_due(now)

    def first_ended(self, at_ns: int) -> None:
        """The training's first step has ended then."""
        if not self._began_ns:
            self._began_ns = self.probe.block_began_ns
            self._times.training_began(self._began_ns)
            self._course.first_step_ns = at_ns - self._began_ns
            if self.script_began_ns is not None:
                self._course.setup_ns = max(0, self._began_ns - self.script_began_ns)

    def lose_step(self, work: Callable[[], None]) -> None:
        """A step ends now that is not recorded, because not all of it was seen; ``work`` is done aside."""
        self.first_ended(self.clock())
        if self.looks is not None:
            self.looks.step_lost()
        if not self.probe.capturing:  # else it comes again
            self.aside(work)
        self.lost(1)

    def lost(self, steps: int) -> None:
        """So many steps have ended that are not recorded, because not all of them was seen."""
        self._course.unseen_steps += steps

    @property
    def unseen_steps(self) -> int:
        """How many steps were lost so far."""
        return self._course.unseen_steps

    def ended(self, steps: int, at_ns: int) -> None:
        """So many steps more have ended, the last one then, all before :attr:`quiet_until_ns`."""
        self.steps += steps
        self._ended_ns = at_ns

    @property
    def quiet_until_ns(self) -> int:
        """Of steps that end before this time :meth:`ended` may be told later, instead of :meth:`end_step` at once."""
        return 0 if self.probe.warmup else self._times.quiet_until_ns(self.steps)

    def _border_is_due(self, now: int) -> None:
        """What only some steps need: the first ones, and those at which something is to be written."""
        if self.probe.capturing or self._were_enough():
            return  # it stays due
        self.first_ended(now)
        if self.looks is not None and self._at_border_of_look(self.looks):
            return
        if self.profiling:
            self._border_of_window()
            return
        if self.probe.warmup:
            with self.observations.guard("compilations"):
                self._compilations.read()  # torch keeps few of them, and most are made in the first steps
            self._look_at_ranks()
            if self.steps >= self.warm_up_steps:
                if self._disk.meeting.several and not self._readings.sampling:
                    # What one rank does aside, the others wait for in their next step: no steady one, then.
                    self.warm_up_until(self.steps + 1)
                    self.aside(self._prepare)
                    return
                self._measuring_begins()
                self._times.measuring_begins()
                self._wait_for_steps()
                self._look_at_window(now)
            return
        if not self._times.is_due(now, self.steps):
            if self.probe.device_clock == "host":
                self.aside(self._look_at_ranks)
            else:
                self._look_at_ranks()  # the device works on meanwhile; at the end of a block it would run dry
            self._wait_for_steps()
            return
        self.aside(self.flush)
        now = self.clock()
        if self._disk.files is None and self._disk.meeting.rank:
            self._times.at_ns = now + ranks.ASK_AGAIN_NS
            return
        self._times.written(now)
        self._look_from_now_on(now)

    def _look_from_now_on(self, now: int) -> None:
        """The steps so far are written: one may be looked through, or a window begin, which goes first if asked for."""
        looks = None if self.window is not None and not self.window.window.over else self.looks
        if looks is not None and (more := looks.too_early_by(self._course.steady_steps)):
            self._look_due = self.steps + more  # of long steps there are few in the first second
        self._wait_for_steps()
        if looks is not None and looks.may_begin(self._course.steady_steps):
            self._look_through(looks)
        else:
            self._look_at_window(now)

    def _were_enough(self) -> bool:
        """Whether no further step is wanted; then somebody else goes on."""
        enough = self._enough_at is not None and self.steps >= self._enough_at
        if enough:
            self.when_enough()
        return enough

    @property
    def _enough_at(self) -> int | None:
        """At how many steps there are enough of them."""
        return None if self.enough is None or self.probe.warmup else self.warm_up_steps + self.enough

    @property
    def profiling(self) -> bool:
        """Whether the step under way does not count: it is looked through, or belongs to a window, or follows it."""
        looking = self.looks is not None and self.looks.under_way
        return looking or (self.window is not None and self.window.under_way)

    def _at_border_of_look(self, looks: Looks) -> bool:
        """Whether a step that was looked through ends here, or one begins because it is due."""
        if looks.under_way:
            self._looked_through(looks)
        elif self._look_due and self.steps >= self._look_due and not self.profiling:
            self._look_through(looks)
        else:
            return False
        return True

    def _look_through(self, looks: Looks) -> None:
        """The next step is looked through, if it can be, and does not count; the steps so far are written."""
        with self._between_blocks():
            looks.begin(several=self._disk.meeting.several)
            self._keep_what_was_seen(looks)
            self.probe.warmup = looks.under_way
        self._look_due = self.steps + 1 if looks.under_way else 0
        self._wait_for_steps()

    def _keep_what_was_seen(self, looks: Looks) -> None:
        self.about.looked, self.about.crossings = looks.facts, looks.quantities

    def _looked_through(self, looks: Looks) -> None:
        """The step that was looked through has ended."""
        with self._between_blocks():
            looks.end()
            self._keep_what_was_seen(looks)
            self.probe.warmup = False
        after = looks.due_after
        if after == 0:
            self._look_through(looks)
            return
        self._look_due = 0 if after is None else self.steps + after
        self._wait_for_steps()

    def _look_at_window(self, now: int) -> None:
        """Begin the profiler window, or look again in time; the steps so far are written."""
        if self._disk.meeting.rank:
            self.window = None  # a process may have become a rank since a window was asked for
        if self.window is not None:
            again_ns = self.window.look(self._ended_ns)
            if again_ns:
                self._times.at_ns = min(self._times.at_ns, now + again_ns)
            elif self.window.under_way:
                self._times.wait(self.steps, self.steps + 1)

    def _border_of_window(self) -> None:
        if self.window is not None and self.window.border():
            self._times.wait(self.steps, self.steps + 1)
        else:
            self._wait_for_steps()

    def _place(self) -> Path | None:
        """The trial's folder, once there is one."""
        return None if self._disk.files is None else self._disk.files.folder.path

    def _wait_for_steps(self) -> None:
        """The next look is due when the block is full or, before that, when ranks of several have something to tell."""
        exchange = self.exchanges.next_look if self._disk.meeting.several else None
        due = [step for step in (exchange, self._look_due or None, self._enough_at) if step is not None]
        self._times.wait(self.steps, min(due, default=None))

    def _look_at_ranks(self) -> None:
        """Of several ranks, agree on where they meet, and see how they exchange their gradients."""
        with self.observations.guard("ranks"):
            self._disk.meeting.agree()
        if self._disk.meeting.several:
            self.exchanges.look(self.steps)
            with self.observations.guard("collective_ns"):
                self._waits.begin()

    def warm_up_until(self, steps: int) -> None:
        """Count steps as warm-up until so many have been seen."""
        self.warm_up_steps = max(self.warm_up_steps, steps)

    def aside(self, work: Callable[[], None]) -> None:
        """Do some work of ours between two steps, in time that belongs to no step; what a signal runs is not seen."""
        with self._between_blocks():
            work()
            if self._disk.meeting.several:
                self.exchanges.look(self.steps)  # the work may have found the model

    @contextlib.contextmanager
    def _between_blocks(self) -> Iterator[None]:
        """A block has ended and the next one begins; a signal's handler that trains meanwhile is not seen."""
        state = self.probe.state
        active = state.active
        state.see(False)
        try:
            self._close_block()
            yield
            if not self.profiling:
                self._readings.block_begins()
            self.probe.start()
        finally:
            state.see(active)
        # Not a later reading: what somebody else did between the two would be missing from the time around the steps.
        self._began_ns = self._ended_ns = self.probe.block_began_ns

    def _measuring_begins(self) -> None:
        with self._between_blocks():
            self.probe.warmup = False
            wait_ns = self._disk.parts.least_of_newest("host_data_wait_ns")
            if wait_ns is not None and wait_ns < not_shown.LEAST_WAIT_NS:
                self.probe.stop_wait_clock()
            wall_ns = self._disk.parts.least_of_newest("wall_ns")
            if wall_ns is not None and wall_ns < not_shown.LEAST_STEP_NS:
                self.probe.stop_step_clock()
            try:
                if not self._disk.meeting.several:  # a rank of several did so a step ago (:meth:`_prepare`)
                    self.flush()
            finally:  # a signal's handler that raises meanwhile ends no measuring
                self._readings.begin()
                self._code.begin()

    def _prepare(self) -> None:
        """What takes long and need not be done between steps that count: making the run, looking for boards."""
        self.flush()
        if self._disk.parts.unwritten:
            # A rank that does not know yet where to write does so later; only the first time takes long.
            with self.observations.guard("records"):
                steps_to_parquet(self._disk.parts.table(self._conclusion.shape))
        self._readings.start_sampling()

    def _close_block(self) -> None:
        """End the block and take its steps; the step that is under way is lost, for it has no end."""
        probe = self.probe
        if not probe.running:
            return
        probe.end_block()
        self._readings.block_ended()
        self.before_take()
        self._code.block_ended(probe, counts=not probe.warmup)
        part = probe.take()
        if probe.device_clock != "host":
            self._ended_ns = self.clock()  # the device has done the block's work only now
        self._times.block_closed(self.steps)
        if len(part):
            if self._disk.meeting.several:
                part = self.exchanges.beside(part, self._disk.parts.steps, self.about.device)
                part = self._waits.beside(part, probe.origin_ns)
            self._disk.parts.add(part)
            if not probe.warmup:
                self._course.steady_steps += len(part)
                self._course.steady_wall_ns += self._ended_ns - probe.block_began_ns

    def flush(self) -> None:
        """Write what has been measured and is not yet on disk; what cannot be written becomes a gap."""
        if self._disk.parts.unwritten and os.getpid() == self._pid:
            self._disk.flush(self.probe.seen, self._conclusion.shape)
            if self._disk.trial is not None:
                with self.observations.guard("facts"):
                    self._disk.put_down(self._conclusion.so_far(self._disk.trial))

    def rehearse(self) -> None:
        """Only keep steps from here on: nothing is begun, looked for or written (see :mod:`.own_cost`)."""
        self.probe.warmup = False
        self._times.never()

    def break_off(self, outcome: Outcome, reason: str) -> None:
        """No step comes any more: a profiler that is ours stops, or it would be taken for the training's own."""
        self.broke_off = outcome is Outcome.CRASHED
        if self.looks is not None:
            self.looks.training_ended()
            self._keep_what_was_seen(self.looks)
        if self.window is not None and os.getpid() == self._pid:
            self.window.break_off(in_peace=outcome is Outcome.COMPLETED and not reason)

    def finish(self, outcome: Outcome, reason: str, stop_reason: str) -> TrialResult | None:
        """Write the result; None if no step was seen, or in a process that was forked off the one that began."""
        self._waits.end()
        if os.getpid() != self._pid or self.result is not None:
            return self.result
        with self.observations.guard("steps"):
            self._close_block()
        self._code.end()
        sampled = self._course.steady_steps, self._ended_ns
        if self.window is not None:
            self.window.training_ended(in_peace=outcome is Outcome.COMPLETED and not reason)
            sampled = self.window.undisturbed(*sampled)
        self._readings.stop_sampling(*sampled)
        disk = self._disk
        try:
            with disk.writing():
                if disk.parts:
                    self.flush()
                    if disk.meeting.rank:
                        disk.finish_rank(self.probe.seen, self._conclusion.shape)
                    if disk.trial is not None:
                        self._finish_trial(self._conclusion.result(disk.trial, (outcome, reason, stop_reason)))
        finally:
            disk.close()
            self.worker_looks.close()
        return self.result

    def _finish_trial(self, result: TrialResult) -> None:
        self.result = result = result if self.window is None else self.window.window.without_its_memory(result)
        try:
            self.result = self.with_own_cost(result, self.probe, self.clock)
        finally:  # Ctrl-C meanwhile takes nothing of the record
            self._disk.finish(self.result, self.probe.seen, self._conclusion.shape)

    @property
    def folder(self) -> RunFolder | None:
        """The run's, once it is made."""
        return self._disk.folder

    @property
    def speaks(self) -> bool:
        """Whether this process says what was measured: of several of one training, rank 0 does."""
        return self._disk.meeting.rank == 0

    @property
    def run(self) -> Run | None:
        """The records in the form that rules and reports read; None before the end, or where no step was seen."""
        return None if self.result is None else self._disk.run_of(self.result)


def _as_it_is(result: TrialResult, _probe: LoopProbe, _clock: Callable[[], int]) -> TrialResult:
    """Nobody measures what watching cost."""
    return result


def _nothing() -> None:
    """Nothing is to be done."""
