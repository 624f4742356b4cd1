"""Makes the trial's result of a training that is not ours out of what was recorded of it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from datetime import UTC, datetime

from perf_diagnostics.integrations.about import About
from perf_diagnostics.integrations.ends.endings import Ending
from perf_diagnostics.integrations.ranks.exchanges import Exchanges
from perf_diagnostics.integrations.ranks.ranks import local_world_size
from perf_diagnostics.integrations.readings.steady_readings import SteadyReadings
from perf_diagnostics.integrations.record import not_shown
from perf_diagnostics.integrations.record.training_folder import TrainingFolder
from perf_diagnostics.integrations.steps.loop_probe import LoopProbe
from perf_diagnostics.measure.code.code_watch import CodeWatch
from perf_diagnostics.measure.code.compilations import Compilations
from perf_diagnostics.measure.code.worker_looks import WorkerLooks
from perf_diagnostics.measure.observation import Observations
from perf_diagnostics.records import Gap, Json, Outcome, Quantity, StepTable, Trial, TrialResult
from perf_diagnostics.records.energies import RankEnergy
from perf_diagnostics.store.ranks.energy_of_ranks import RANKS_OWN


@dataclass
class Course:
    """How a training went by the clock, and how much of it was steady."""

    first_step_ns: int | None = None
    #: What a script did before its first step began; None where nobody knows when it began itself.
    setup_ns: int | None = None
    steady_steps: int = 0
    steady_wall_ns: int = 0
    #: Whether some step's samples could not be told.
    unknown_samples: bool = False
    #: Steps that are not recorded, because their model was found only at their end.
    unseen_steps: int = 0


@dataclass(frozen=True, kw_only=True)
class Conclusion:
    """What a training's result is made of."""

    about: About
    probe: LoopProbe
    disk: TrainingFolder
    readings: SteadyReadings
    code: CodeWatch
    compilations: Compilations
    worker_looks: WorkerLooks
    exchanges: Exchanges
    observations: Observations
    course: Course

    def shape(self, part: StepTable) -> StepTable:
        """The part without what was never seen."""
        return not_shown.without_unseen(part, self.probe, exchanges=self.exchanges.seen)

    def result(self, trial: Trial, ending: Ending) -> TrialResult:
        """The trial's, which ended in this way."""
        about, found = self.about, self._found()
        outcome, reason, stop_reason = ending
        steady, cut_ns = self.disk.parts.cut_transient()
        steps = self.disk.parts.table(self.shape)
        return TrialResult(
            trial=trial,
            outcome=outcome,
            reason=reason,
            steps=(steps,),
            series=self.readings.series,
            quantities=(*self._told_quantities(), *self._measured_quantities(cut_ns), *self._began(steps)),
            gaps=(*self._gaps(steps), *self.observations.gaps),
            facts={**about.facts, **about.looked, **about.forced, **found},
            provenance={"host_clock": "perf_counter_ns", "device_clock": self.probe.device_clock},
            environment=dataclasses.replace(self.disk.environment, devices=self.readings.devices),
            started_at=self.disk.started_at.isoformat(timespec="milliseconds"),
            finished_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
            stop_reason=stop_reason,
            steady=steady,
            code=self.code.samples(),
            worker_code=self.worker_looks.samples(),
        )

    def so_far(self, trial: Trial) -> TrialResult:
        """What is known beside the steps while the training goes on, in the form of a trial that was cut off.

        Without what is counted until the end: CPU time, memory peaks and gaps.
        """
        about, found = self.about, self._found()
        return TrialResult(
            trial=trial,
            outcome=Outcome.INTERRUPTED,
            reason="" if self.course.steady_steps else _only_warm_up(self.disk.parts.steps),
            quantities=tuple(self._told_quantities()),
            gaps=tuple(self.observations.gaps),
            facts={
                **about.facts,
                **about.looked,
                **about.loader_facts,
                **about.forced,
                **found,
            },
            provenance={"host_clock": "perf_counter_ns", "device_clock": self.probe.device_clock},
            environment=dataclasses.replace(self.disk.environment, devices=self.readings.devices),
            started_at=self.disk.started_at.isoformat(timespec="milliseconds"),
            steady=False,
            code=self.code.samples(),
            worker_code=self.worker_looks.samples(),
        )

    def rank_energy(self) -> RankEnergy | None:
        """What the boards of this rank of several have used so far; None for one rank alone, or without boards."""
        meeting = self.disk.meeting
        return self.readings.rank_energy(meeting.rank, self.probe.origin_ns) if meeting.several else None

    def _told_quantities(self) -> list[Quantity]:
        """What is known about the training; of several ranks the energy of one is no number of the training's."""
        several = self.disk.meeting.several
        told = (*self.about.quantities, *self.about.crossings)
        return [one for one in told if not (several and one.name in RANKS_OWN)]

    def _found(self) -> dict[str, Json]:
        """What was seen of the training while it went on."""
        found: dict[str, Json] = {**self._rank_facts(), **self.code.waits()}
        with self.observations.guard("compilations"):
            found["compilations"] = self.compilations.told()
        return found

    def _rank_facts(self) -> dict[str, Json]:
        """What is known about the ranks of several."""
        meeting = self.disk.meeting
        if not meeting.several:
            return {}
        backend = meeting.backends.get(self.about.device.partition(":")[0])
        known: dict[str, Json] = {} if backend is None else {"backend": backend}
        here = local_world_size()
        known |= {} if here is None else {"local_ranks": here}
        return {"ranks": meeting.ranks, **known, **self.exchanges.facts()}

    def _began(self, steps: StepTable) -> list[Quantity]:
        """When the first steady step began, on the clock of the boards' series."""
        if not self.readings.series or not len(steps.steady):
            return []
        began_ns = self.probe.origin_ns + int(steps.steady.columns["start_ns"][0])
        return [Quantity("steps_began_s", began_ns / 1e9, "s", "perf_counter_ns")]

    def _measured_quantities(self, cut_ns: int) -> list[Quantity]:
        found: list[Quantity] = []
        if self.course.setup_ns is not None:
            source = "perf_counter_ns, from the script's start to its first step"
            found.append(Quantity("setup_s", self.course.setup_ns / 1e9, "s", source))
        if self.course.first_step_ns is not None and self.probe.device_clock == "host":
            found.append(Quantity("first_step_s", self.course.first_step_ns / 1e9, "s", "perf_counter_ns"))
        if self.course.steady_wall_ns > cut_ns:
            source = "perf_counter_ns around each block"
            found.append(Quantity("measured_wall_s", (self.course.steady_wall_ns - cut_ns) / 1e9, "s", source))
        found += self.readings.quantities(several=self.disk.meeting.several)
        drift, forced = self.probe.clock_drift, self.probe.forced_syncs
        if drift is not None:
            found.append(Quantity("clock_drift", drift, "1", "two synchronised anchors a block"))
        if forced is not None:
            found.append(Quantity("forced_syncs", float(forced), "1", "event ring"))
        return found

    def _gaps(self, steps: StepTable) -> list[Gap]:
        gaps = not_shown.gaps_of(self.about, self.probe, steps.columns)
        lost = self.disk.parts.lost
        if lost:
            gaps.append(Gap("steps", f"{lost} steps could not be written, and were too many to keep"))
        unseen = self.course.unseen_steps
        if unseen:
            steps_are = "1 step is" if unseen == 1 else f"{unseen} steps are"
            why = "what they trained was found only when it was updated, so their forward was not seen"
            gaps.append(Gap("unseen_steps", f"{steps_are} not in the record: {why}"))
        if self.course.unknown_samples:
            some = "the size of some batches could not be told, so throughput is too low"
            none = "by the shapes that were seen nobody can tell how many samples a batch has"
            gaps.append(Gap("samples", none if self.about.samples is None else some))
        return gaps


def _only_warm_up(steps: int) -> str:
    """Why a trial was cut off of which so many steps of the warm-up are known, and nothing later was written."""
    return (
        "the training ended within its first second or, where steps are longer, within the first one after the "
        f"warm-up; only the {steps} steps of the warm-up are on disk"
    )
