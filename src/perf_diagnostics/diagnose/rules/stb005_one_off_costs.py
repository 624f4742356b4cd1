"""STB005: set-up and the first step cost as much as very many steps, and when compiling has paid for itself."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from perf_diagnostics.diagnose.facts.facts import Group, NotMeasured, Point, SweepFacts, ask
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, limit
from perf_diagnostics.diagnose.wording import duration, percent

_KEEP = (
    "Keep what was prepared (a vocabulary, tokenised data, compiled kernels) from run to run; compile only trainings "
    "that are long enough."
)


@dataclass(frozen=True)
class Compiled:
    """What compiling cost once and won each step, at one batch size, in s."""

    label: str
    batch_size: int
    cost_s: float
    won_s: float

    @property
    def steps(self) -> float:
        """Steps after which it has paid for itself; infinite where it wins nothing."""
        return self.cost_s / self.won_s if self.won_s > 0 else math.inf


@dataclass(frozen=True)
class OneOffCosts:
    """Set-up and the first step cost as much as very many steps.

    What it measures:
        Set-up and first step beyond a steady one, against a training of a thousand steps; of a script under ``run`` all
        that it does before its first step, imports included. Where the same
        configuration ran compiled and not, also what compiling cost once, what it wins each step, and after how many
        steps it has paid for itself.

    Why it matters:
        Short trainings, tuning runs and tests pay the one-off costs most; compiling that pays after ten thousand steps
        is no gain to a training of a thousand.

    What to try:
        Keep what was prepared (tokenised data, compiled kernels: ``TORCHINDUCTOR_CACHE_DIR``); compile only trainings
        that are long enough.

    When it is wrong:
        Caches that were warm at one trial and cold at another make the one-off costs differ by themselves. How long the
        training will really be is not known here.
    """

    code: ClassVar[str] = "STB005"
    name: ClassVar[str] = "one-off-costs"
    family: ClassVar[Family] = Family.STABILITY
    looks_at: ClassVar[Literal["run"]] = "run"

    share: float = field(default=0.10, metadata=limit("one-off cost over the whole training to mention", "judgement"))
    training_steps: int = field(default=1000, metadata=limit("steps of the training it is held against", "judgement"))

    def check(self, facts: SweepFacts) -> Answer:
        primary = facts.primary
        if primary is None:
            raise NotMeasured("first_step_s", "no trial completed")
        point = primary.recommended
        once, step = _once_s(point), point.step_time_s.value
        part = once / (once + self.training_steps * step)
        pairs = list(_pairs(facts))
        numbers = (
            Evidence(metric="set-up and first step", value=once, unit="s"),
            Evidence(metric=f"of a training of {self.training_steps} steps", value=part * 100, unit="%",
                     limit=self.share * 100),
            *(_number(pair) for pair in pairs),
        )  # fmt: skip
        if part < self.share and not pairs:
            return cleared(
                self, f"set-up and first step take {duration(once)}, {percent(part)} of a thousand steps", *numbers
            )
        says = [_says(pair) for pair in pairs]
        if part >= self.share:
            says.insert(
                0,
                f"Set-up and first step take {duration(once)}, as long as {math.ceil(once / step)} steps: "
                f"{percent(part)} of a training of {self.training_steps} steps.",
            )
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.INFO,
            summary=" ".join(says),
            scope=primary.label,
            evidence=numbers,
            remedies=(Remedy(_KEEP),),
            confidence=0.5,
        )


def _once_s(point: Point) -> float:
    """Set-up and first step beyond a steady step, in s: the middle of the repeats."""
    step = point.step_time_s.value
    costs = [
        (ask(trial.quantity, "setup_s") or 0.0) + max(0.0, trial.quantity("first_step_s") - step)
        for trial in point.trials
    ]
    return float(np.median(costs))


def _pairs(facts: SweepFacts) -> Iterator[Compiled]:
    """Each group that was compiled against the same one that was not, at its largest common batch size."""
    for group in facts.groups:
        if group.settings.get("compile_mode") is None:
            continue
        plain = next((other for other in facts.groups if _same_but_compiled(group, other)), None)
        common = set(group.batch_sizes) & set(() if plain is None else plain.batch_sizes)
        if plain is None or not common:
            continue
        size = max(common)
        new, old = (next(p for p in each.points if p.batch_size == size) for each in (group, plain))
        won = old.step_time_s.value - new.step_time_s.value
        yield Compiled(group.label, size, max(0.0, _once_s(new) - _once_s(old)), won)


def _same_but_compiled(group: Group, other: Group) -> bool:
    rest = {name: value for name, value in group.settings.items() if name != "compile_mode"}
    return (other.workload, dict(other.options), dict(other.settings)) == (group.workload, dict(group.options), rest)


def _number(pair: Compiled) -> Evidence:
    steps = pair.steps
    return Evidence(
        metric=f"steps until compiling pays, batch {pair.batch_size}",
        value="never" if math.isinf(steps) else float(math.ceil(steps)),
    )


def _says(pair: Compiled) -> str:
    begin = f"Compiling cost {duration(pair.cost_s)} once at batch {pair.batch_size}"
    if math.isinf(pair.steps):
        return f"{begin} and wins nothing ({pair.label})."
    return (
        f"{begin} and wins {duration(pair.won_s)} a step: it has paid for itself after {math.ceil(pair.steps)} steps "
        f"({pair.label})."
    )
