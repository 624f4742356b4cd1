"""What a plant is: a known fault, its control without the fault, its fix, what must be said of it, and what must not.

To add one, write it into the file of its family and into that file's ``PLANTS``; ``registry.py`` lists the families::

    Plant(
        name="sleeping-loader",
        number="1",
        says="each sample is waited for",
        dose="0.5 ms a sample, 64 samples a batch",
        faulty=Trials(workload="faulty", options=MLP | {"sleep_per_item_ms": 0.5}),
        control=Trials(options=MLP),
        fix=Trials(workload="faulty", options=..., settings={"num_workers": 4}),
        expected=("INP001",),
        top=("INP001",),
        must_not=("HST006",),
        check=slower(2.0),
    )

A code may name alternatives: ``"STB002|STB004"`` is answered by either.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from perf_diagnostics.diagnose.finding import Diagnosis, Family, Finding, Severity
from perf_diagnostics.records import Json, Run


@dataclass(frozen=True)
class Seen:
    """What one arm of a plant brought: its records (None for a trace) and what the rules made of them."""

    run: Run | None
    diagnosis: Diagnosis

    @property
    def step_s(self) -> float:
        """The mean wall time of the steady steps of all completed trials, in s."""
        assert self.run is not None
        tables = [result.steps[0].steady for result in self.run.completed]
        return sum(float(table.wall_ns.sum()) for table in tables) / sum(len(table) for table in tables) / 1e9

    @property
    def s_per_sample(self) -> float:
        """All time over all samples of the completed trials, in s."""
        assert self.run is not None
        tables = [result.steps[0].steady for result in self.run.completed]
        return sum(float(t.wall_ns.sum()) for t in tables) / sum(float(t.samples.sum()) for t in tables) / 1e9

    def column_s(self, name: str) -> float:
        """The sum of a column of ns over all steady steps, in s; 0 where nobody recorded it."""
        assert self.run is not None
        columns = [result.steps[0].steady.get(name) for result in self.run.completed]
        return sum(float(column.sum()) for column in columns if column is not None) / 1e9

    @property
    def steps(self) -> int:
        assert self.run is not None
        return sum(len(result.steps[0].steady) for result in self.run.completed)

    @property
    def faults(self) -> tuple[Finding, ...]:
        """Findings that warn, in the order in which they are read."""
        return tuple(finding for finding in self.diagnosis.findings if finding.severity is not Severity.INFO)

    @property
    def alarms(self) -> tuple[str, ...]:
        """Codes that warn of something else than the experiment itself."""
        return tuple(finding.code for finding in self.faults if finding.family is not Family.EXPERIMENT)


class Bench(Protocol):
    """Where arms are run; see ``bench.py``."""

    def trials(self, arm: Trials, seed: int) -> Run: ...

    def script(self, arm: Script, seed: int) -> Run: ...

    def torchrun(self, arm: Torchrun, seed: int) -> Run: ...

    def folder(self) -> Path: ...


@dataclass(frozen=True, kw_only=True)
class Trials:
    """A real sweep: trials of a workload, each in a process of its own, perhaps with hogs on the processors."""

    workload: str = "mlp"
    options: Mapping[str, Json] = field(default_factory=dict)
    batch_sizes: tuple[int, ...] = (64,)
    settings: Mapping[str, Any] = field(default_factory=dict)
    steps: int = 100
    hogs: int = 0
    kind: Literal["trials"] = "trials"

    @property
    def on_one_core(self) -> bool:
        """Whether nothing of it computes or loads beside the training's one thread."""
        return self.settings.get("threads") == 1 and not self.settings.get("num_workers") and not self.hogs


@dataclass(frozen=True, kw_only=True)
class Script:
    """A real training script under ``perf-diagnostics run``; ``fault`` is its argument.

    ``file`` is its name in ``scripts``. With ``deep`` a profiler's window is recorded when its steps have been timed.
    """

    fault: str = "none"
    steps: int = 100
    file: str = "train.py"
    deep: bool = False
    kind: Literal["script"] = "script"


@dataclass(frozen=True, kw_only=True)
class Torchrun:
    """A real training of several processes, each under ``perf-diagnostics run``, into one record."""

    fault: str = "none"
    steps: int = 40
    ranks: int = 2
    kind: Literal["torchrun"] = "torchrun"


@dataclass(frozen=True)
class Records:
    """Records made up with visible arithmetic: what a machine with a GPU would have written."""

    build: Callable[[int], Run]
    kind: Literal["records"] = "records"


@dataclass(frozen=True)
class Trace:
    """Profiler traces made up event by event, written into a folder; one path a rank."""

    build: Callable[[Path], list[Path]]
    kind: Literal["trace"] = "trace"


Arm = Trials | Script | Torchrun | Records | Trace

#: Whether the fault bit, by something else than the rule that is to find it: an empty text, or why it is inert.
Check = Callable[[Seen, Seen | None], str]


def made(_faulty: Seen, _control: Seen | None) -> str:
    """The check of made-up records: what is planted stands in them."""
    return ""


