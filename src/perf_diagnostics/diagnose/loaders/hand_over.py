"""What it costs a loop to have its batches made by worker processes: least and most, as measured."""

from __future__ import annotations

from dataclasses import dataclass

from perf_diagnostics.diagnose.wording import duration

#: What the loop itself needs to take a batch over from a worker, in s: 0.34 to 0.41 ms of its own CPU time for a batch
#: of two small tensors that takes 0.09 ms to make (torch 2.13, two virtual cores).
HAND_OVER_S = 0.3e-3

#: The most that it costs a loop that made its batches itself before, in s. With one worker, steps of 5 ms and more, and
#: batches of one to eight small tensors that take 0.1 ms to make, the mean wait for one was 1.8 to 4.7 ms in ten
#: measurements (22 Nov 2026, torch 2.13, two cores that others used as well; 0.1 to 0.6 ms without). Steps of 3.1 to
#: 8.3 ms of two trainings, 1.0 to 1.5 ms of them waiting, became 2.0 to 2.7 ms longer. The loop asks a thread of the
#: worker for each tensor, which has to get Python from the next batch's making, and both need a core. Batches of
#: megabytes cost more, 1 to 3.5 ms for each.
HAND_OVER_MOST_S = 5e-3

#: The same where cores enough are free that nobody waits for one: no more than the loop's own CPU time for the same
#: batches, which was 0.5 to 1.8 ms, whoever had the cores. That waits add little is a judgement.
HAND_OVER_ROOMY_S = 2e-3

#: Cores free beside those that train, from which on a worker and all else that runs have one each.
ROOMY_CORES = 2


def most_s(free_cores: float | None) -> float:
    """The most that having a batch made by a first worker costs a loop, in s; unknown cores are taken for few."""
    return HAND_OVER_ROOMY_S if free_cores is not None and free_cores >= ROOMY_CORES else HAND_OVER_MOST_S


def costs(free_cores: float | None) -> str:
    """Least and most, in words."""
    return f"{duration(HAND_OVER_S)} to {duration(most_s(free_cores))}"


@dataclass(frozen=True)
class FirstWorkers:
    """What a loop without workers would make of its wait with some, of the ``batches`` of one step, in s.

    ``work_s`` is what making them takes, ``rest_s`` what else is in a step. At best the loop waits for nothing but the
    hand-over, or for the workers; at worst each batch costs it the most that was measured with so many ``free_cores``.
    """

    work_s: float
    rest_s: float
    batches: int
    free_cores: float | None

    def at_best(self, workers: int) -> float:
        return max(self.rest_s + self.batches * HAND_OVER_S, self.work_s / workers)

    def at_worst(self, workers: int) -> float:
        most = self.batches * most_s(self.free_cores)
        return max(self.rest_s, self.work_s / workers) + most

    def surely_win(self, workers: int) -> bool:
        """Whether a step is shorter even if handing over costs the most."""
        return self.at_worst(workers) < self.rest_s + self.work_s
