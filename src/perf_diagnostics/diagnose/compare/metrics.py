"""What two runs are compared by, which way is better, and each process's one value of it."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from perf_diagnostics.diagnose.compare.matching import Configuration
from perf_diagnostics.diagnose.facts.power_facts import samples_of_energy
from perf_diagnostics.diagnose.facts.recorded import ask
from perf_diagnostics.diagnose.facts.trial_facts import LEAST_STEPS, TrialFacts
from perf_diagnostics.diagnose.not_measured import NotMeasured
from perf_diagnostics.records import Float64


class Better(enum.StrEnum):
    """Which way a metric improves."""

    LESS = "less"
    MORE = "more"


@dataclass(frozen=True)
class Metric:
    """A metric by its name on the command line.

    Metrics of one ``question`` ask the same thing in two units, and count as one when a verdict allows for the number
    of questions asked. ``better`` and ``worse`` are the words of its verdicts.
    """

    name: str
    title: str
    unit: str
    direction: Better
    question: str
    better: str
    worse: str

    def change_for_the_worse(self, ratio: float) -> float:
        """How much worse NEW is at this ratio of NEW to BASE, as a share of BASE; negative where it is better."""
        return ratio - 1 if self.direction is Better.LESS else 1 - ratio


STEP_TIME = Metric("step_time", "step time", "s", Better.LESS, "speed", "faster", "slower")
THROUGHPUT = Metric("throughput", "throughput", "samples/s", Better.MORE, "speed", "faster", "slower")
PEAK_MEMORY = Metric("peak_memory", "peak memory", "bytes", Better.LESS, "memory", "less memory", "more memory")
ENERGY = Metric("energy", "energy", "J/sample", Better.LESS, "energy", "less energy", "more energy")

#: In reading order.
METRICS: Mapping[str, Metric] = {metric.name: metric for metric in (STEP_TIME, THROUGHPUT, PEAK_MEMORY, ENERGY)}


@dataclass(frozen=True, eq=False)
class Processes:
    """One metric of one configuration: a value for each process that measured it, on either side."""

    base: Float64 | tuple[float, ...]
    new: Float64 | tuple[float, ...]
    source: str = ""


def processes_of(metric: Metric, configuration: Configuration) -> Processes:
    """The values of a metric, one a completed trial.

    Raises:
        NotMeasured: no process of one of the sides has it, or the two sides measured different things.
    """
    base, new = configuration.base.completed, configuration.new.completed
    source, question = _peak_memory((*base, *new)) if metric is PEAK_MEMORY else _QUESTIONS[metric.name]
    return Processes(_answers(question, base, "BASE"), _answers(question, new, "NEW"), source)


Question: TypeAlias = Callable[[TrialFacts], float]


def _answers(question: Question, trials: Sequence[TrialFacts], title: str) -> tuple[float, ...]:
    answers: list[float] = []
    why = NotMeasured("trials", "no trial completed")
    for trial in trials:
        try:
            answers.append(question(trial))
        except NotMeasured as missing:
            why = missing
    if not answers:
        raise NotMeasured(why.signal, f"not measured in {title}: {why.why}")
    if not all(value > 0 for value in answers):
        raise NotMeasured(why.signal, f"{title} measured 0, of which there is no ratio")
    return tuple(answers)


def _peak_memory(trials: Sequence[TrialFacts]) -> tuple[str, Question]:
    """The peak of all these trials: of one kind of memory, read in the best way that all of them were read in."""
    if len({trial.on_accelerator for trial in trials}) > 1:
        raise NotMeasured("memory", "one side ran on the CPU, the other on an accelerator")
    names = _DEVICE_PEAKS if trials and trials[0].on_accelerator else _HOST_PEAKS
    name = next((n for n in names if all(ask(trial.quantity, n) is not None for trial in trials)), names[-1])
    return name, lambda trial: trial.quantity(name)


def _step_time(trial: TrialFacts) -> float:
    trial.column("wall_ns", least=LEAST_STEPS)
    return trial.step_time_s.value


def _throughput(trial: TrialFacts) -> float:
    trial.column("wall_ns", least=LEAST_STEPS)
    return trial.throughput.value


def _energy(trial: TrialFacts) -> float:
    return trial.quantity("energy_device") / samples_of_energy(trial)


#: On the CPU the peak of the whole process tree (loader workers included), or else of the process alone.
_HOST_PEAKS = ("host_tree_memory_peak", "host_memory_peak")

#: What the allocator took from the device is what another process cannot have.
_DEVICE_PEAKS = ("device_memory_peak_reserved",)

_QUESTIONS: Mapping[str, tuple[str, Question]] = {
    STEP_TIME.name: ("mean wall time of a step", _step_time),
    THROUGHPUT.name: ("all samples over all time", _throughput),
    ENERGY.name: ("energy_device", _energy),
}
