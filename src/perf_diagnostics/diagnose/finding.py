"""What a rule may say: findings with their evidence, and the two other answers, cleared and unchecked."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from perf_diagnostics.diagnose.code_share import CodeShare
from perf_diagnostics.diagnose.framework import Framework
from perf_diagnostics.diagnose.not_measured import RULE
from perf_diagnostics.diagnose.statistics.intervals import Interval
from perf_diagnostics.records import Json


class Severity(enum.StrEnum):
    """How much it matters; a finding of severity ``info`` is no fault, also where the verdict speaks about it."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


class Family(enum.StrEnum):
    """The families of the catalogue; a code is the family and three digits."""

    INPUT = "INP"
    TRANSFER = "XFR"
    HOST = "HST"
    COMPUTE = "CMP"
    OPTIMIZER = "OPT"
    MEMORY = "MEM"
    STABILITY = "STB"
    POWER = "PWR"
    PROCESSOR = "CPU"
    COMMUNICATION = "COM"
    SWEEP = "SWP"
    EXPERIMENT = "EXP"


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """One measured number behind a finding, the limit it is held against, and from how many samples."""

    metric: str
    value: float | str
    unit: str = ""
    limit: float | None = None
    n: int | None = None
    low: float | None = None
    high: float | None = None
    source: str = ""


@dataclass(frozen=True)
class Remedy:
    """Something to try, in words, and the change of trial settings that tries it (empty: not by a setting)."""

    says: str
    change: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True)
class Share:
    """A share of the step's time that a fix could win back: best guess and the ends it lies between, each in 0…1.

    ``measured`` where both configurations were run, so that the ends are those of a 95 % interval; else the gain is
    predicted, and the ends say how much of a prediction is usually realised.
    """

    value: float
    low: float
    high: float
    measured: bool = False


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A fault that was found, where (``scope``), how bad, how sure, and what a fix could win.

    ``batch_sizes`` lists the sizes at which it holds (empty: the whole scope), first the one of its gain, ``claims``
    the share of the step it speaks about by phase. ``symptom_of`` names the findings that, if present, are its cause;
    ``explains``, filled in by the engine, the findings that this one is the cause of. The engine also fills in
    ``group``, the label of the group it is about (empty: the whole run), whether it holds at the batch at which one
    would train, and the ``lines`` of the user's code in which the time it claims was seen.
    """

    code: str
    name: str
    family: Family
    severity: Severity
    summary: str
    scope: str
    evidence: tuple[Evidence, ...]
    remedies: tuple[Remedy, ...] = ()
    recoverable: Share | None = None
    confidence: float = 0.5
    explains: tuple[str, ...] = ()
    batch_sizes: tuple[int, ...] = ()
    claims: Mapping[str, float] = field(default_factory=dict)
    symptom_of: tuple[str, ...] = ()
    group: str = ""
    at_recommended: bool = True
    lines: tuple[CodeShare, ...] = ()


@dataclass(frozen=True)
class Cleared:
    """A rule that looked and found nothing wrong, with the numbers it looked at."""

    code: str
    name: str
    summary: str = ""
    evidence: tuple[Evidence, ...] = ()


@dataclass(frozen=True)
class Unchecked:
    """A rule that could not look: which signal was missing, and why.

    ``applies`` is false where the question does not arise at all, such as a device's copies in a trial on the CPU.
    """

    code: str
    name: str
    signal: str
    why: str
    applies: bool = True

    @property
    def failed(self) -> bool:
        """Whether the rule looked, and ended with an error."""
        return self.signal == RULE

    @property
    def words(self) -> str:
        """``recompiles (HST007): why``."""
        return f"{self.name} ({self.code}): {self.why}"


@dataclass(frozen=True)
class Verdict:
    """What to read first: the finding that explains the most, or that nothing is wrong, or what is worth trying then.

    ``fault`` is false where no rule found a fault: then the finding is the largest saving seen, or says where the time
    goes. ``summary`` holds what the finding says, behind ``opening``, if that is not empty: words that may stand apart,
    before the line of code. ``note`` is what else there is to know, such as where nobody looked, and stands last.
    """

    code: str
    name: str
    family: Family
    summary: str
    fault: bool = True
    opening: str = ""
    note: str = ""


class Trying(enum.StrEnum):
    """What came of trying a change: the whole interval of its gain above the practical threshold, below it, or not.

    It is too early to say while fewer pairs have run than a verdict needs, and not settled where enough have run, but
    too few of which both trials were past their warm-up when they were measured.
    """

    CONFIRMED = "confirmed"
    REFUTED = "refuted"
    INCONCLUSIVE = "inconclusive"
    TOO_EARLY = "too early to say"
    NOT_SETTLED = "not settled"
    NOT_TRIED = "not tried"


@dataclass(frozen=True, kw_only=True)
class Tried:
    """A change of settings against its base, in pairs of processes, and what that says about the findings behind it.

    ``gain`` is the part of the time a sample takes that the change saves (negative: it costs), with its 95 % interval;
    None before the first whole pair. ``predicted`` is what was predicted before the first of them ran, and
    ``as_predicted`` whether the gain lies in it (None where one of the two is missing, or too few pairs have run).
    ``base_s`` and ``new_s`` are the geometric means of the time a sample took, in s. A ``ceiling`` says what a perfect
    fix could win and is no way to train; ``changes_training`` marks what alters the optimisation and not only its
    speed.
    """

    codes: tuple[str, ...]
    groups: tuple[str, ...]
    where: str
    says: str
    change: Mapping[str, Json]
    verdict: Trying
    predicted: Share | None = None
    gain: Interval | None = None
    as_predicted: bool | None = None
    pairs: int = 0
    base_s: float | None = None
    new_s: float | None = None
    why: str = ""
    changes_training: bool = False
    ceiling: bool = False


@dataclass(frozen=True)
class OperatorShare:
    """One operator by name in one phase: how often it is called in a step, and its share of the step's time."""

    name: str
    phase: str
    calls: float
    share: float


