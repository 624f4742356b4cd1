"""What is recorded when a remedy is tried: which trials stand against which, and what was predicted beforehand.

An experiment holds its prediction as it was made before the first pair ran; everything it says about the outcome is
worked out from the trials' results whenever it is asked for (see :mod:`perf_diagnostics.diagnose.tried.outcomes`).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from perf_diagnostics.diagnose.finding import Family, Share
from perf_diagnostics.records import Json, Settings, Trial, TrialResult

#: Settings that change what is optimised, or which samples meet: their gain is time, and the loss has to be looked at.
CHANGES_TRAINING = ("batch_size", "precision", "accumulation_steps", "sequence_length", "length_bucketing")

#: What a perfect fix of a whole family could win is measured by leaving its work out.
CEILING_OF: Mapping[Family, str] = {
    Family.INPUT: "cached_batches",
    Family.TRANSFER: "no_transfer",
    Family.OPTIMIZER: "no_optimizer",
}


@dataclass(frozen=True)
class About:
    """The finding whose advice is tried: its code, the group it is about (empty: the run), the gain it predicted."""

    code: str
    group: str
    predicted: Share | None = None


@dataclass(frozen=True, kw_only=True)
class Change:
    """Something to try: a change of settings, in words too, and the findings that ask for it."""

    about: tuple[About, ...]
    says: str
    change: Mapping[str, Json]

    @property
    def ceiling(self) -> bool:
        """It says what a perfect fix could win, and is no way to train."""
        return "ceiling" in self.change

    @property
    def changes_training(self) -> bool:
        """Whether the change alters what is optimised, and not only how fast."""
        return any(name in CHANGES_TRAINING for name in self.change)

    @property
    def predicted(self) -> Share | None:
        """The prediction of the first finding that asks for it and has one: that beside which the change is shown."""
        return next((each.predicted for each in self.about if each.predicted is not None), None)


@dataclass(frozen=True, kw_only=True)
class Candidate(Change):
    """Something worth trying.

    ``base`` is the trial of the run at whose batch the findings hold; its length and repeat are the experiment's to
    choose. ``step_s`` and ``start_s`` are what a step and the way to the first measured step took there, in s.
    """

    base: Trial
    step_s: float
    start_s: float

    @property
    def settings(self) -> Settings:
        """The base's settings with the change.

        Raises:
            InvalidSettings: the change names an unknown setting or an impossible value.
        """
        return self.base.settings.replace(**self.change)


@dataclass(frozen=True, kw_only=True)
class Experiment(Change):
    """A change against its base in pairs of processes.

    Pair ``i`` holds the base and the base with ``change``, both as repeat ``first_repeat + i``, so that they train on
    the same data from the same weights. ``pairs`` is how many are planned.
    """

    base: Trial
    first_repeat: int
    pairs: int

    def pair(self, index: int) -> tuple[Trial, Trial]:
        """The base's trial and the changed one of a pair."""
        base = dataclasses.replace(self.base, repeat=self.first_repeat + index)
        return base, dataclasses.replace(base, settings=base.settings.replace(**self.change))


def same_question(base: Trial, change: object) -> str:
    """Equal for experiments that ask the same: the same change of the same configuration."""
    return json.dumps(
        [base.workload, dict(base.options), base.settings.canonical(), base.seed, change], sort_keys=True, default=dict
    )


@dataclass(frozen=True, kw_only=True)
class LeftOut(Change):
    """Something that could have been tried and was not, and why.

    ``base`` is the trial that would have stood against the change; records of older versions hold its batch size alone.
    """

    batch_size: int
    why: str
    base: Trial | None = None


@dataclass(frozen=True, kw_only=True)
class Experiments:
    """All experiments of a run, with the results there are, in the order in which they were planned.

    Of two that ask the same the later one counts: it was begun because the other one's trials did not settle.
    ``again`` is what one calls to go on with them.
    """

    planned: tuple[Experiment, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    seed: int = 0
    results: tuple[TrialResult, ...] = field(default=(), repr=False)
    again: str = "perf-diagnostics confirm RUN"
