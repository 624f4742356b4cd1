"""What a trial is called in other tools, and the numbers one plots of it first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from perf_diagnostics.diagnose.facts.facts import TrialFacts
from perf_diagnostics.diagnose.facts.recorded import ask
from perf_diagnostics.records import ALL_PHASES, Phase, Run, Trial, TrialResult

#: Settings that have a place of their own in :attr:`Trial.label`.
_IN_LABEL = frozenset({"batch_size", "device", "precision"})


def sweep_results(run: Run) -> tuple[TrialResult, ...]:
    """The results that belong to the sweep itself: a sentinel only watches the machine."""
    return tuple(result for result in run.results if not result.trial.role)


def configuration(trial: Trial) -> str:
    """The trial without its batch size and repeat: ``mlp cpu num_workers=2``."""
    settings = trial.settings
    words = [trial.workload, settings.device]
    if settings.precision != "float32":
        words.append(settings.precision)
    words += [f"{name}={value}" for name, value in settings.canonical().items() if name not in _IN_LABEL]
    words += [f"{name}={value}" for name, value in sorted(trial.options.items())]
    return " ".join(words)


def full_label(trial: Trial) -> str:
    """A name no other trial of the run has: ``mlp cpu num_workers=2 batch 8 repeat 1``."""
    repeat = f" repeat {trial.repeat}" if trial.repeat else ""
    return f"{configuration(trial)} batch {trial.settings.batch_size}{repeat}"


def phase_means_s(facts: TrialFacts) -> Mapping[Phase, float]:
    """Mean time of each phase that was measured, in s."""
    known = {phase: ask(facts.phase_time_s, phase) for phase in ALL_PHASES}
    return {phase: interval.value for phase, interval in known.items() if interval is not None}


def headline_numbers(facts: TrialFacts) -> Mapping[str, float]:
    """What one plots of a trial first: step time in s, samples/s, and the share of each phase."""
    throughput, step = ask(lambda: facts.throughput), ask(lambda: facts.step_time_s)
    numbers = {
        "throughput_samples_per_s": None if throughput is None else throughput.value,
        "step_time_s": None if step is None else step.value,
    }
    shares = {
        f"share/{phase}": share.value for phase in ALL_PHASES if (share := ask(facts.whole_share, phase)) is not None
    }
    return {name: value for name, value in numbers.items() if value is not None} | shares


def by_batch_size(results: Iterable[TrialResult]) -> list[tuple[int, list[TrialResult]]]:
    """The results by rising batch size."""
    sizes: dict[int, list[TrialResult]] = {}
    for result in results:
        sizes.setdefault(result.trial.settings.batch_size, []).append(result)
    return sorted(sizes.items())