@dataclass(frozen=True, kw_only=True)
class StepWaterfall:
    """Where the steps of a trial's profiler window went: parts in ns over all of them, which add up to ``wall_ns``.

    ``parts`` goes by the names of the trace's waterfall, in the order in which they are shown. ``slowdown`` is the
    profiled step over the undisturbed one: only shares of a window mean anything. ``prompt_share`` (f20) is None where
    nothing ran on a device. ``operators`` are those with the most time in forward and in backward on the CPU,
    ``calls`` how many a step has in both, and ``pauses`` the share of the step between operators; empty and None where
    that cannot be told.
    """

    scope: str
    steps: int
    wall_ns: int
    parts: tuple[tuple[str, int], ...]
    on_device: bool
    slowdown: float | None = None
    prompt_share: float | None = None
    operators: tuple[OperatorShare, ...] = ()
    calls: float | None = None
    pauses: float | None = None


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """All answers of all rules on one run; ``verdict`` is None where the evidence is too thin for one.

    Then ``suspected`` is the code of the finding that ``no_verdict_because`` names, if it names one, and
    ``would_decide`` says how to find out whether it is a fault.
    ``tried`` says what came of the advice that was tried, in the order in which it was; ``waterfall`` where a step at
    the recommended batch went, if a profiler window of it was recorded. ``lines`` says where in the user's own code
    the step's time goes, the line with most of it first, and ``looks`` how often that was looked at. A training of the
    user's own does not take the settings (``takes_settings``) that a remedy may change: there its words have to do, and
    what its ``framework`` is told.
    """

    verdict: Verdict | None
    findings: tuple[Finding, ...] = ()
    cleared: tuple[Cleared, ...] = ()
    unchecked: tuple[Unchecked, ...] = ()
    no_verdict_because: str = ""
    suspected: str = ""
    would_decide: str = ""
    tried: tuple[Tried, ...] = ()
    waterfall: StepWaterfall | None = None
    lines: tuple[CodeShare, ...] = ()
    looks: int = 0
    takes_settings: bool = True
    framework: Framework = field(default_factory=Framework)

    def setting_of(self, remedy: Remedy | Tried) -> Mapping[str, Json]:
        """The change of settings that tries a remedy; empty where there is none to be made."""
        return remedy.change if self.takes_settings else {}

    @property
    def not_checked(self) -> tuple[Unchecked, ...]:
        """The rules that would have had something to look at, had it been measured."""
        return tuple(rule for rule in self.unchecked if rule.applies)

    @property
    def not_checked_because(self) -> Mapping[str, tuple[Unchecked, ...]]:
        """The same rules by the reason, which many may share."""
        reasons: dict[str, list[Unchecked]] = {}
        for rule in self.not_checked:
            reasons.setdefault(rule.why, []).append(rule)
        return {why: tuple(rules) for why, rules in reasons.items()}

    @property
    def does_not_apply(self) -> Mapping[str, tuple[Unchecked, ...]]:
        """The rules whose question does not arise in this run, by the reason."""
        reasons: dict[str, list[Unchecked]] = {}
        for rule in self.unchecked:
            if not rule.applies:
                reasons.setdefault(rule.why, []).append(rule)
        return {why: tuple(rules) for why, rules in reasons.items()}
