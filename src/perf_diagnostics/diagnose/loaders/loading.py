"""A loader's answers: what making a batch costs, and how long a step would take with more workers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

from perf_diagnostics.diagnose.loaders.hand_over import HAND_OVER_S, SMALL, FirstWorkers, HandedOver
from perf_diagnostics.diagnose.loaders.waits_by_looks import LoaderLooks
from perf_diagnostics.diagnose.loaders.waits_timed import WORTH_SAYING, LoaderParts
from perf_diagnostics.diagnose.wording import counted, duration

Kind: TypeAlias = Literal["computing", "waiting", "mixed", "unknown"]

#: With less than this part of the cores left idle, workers that do not compute may just wait for a core.
SATURATED = 0.1

#: Batches that come closer together than so many hand-overs are as likely to be held up by these as by being made.
_RUSHED = 4

#: The same where there are more workers than free cores, so that a hand-over may wait for one: with 8 workers for small
#: tensors in memory a step took 2.1 ms on two cores, 1.2 ms of it waiting, and 1.9 ms without any (torch 2.13).
_RUSHED_IN_A_CROWD = 8


@dataclass(frozen=True)
class Loading:
    """What making a batch costs, and what there is to make it with.

    ``work_s`` is what one worker needs for a batch, ``needed`` how many workers keep up with the rest of the step,
    ``rest_s``, all for the ``batches`` of one step. ``kind`` is how that time is spent: computing, waiting (disk,
    network, locks), mixed, or unknown; what of it passed without a core (``delayed``, where the scheduler's count is
    known) is no part of either. ``lay_ready``: for most of the wait a batch was there, and the loop had no core; then
    workers may have been idle, and ``work_s`` is the most that a batch takes; so they may (``may_idle``) where others'
    load explains most of the wait. ``computes_s`` is the workers' CPU time a step. ``hand_over_s`` is what taking over
    the batches of a step from workers costs the loop, by what a ``batch`` holds, and ``hands_over``: that is most of
    its wait, once passes have begun. Where workers are started anew for each pass over the data (``anew``), or there
    are none, so that the loop itself begins each pass, the first steps of passes are left out: a step takes ``now_s``,
    and all others ``of_time`` of the time. ``starts_share`` is the part of the wait that lies in the first, and
    ``starts``: that is most of it. ``each``: nearly each step begins a pass anew, so that there are no others.
    ``looks`` are what the loop was seen to do in its wait, without workers. ``parts`` are what was timed there: drawing
    which samples a batch has is the loop's own work, with workers as without, and so a part of ``rest_s`` and none of
    ``work_s``.
    """

    work_s: float
    rest_s: float
    now_s: float
    kind: Kind
    workers: int | None
    needed: int
    free_cores: float | None
    wait_s: float
    batches: int = 1
    delayed: float | None = None
    lay_ready: bool = False
    may_idle: bool = False
    hand_over_s: float = HAND_OVER_S
    batch: HandedOver = SMALL
    hands_over: bool = False
    of_time: float = 1.0
    starts: bool = False
    starts_share: float = 0.0
    anew: bool = False
    computes_s: float | None = None
    each: bool = False
    looks: LoaderLooks | None = None
    parts: LoaderParts | None = None

    @property
    def draws(self) -> LoaderParts | None:
        """The parts of the wait, where drawing which samples a batch has is most of it."""
        return self.parts if self.parts is not None and self.parts.draws_most else None

    @property
    def start(self) -> str:
        """What goes on in the first wait of each pass, where that is most of the wait."""
        if self.each:
            return "a pass over the data is begun, in nearly each step"
        if self.anew:
            return "the loader's workers are started, anew for each pass over the data"
        return "a pass over the data is begun: its sampler, or the data set's __iter__"

    @property
    def starts_too(self) -> bool:
        """Starting workers anew for each pass is not most of the wait, and a part of it that is worth a word."""
        return self.anew and not self.starts and self.starts_share >= WORTH_SAYING

    @property
    def lacked_cores(self) -> bool:
        """Too much of the time passed without a core to be left unsaid."""
        return self.delayed is not None and self.delayed >= SATURATED

    @property
    def workers_pay(self) -> bool:
        """False where taking a batch over from a worker takes the loop longer than it waits for one now."""
        return self.wait_s > self.batches * self.batch.least_s

    @property
    def first(self) -> FirstWorkers:
        """What first workers would make of the wait."""
        return FirstWorkers(self.wait_s, self.rest_s, self.batches, self.free_cores, self.batch)

    @property
    def workers_win(self) -> bool:
        """False without workers where handing batches over may cost the loop all that they would win."""
        return bool(self.workers) or self.first.surely_win(self._at_once(self.needed))

    @property
    def gathers(self) -> bool:
        """Most of the wait is torch's own Python, which fetches and stacks sample by sample."""
        return self.looks is not None and self.looks.gathers_most

    @property
    def rushed(self) -> bool:
        """Workers run, and batches come so close together that handing them over may be what takes the time."""
        return rushed(self.now_s, self.batches * self.batch.calls_s, self.workers, self.free_cores)

    @property
    def takes(self) -> str:
        """``Loading a batch takes one worker 12.0 ms``, or where there are none, the loop."""
        what = "Loading a batch takes" if self.batches == 1 else f"Loading the {self.batches} batches of a step takes"
        most = " at most" if self.may_idle or self.rushed else ""
        return f"{what} {'one worker' if self.workers else 'the loop'} {duration(self.work_s)}{most}"

    @property
    def sooner_alone(self) -> bool:
        """Batches lie ready, and the workers compute for them less than the loop waits for a core to take them."""
        return self.lay_ready and self.computes_s is not None and self.computes_s < self.wait_s

    @property
    def cores_lacking(self) -> bool:
        """More workers cannot compute faster than the free cores allow, and there are as many as these already."""
        return self.cores_short and (self.workers or 0) >= int(self.free_cores or 0)

    @property
    def cores_short(self) -> bool:
        """Workers on all free cores would not keep up."""
        return self.kind == "computing" and self.free_cores is not None and self.needed > self.free_cores

    @property
    def guessed(self) -> bool:
        """Whether loading computes is not known, and if it does, there is no core for it."""
        return self.kind == "unknown" and self.free_cores is not None and self.free_cores < 1

    @property
    def more_may_help(self) -> bool:
        """More workers: false where something else is known to hold the loop up, or they may only take its cores."""
        not_made_late = self.starts or self.lay_ready or self.hands_over or self.rushed or self.draws is not None
        no_core = self.kind == "mixed" and self.free_cores is not None and self.free_cores < 1
        return self.workers_win and not (not_made_late or self.cores_lacking or self.guessed or no_core)

    @property
    def cores_left(self) -> str:
        """``No core is free`` or ``Only 2 cores are free``."""
        free = int(self.free_cores or 0)
        return f"Only {counted(free, 'core')} {'is' if free == 1 else 'are'} free" if free else "No core is free"

    def step_s(self, workers: int) -> float:
        """The least a step takes with so many workers: the rest of it and the hand-over, or the workers' own time."""
        return max(self.rest_s + self.hand_over_s, self.work_s / workers)

    def most_step_s(self, workers: int) -> float:
        """The most that it takes: first workers may cost the loop more than what taking their batches over does."""
        return self.step_s(workers) if self.workers else self.first.at_worst(self._at_once(workers))

    def _at_once(self, workers: int) -> int:
        """How many of so many workers have a core to compute on."""
        cores = self.free_cores if self.kind == "computing" else None
        return max(1, workers if cores is None else min(workers, int(cores)))

    def left(self, step_s: float) -> float:
        """Share of today's time that is left where a step takes so long, and the first ones of passes what they do."""
        return 1 - self.of_time * (1 - step_s / self.now_s)

    def proposed(self, cores: float | None, workers_per_core: float) -> int:
        """Workers to try: one more than would just keep up, within what the cores bear."""
        most = math.inf if cores is None else cores * workers_per_core
        if self.kind == "computing" and self.free_cores is not None:
            most = self.free_cores
        return int(min(self.needed + 1, most))

    def beside_needed(self, proposed: int) -> str:
        """Why others are proposed than would keep up: ``5 would only just keep up``; empty where they are as many."""
        if proposed == self.needed:
            return ""
        if proposed > self.needed:
            return f"{self.needed} would only just keep up"
        return f"{self.needed} would keep up, and {proposed} are the most to try on these cores"


def rushed(step_s: float, hand_over_s: float, workers: int | None, free_cores: float | None) -> bool:
    """Whether batches of running workers come so close together that handing them over may be what takes the time."""
    crowd = free_cores is not None and (workers or 0) > free_cores
    return bool(workers) and step_s < (_RUSHED_IN_A_CROWD if crowd else _RUSHED) * hand_over_s
