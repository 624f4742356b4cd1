"""What it costs a loop to have its batches made by worker processes: least and most, as measured."""

from __future__ import annotations

from dataclasses import dataclass

from perf_diagnostics.diagnose.facts.facts import TrialFacts, ask
from perf_diagnostics.diagnose.finding import Remedy
from perf_diagnostics.diagnose.wording import duration

#: What the loop itself needs to take a batch over from a worker, in s: 0.34 to 0.41 ms of its own CPU time for a batch
#: of two small tensors that takes 0.09 ms to make (torch 2.13, two virtual cores).
HAND_OVER_S = 0.3e-3

#: What each tensor beyond these two adds, in s: its memory comes as a file descriptor of its own, through a thread of
#: the worker. 0.10 to 0.12 ms of the loop's CPU time each, from 8 to 512 small ones (torch 2.13, 22 Nov 2026).
TENSOR_S = 0.1e-3

#: What each byte adds, in s: pages of shared memory that are new to the loop are mapped as they are read, and unmapped
#: with the batch; what is pickled (arrays, strings) crosses a pipe. 0.36 to 0.5 ms of the loop's CPU time a megabyte
#: for tensors of 1 to 30 MB, less what making and freeing them in the loop took; 0.33 ms for arrays and strings up to
#: 10 MB, 2 ms for arrays of 50 MB (as before). What the loop makes itself comes from memory that it had before.
BYTE_S = 0.35e-9

#: The most that it costs a loop that made its batches itself before, in s. With one worker, steps of 5 ms and more, and
#: batches of one to eight small tensors that take 0.1 ms to make, the mean wait for one was 1.8 to 4.7 ms in ten
#: measurements (22 Nov 2026, torch 2.13, two cores that others used as well; 0.1 to 0.6 ms without). Steps of 3.1 to
#: 8.3 ms of two trainings, 1.0 to 1.5 ms of them waiting, became 2.0 to 2.7 ms longer. The loop asks a thread of the
#: worker for each tensor, which has to get Python from the next batch's making, and both need a core.
HAND_OVER_MOST_S = 5e-3

#: What each tensor beyond eight adds to that, in s: waits for batches of 64 and 256 small tensors were 0.19 to 0.32 ms
#: a tensor on two cores that others used as well.
TENSOR_MOST_S = 0.3e-3

#: What each byte adds, in s: batches of megabytes were waited for 1 to 3.5 ms longer for each, on the same two cores.
BYTE_MOST_S = 3.5e-9

#: The same where cores enough are free that nobody waits for one: no more than the loop's own CPU time for the same
#: batches, which was 0.5 to 1.8 ms, whoever had the cores. That waits add little is a judgement.
HAND_OVER_ROOMY_S = 2e-3

#: … for each tensor beyond eight, in s: waits of 0.18 to 0.24 ms a tensor while the loop slept between its batches.
TENSOR_ROOMY_S = 0.25e-3

#: … and for each byte: the least of those waits, twice the loop's own CPU time.
BYTE_ROOMY_S = 1e-9

#: Cores free beside those that train, from which on a worker and all else that runs have one each.
ROOMY_CORES = 2

#: Tensors of the batches for which ``HAND_OVER_S`` was measured, and the most of those for the other two.
_FEW_TENSORS = 2
_EIGHT_TENSORS = 8


@dataclass(frozen=True)
class HandedOver:
    """What a batch is made of, as far as handing it over goes: its tensors, and the bytes of all that it holds.

    By default one of two small tensors: what is assumed where nobody looked.
    """

    tensors: float = _FEW_TENSORS
    bytes: float = 0.0

    @classmethod
    def of(cls, facts: TrialFacts) -> HandedOver:
        """What the first batches of a trial held."""
        tensors, held = (ask(facts.number, name) for name in ("batch_tensors", "batch_bytes"))
        return cls() if tensors is None or held is None else cls(tensors, held)

    @property
    def many(self) -> bool:
        """Whether it has more tensors than samples that were put together need."""
        return self.tensors > _EIGHT_TENSORS

    @property
    def calls_s(self) -> float:
        """The least that asking for its tensors takes the loop, in s: what of the hand-over is a wait."""
        return HAND_OVER_S + TENSOR_S * max(0.0, self.tensors - _FEW_TENSORS)

    @property
    def least_s(self) -> float:
        """The least that taking it over takes the loop, in s."""
        return self.calls_s + BYTE_S * self.bytes

    def most_s(self, free_cores: float | None) -> float:
        """The most that having it made by a first worker costs, in s; unknown cores are taken for few."""
        more = max(0.0, self.tensors - _EIGHT_TENSORS)
        if free_cores is not None and free_cores >= ROOMY_CORES:
            return HAND_OVER_ROOMY_S + TENSOR_ROOMY_S * more + BYTE_ROOMY_S * self.bytes
        return HAND_OVER_MOST_S + TENSOR_MOST_S * more + BYTE_MOST_S * self.bytes

    @property
    def fewer(self) -> Remedy:
        """How it becomes quicker to hand over."""
        if not self.many:
            return Remedy("Hand over few large tensors a batch, not many small objects: arrays in place of lists.")
        return Remedy(
            "Put the samples together in collate_fn, in the worker: concatenated, stacked or padded into a few large "
            f"tensors, not the {self.tensors:.0f} that a batch has now. Each of them crosses by itself, "
            "and the loop asks the worker for it."
        )

    def costs(self, free_cores: float | None) -> str:
        """Least and most, in words."""
        return f"{duration(self.least_s)} to {duration(self.most_s(free_cores))}"


#: Two small tensors.
SMALL = HandedOver()


@dataclass(frozen=True)
class FirstWorkers:
    """What a loop without workers would make of its wait with some, of the ``batches`` of one step, in s.

    ``work_s`` is what making them takes, ``rest_s`` what else is in a step. At best the loop waits for nothing but the
    hand-over of each ``batch``, or for the workers; at worst each costs it the most that was measured with so many
    ``free_cores``.
    """

    work_s: float
    rest_s: float
    batches: int
    free_cores: float | None
    batch: HandedOver = SMALL

    def at_worst(self, workers: int) -> float:
        most = self.batches * self.batch.most_s(self.free_cores)
        return max(self.rest_s, self.work_s / workers) + most

    def surely_win(self, workers: int) -> bool:
        """Whether a step is shorter even if handing over costs the most."""
        return self.at_worst(workers) < self.rest_s + self.work_s
