"""What a rule may say: findings with their evidence, and the two other answers, cleared and unchecked."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from perf_diagnostics.records import Json


class Severity(enum.StrEnum):
    """How much it matters; a finding of severity ``info`` never becomes the verdict of a slow run."""

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

    ``batch_sizes`` lists the sizes at which it holds (empty: the whole scope), ``claims`` the share of the step it
    speaks about by phase. ``symptom_of`` names the findings that, if present, are its cause; ``explains``, filled in
    by the engine, the findings that this one is the cause of.
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


@dataclass(frozen=True)
class Cleared:
    """A rule that looked and found nothing wrong, with the numbers it looked at."""

    code: str
    name: str
    summary: str = ""
    evidence: tuple[Evidence, ...] = ()


@dataclass(frozen=True)
class Unchecked:
    """A rule that could not look: which signal was missing, and why."""

    code: str
    name: str
    signal: str
    why: str


@dataclass(frozen=True)
class Verdict:
    """The one sentence to read first: the finding that explains the most, or that nothing is wrong."""

    code: str
    name: str
    family: Family
    summary: str


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """All answers of all rules on one run; ``verdict`` is None where the evidence is too thin for one."""

    verdict: Verdict | None
    findings: tuple[Finding, ...] = ()
    cleared: tuple[Cleared, ...] = ()
    unchecked: tuple[Unchecked, ...] = ()
    no_verdict_because: str = ""
