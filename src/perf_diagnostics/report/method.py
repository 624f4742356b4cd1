"""What stands behind a report's numbers: how they were measured, and what was not.

Every sentence is made from what the results themselves recorded. What no record says, the report does not say either.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from perf_diagnostics.diagnose.finding import Diagnosis
from perf_diagnostics.diagnose.rule_parts.gain import Tier
from perf_diagnostics.records import Gap, Run, TrialResult
from perf_diagnostics.report.arms import Arm, TrialFigures
from perf_diagnostics.report.care import overhead, ranks, sentinels
from perf_diagnostics.report.model import Report
from perf_diagnostics.report.tables.tables import NOT_STEADY, stop_words
from perf_diagnostics.report.words import counted, listing, percent, plain, without_its_name

#: What begins the codes of the rules that lacked a signal, which nobody else asked for.
_NEEDED_BY = "(needed by "

_CLOCKS = {
    "host": "by the host's clock alone",
    "cuda_event": "by timing events on the device's stream",
    "device_event": "by timing events on the device's stream",
    "synchronised": "by the host's clock after waiting for the device, which removes overlap",
}


def method_of(run: Run, arms: Sequence[Arm], diagnosis: Diagnosis) -> tuple[str, ...]:
    """How the numbers came to be, in sentences made from provenance, step tables and stop reasons."""
    figures = [f for arm in arms for f in arm.results if f.steps]
    paragraphs = [
        _time(figures),
        _warmup(figures),
        _stopping(figures),
        _statistics(figures),
        ranks([f.result for f in figures]),
        overhead(arms),
        sentinels(run, diagnosis),
        _confidence(diagnosis),
        _order(run),
    ]
    paragraphs += [plain(note) for note in run.notes]
    return tuple(paragraph for paragraph in paragraphs if paragraph)


def _time(figures: Sequence[TrialFigures]) -> str:
    hosts = _different(f.result.provenance.get("host_clock", "") for f in figures)
    devices = _different(f.result.provenance.get("device_clock", "") for f in figures)
    parts = []
    if hosts:
        parts.append(f"Wall times were read from {listing(hosts)}.")
    if devices:
        parts.append(f"Phases were timed {listing([_CLOCKS.get(clock, f'by {clock}') for clock in devices])}.")
    if parts:
        parts.append(
            "A step's wall time runs from the end of the step before it to its own end; “other” is what the marked "
            "phases leave of it."
        )
    return " ".join(parts)


def _warmup(figures: Sequence[TrialFigures]) -> str:
    if not figures:
        return ""
    later = [_looked_into(f) for f in figures]
    counts = [f.warmup_steps for f in figures]
    span = f"{min(counts)}" if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
    unsure = sum(not f.result.steady for f in figures)
    shown = (
        f" In {counted(unsure, 'trial')} of {len(figures)} the warm-up could not be shown to be over." if unsure else ""
    )
    says = f"The first {span} steps of a trial are warm-up and enter no statistic."
    if span == "1":
        says = "The first step of a trial is warm-up and enters no statistic."
    if sum(later):
        says += f" {counted(sum(later), 'later step')}, slowed by a look inside, likewise."
    return says + shown


def _looked_into(figures: TrialFigures) -> int:
    """How many steps are in no statistic that are not warm-up: they lie behind the first that counts."""
    table = next((t for t in figures.result.steps if len(t)), None)
    if table is None or table.columns["warmup"].all():
        return 0
    warmup = table.columns["warmup"]
    return int(warmup[int(np.argmin(warmup)) :].sum())


def _stopping(figures: Sequence[TrialFigures]) -> str:
    reasons = [stop_words(f) or "" for f in figures]
    reasons = [reason.removesuffix(NOT_STEADY) for reason in reasons]
    told = [f"{reason} ({counted(reasons.count(reason), 'trial')})" for reason in dict.fromkeys(reasons) if reason]
    if not told:
        return ""
    asked = _different(percent(f.trial.length.half_width) for f in figures if f.trial.length.half_width > 0)
    target = (
        f" “Precise enough” means that the half-width of the 95 % interval of the mean step time fell below "
        f"{listing(asked)} of the mean."
        if asked and any("precise enough" in reason for reason in reasons)
        else ""
    )
    return f"Why measuring ended: {listing(told)}.{target}"


def _statistics(figures: Sequence[TrialFigures]) -> str:
    if not figures:
        return ""
    repeats = max((f.trial.repeat for f in figures), default=0) + 1
    pooling = (
        f" Configurations ran up to {repeats} times; with three or more runs the interval comes from the runs' means, "
        "with two it spans both."
        if repeats > 1
        else " Each configuration ran once, so the intervals do not hold the difference between one run and the next."
    )
    return (
        "Throughput is all samples over all wall time of the steady steps, never a mean of rates. Intervals are 95 %: "
        "of a hundred such measurements about ninety-five would hold the true mean in theirs. They come from the means "
        "of consecutive batches of steps (Student's t), because neighbouring step times are "
        "alike and single steps would make them too narrow. Single long pauses are in all times and totals; a phase "
        f"that a finding speaks about is judged by the time between those that are not its own.{pooling}"
    )


def _confidence(diagnosis: Diagnosis) -> str:
    """What the confidence of a finding stands for, where there is one."""
    if not diagnosis.findings:
        return ""
    kinds = (
        (Tier.BOTH_MEASURED, "both settings were run"),
        (Tier.DEEP_WINDOW, "a profiler window shows it"),
        (Tier.SHARE_AND_CAUSE, "its share of the time and its cause were measured"),
        (Tier.SHARE, "its share of the time was"),
        (Tier.CONFIGURATION, "the configuration alone speaks for it"),
    )
    told = listing([f"{100 * tier.value:.0f} % where {words}" for tier, words in kinds])
    return (
        f"A finding's confidence says what it rests on: {told}; less where an interval reaches across its limit or "
        "the steps were few."
    )


def _order(run: Run) -> str:
    """In which order the trials really ran, as their start times say."""
    started = sorted((r for r in run.results if r.started_at), key=lambda r: r.started_at)
    if len(started) < 2:
        return ""
    names = [f"{plain(r.trial.settings.device, 40)} {r.trial.settings.batch_size}" for r in started]
    planned = {trial.id: position for position, trial in enumerate(run.planned)}
    ranks = [planned[r.trial.id] for r in started if r.trial.id in planned]
    kind = "in the planned order" if ranks == sorted(ranks) else "in another order than the table's"
    shown = ", ".join(names[:40]) + (f" and {len(names) - 40} more" if len(names) > 40 else "")
    seeds = _different(str(r.trial.seed) for r in run.results)
    return f"The trials were started {kind} (device and batch size): {shown}. Seed: {listing(seeds)}."


def not_measured_of(run: Run, diagnosis: Diagnosis) -> tuple[tuple[str, str], ...]:
    """Each signal nobody could see, with why and for which trials; and each rule that could not look."""
    gaps: dict[tuple[str, str], dict[str, None]] = {}
    for result in run.results:
        for gap in (*result.gaps, *result.environment.gaps, *_silent_gaps(result)):
            gaps.setdefault((gap.signal, gap.why), {})[result.trial.id] = None
    for gap in run.environment.gaps:
        gaps.setdefault((gap.signal, gap.why), {})
    everything = [(signal, f"{why}{_scope(run, trials)}") for (signal, why), trials in gaps.items()]
    known = set(gaps)
    unchecked: dict[tuple[str, str], list[str]] = {}
    for rule in diagnosis.not_checked:
        unchecked.setdefault((rule.signal, rule.why), []).append(rule.code)
    for (signal, why), codes in unchecked.items():
        if (signal, why) not in known:
            everything.append((signal, f"{why} {_NEEDED_BY}{listing(list(dict.fromkeys(codes)))})"))
    return tuple((signal, without_its_name(signal, why)) for signal, why in everything)


def beside_not_checked(report: Report) -> tuple[tuple[str, str], ...]:
    """What was not measured without what only rules lacked, for a place that names these rules with their reasons."""
    told = {rule.signal for rule in report.diagnosis.not_checked}
    return tuple((signal, why) for signal, why in report.not_measured if not (signal in told and _NEEDED_BY in why))


def _silent_gaps(result: TrialResult) -> Iterable[Gap]:
    """What a completed trial left out without a word about it."""
    if not any(len(table.steady) for table in result.steps):
        return
    on_device = not result.trial.settings.device.startswith("cpu")
    expected = {"host_memory_peak": "peak memory of the process"}
    if on_device:
        expected |= {
            "device_memory_peak_allocated": "peak memory on the device",
            "energy_device": "energy of the device",
        }
    else:
        expected["energy_cpu"] = "energy of the CPU"
    for name, meaning in expected.items():
        if result.value(name) is None and result.gap(name) is None:
            yield Gap(name, f"{meaning}: the trial recorded neither a value nor a reason")


def _scope(run: Run, trials: Mapping[str, None]) -> str:
    """Which of the trials that measured anything lack a signal: nothing to add where all do."""
    started = [r.trial for r in run.results if r.trial.id in trials or any(len(table) for table in r.steps)]
    lacking = [trial for trial in started if trial.id in trials]
    if not lacking or len(lacking) == len(started):
        return ""
    devices = _different(plain(trial.settings.device, 40) for trial in lacking)
    if all(trial.id in trials for trial in started if plain(trial.settings.device, 40) in devices):
        return f" (all trials on {listing(devices)})"
    if len(lacking) <= 4:
        return f" ({listing([_short(trial.settings.device, trial.settings.batch_size) for trial in lacking])})"
    return f" ({len(lacking)} of {len(started)} trials)"


def _short(device: str, batch_size: int) -> str:
    return f"{plain(device, 40)} batch {batch_size}"


def _different(values: Iterable[str]) -> list[str]:
    """The different words among some, in their order, empty ones left out."""
    return [plain(value, 120) for value in dict.fromkeys(values) if value]