@dataclass(frozen=True, kw_only=True)
class Plant:
    """A known fault, or (with nothing expected) a decoy or a control on which nothing may be said.

    ``number`` is that of the catalogue of plants. ``expected`` codes have to warn, ``noted`` ones to be found at any
    severity; the verdict has to be one of ``top`` (empty: no verdict is asked for). ``must_not`` codes may not warn,
    ``never_critical`` ones not be critical. ``top`` is what the benchmark scores. ``tried`` says whose advice the fix
    follows (empty: that of the verdict, whichever it is): their prediction is held against what the fix won.
    """

    name: str
    number: str
    says: str
    dose: str
    faulty: Arm
    control: Arm | None = None
    fix: Arm | None = None
    expected: tuple[str, ...] = ()
    noted: tuple[str, ...] = ()
    top: tuple[str, ...] = ()
    must_not: tuple[str, ...] = ()
    never_critical: tuple[str, ...] = ()
    tried: tuple[str, ...] = ()
    check: Check = made

    @property
    def healthy(self) -> bool:
        """Nothing is expected: any alarm is a false one."""
        return not (self.expected or self.noted or self.top or self.never_critical)

    @property
    def real(self) -> bool:
        """Something is trained, and not made up."""
        return self.faulty.kind in ("trials", "script", "torchrun")

    @property
    def bears_another(self) -> bool:
        """Whether another one may be seen beside it, with its control, where each of two has a core of its own.

        Scripts compute in one thread. Of trials in one thread those do whose faults are to be found; where nothing may
        be said, or nothing of others on the machine, they have it to themselves.
        """
        arms = [arm for arm in (self.faulty, self.control) if arm is not None]
        if all(isinstance(arm, Script) for arm in arms):
            return True
        quiet = self.healthy or "EXP010" in self.must_not
        return not quiet and all(isinstance(arm, Trials) and arm.on_one_core for arm in arms)


def complaints(plant: Plant, seen: Seen, control: Seen | None) -> list[str]:
    """What is wrong with the diagnosis of the faulty arm.

    A warning about the experiment itself is no mistake where the control has it too: then the machine is disturbed.
    """
    warned = {finding.code for finding in seen.faults}
    disturbed = {f.code for f in control.faults if f.family is Family.EXPERIMENT} if control is not None else set()
    found = {finding.code for finding in seen.diagnosis.findings}
    critical = {finding.code for finding in seen.faults if finding.severity is Severity.CRITICAL}
    wrong = [f"{codes} does not warn" for codes in plant.expected if not any_of(codes, warned)]
    wrong += [f"{codes} is not found" for codes in plant.noted if not any_of(codes, found)]
    wrong += [f"{code} warns" for code in plant.must_not if code in warned - disturbed]
    wrong += [f"{code} is critical" for code in plant.never_critical if code in critical]
    verdict = seen.diagnosis.verdict
    if plant.top and (verdict is None or verdict.code not in plant.top):
        got = seen.diagnosis.no_verdict_because if verdict is None else verdict.code
        wrong.append(f"the verdict is {got}, not one of {', '.join(plant.top)}")
    if plant.healthy and seen.alarms:
        wrong.append(f"{', '.join(seen.alarms)} warn of nothing")
    return wrong


def any_of(codes: str, among: set[str]) -> bool:
    return bool(set(codes.split("|")) & among)


# -- manipulation checks


def slower(times: float) -> Check:
    """A step takes so many times as long as the control's, by the clock alone."""

    def check(faulty: Seen, control: Seen | None) -> str:
        assert control is not None
        ratio = faulty.step_s / control.step_s
        return "" if ratio >= times else f"a step takes {ratio:.2f} times as long as the control's, not {times}"

    return check


def spends(name: str, least_share: float) -> Check:
    """A column takes at least this share of the steps' time."""

    def check(faulty: Seen, control: Seen | None) -> str:
        share = faulty.column_s(name) / (faulty.step_s * faulty.steps)
        return "" if share >= least_share else f"{name} takes {share:.0%} of the steps, not {least_share:.0%}"

    return check


def long_steps(count: int, least_s: float) -> Check:
    """So many steps take at least ``least_s`` longer than the middle one."""

    def check(faulty: Seen, control: Seen | None) -> str:
        assert faulty.run is not None
        longer = 0
        for result in faulty.run.completed:
            wall_s = np.asarray(result.steps[0].steady.wall_ns) / 1e9
            longer += int(np.count_nonzero(wall_s - np.median(wall_s) >= least_s))
        return "" if longer >= count else f"{longer} steps are {least_s:.2f} s longer than the middle one, not {count}"

    return check


def ends_as(*outcomes: str) -> Check:
    """The trials end like this."""

    def check(faulty: Seen, control: Seen | None) -> str:
        assert faulty.run is not None
        ended = {str(result.outcome) for result in faulty.run.results}
        return "" if ended & set(outcomes) else f"the trials ended as {', '.join(sorted(ended))}"

    return check


def grows(name: str, least: float) -> Check:
    """A column's last value lies so much above its first one."""

    def check(faulty: Seen, control: Seen | None) -> str:
        assert faulty.run is not None
        columns = [result.steps[0].steady.get(name) for result in faulty.run.completed]
        # Memory is not read at every step.
        read = [column[np.isfinite(column)] for column in columns if column is not None]
        grown = max((float(values[-1] - values[0]) for values in read if len(values)), default=None)
        if grown is None:
            return f"{name} was not recorded"
        return "" if grown >= least else f"{name} grew by {grown:.3g}, not {least:.3g}"

    return check
