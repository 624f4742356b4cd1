"""The report's answer in plain words: which batch size, where the time goes, what would help, how sure that is."""

from __future__ import annotations

from collections.abc import Sequence

from perf_diagnostics.diagnose.finding import Diagnosis, Finding
from perf_diagnostics.diagnose.statistics import Interval, quotient
from perf_diagnostics.records import Run
from perf_diagnostics.report.charts import PHASE_NAMES, largest_phases, throughput_key
from perf_diagnostics.report.figures import OUTCOME_WORDS, Arm, Point
from perf_diagnostics.report.model import Basis, KeyFigure
from perf_diagnostics.report.words import between, byte_unit, counted, listing, number, percent, plain, time_unit

Sentence = tuple[str, Basis]

#: More lines and findings than these are left to the charts and tables.
ARMS_TOLD = 4
FINDINGS_TOLD = 3

#: A half-width of the step time's interval above this share of the mean is worth a warning.
WIDE = 0.05


def headline(run: Run, diagnosis: Diagnosis) -> str:
    """The verdict in words, or that there is none and why."""
    if diagnosis.verdict is not None:
        return plain(diagnosis.verdict.summary) or plain(diagnosis.verdict.name)
    why = plain(diagnosis.no_verdict_because) or _nothing_to_judge(run)
    return f"No verdict: {why}"


def _nothing_to_judge(run: Run) -> str:
    if not run.completed:
        return "no trial of this run completed."
    return "no rule explained enough of the measured time."


def answer_of(run: Run, arms: Sequence[Arm], diagnosis: Diagnosis) -> tuple[Sentence, ...]:
    """The answer's paragraphs, each with what it rests on."""
    drawn = [arm for arm in arms if arm.measured]
    if not drawn:
        return (_nothing_completed(run),)
    sentences = [_fastest(arm, throughput_key(drawn, arm)) for arm in drawn[:ARMS_TOLD]]
    if len(drawn) > ARMS_TOLD:
        sentences.append(
            (f"The other {len(drawn) - ARMS_TOLD} configurations stand in the table.", Basis("", "trials"))
        )
    sentences += _comparison(drawn)
    sentences += [s for index, arm in enumerate(drawn[:ARMS_TOLD]) for s in _where_time_goes(arm, index)]
    sentences += _what_would_help(diagnosis)
    sentences += _cautions(drawn)
    return tuple(sentences)


def _nothing_completed(run: Run) -> Sentence:
    endings = [OUTCOME_WORDS[result.outcome] for result in run.results]
    told = [f"{endings.count(ending)} {ending}" for ending in dict.fromkeys(endings)]
    if run.pending:
        told.append(f"{len(run.pending)} not run")
    planned = counted(len(run.results) + len(run.pending), "trial")
    outcome = f" ({listing(told)})" if told else ""
    return (
        f"None of {planned} completed{outcome}, so there is no throughput, no breakdown and no advice to give. "
        "The reasons are listed under what is incomplete.",
        Basis("outcomes of the trials", "incomplete"),
    )


def _fastest(arm: Arm, chart: str) -> Sentence:
    best = arm.best
    if best is None or best.throughput is None:
        return (f"No trial on {arm.label} has a throughput.", Basis("", "trials"))
    rate = best.throughput
    basis = Basis(f"{_basis_of(best)}; all samples over all time", chart)
    if len(arm.measured) == 1:
        return (
            f"On {arm.label} one batch size was measured: {best.batch_size}, at {_with_interval(rate, 'samples/s')}. "
            "A sweep would say whether another is faster.",
            basis,
        )
    words = (
        f"On {arm.label}, batch size {best.batch_size} trains fastest: {_with_interval(rate, 'samples/s')}."
        f"{_level(arm)}{_against_slowest(arm, best)}"
    )
    return words, basis


def _level(arm: Arm) -> str:
    level = arm.level_with_best()
    if not level:
        return ""
    sizes = listing([str(point.batch_size) for point in level])
    noun, verb = ("Batch size", "is") if len(level) == 1 else ("Batch sizes", "are")
    return f" {noun} {sizes} {verb} level with it: under 2 % apart, or not told apart by the intervals."


def _against_slowest(arm: Arm, best: Point) -> str:
    rated = [(p.throughput.value, p) for p in arm.measured if p.throughput is not None]
    lowest, slowest = min(rated, key=lambda pair: pair[0])
    if slowest is best or best.throughput is None or lowest <= 0:
        return ""
    times = best.throughput.value / lowest
    if times < 1.02:
        return ""
    rate = f"{number(lowest)} samples/s"
    return f" That is {number(times)} times the {rate} of batch size {slowest.batch_size}, the slowest."


def _comparison(arms: Sequence[Arm]) -> list[Sentence]:
    """The fastest configuration against the next one, each at its own best batch size."""
    rated = [(arm, best.throughput) for arm in arms if (best := arm.best) is not None and best.throughput is not None]
    rated = [(arm, rate) for arm, rate in rated if rate.value > 0]
    if len(rated) < 2:
        return []
    (first, a), (second, b) = sorted(rated, key=lambda pair: -pair[1].value)[:2]
    times = _with_interval(quotient(a, b), "times")
    return [
        (
            f"At their best batch sizes, {first.label} trains {times} as fast as {second.label}.",
            Basis(f"{counted(a.n, 'step')} against {counted(b.n, 'step')}", "trials"),
        )
    ]


def _where_time_goes(arm: Arm, index: int) -> list[Sentence]:
    best = arm.best
    if best is None or best.step_s is None:
        return []
    step = best.step_s
    unit = time_unit(step.value)
    ranked = largest_phases(best)
    if not ranked:
        return []
    told = [f"{PHASE_NAMES[phase]} {percent(share)}" for phase, share in ranked if share >= 0.005]
    small = len(ranked) - len(told)
    rest = f"; {'one phase takes' if small == 1 else f'{small} phases take'} under 0.5 %" if small else ""
    clocks = listing(sorted({t.clock for t in best.measured}))
    return [
        (
            f"On {arm.label} at batch size {best.batch_size} a step takes {number(unit.of(step.value))} {unit.name}: "
            f"{listing(told)}{rest}.",
            Basis(f"{_basis_of(best)}; {clocks} clock", f"phases_{index + 1}"),
        )
    ]


def _what_would_help(diagnosis: Diagnosis) -> list[Sentence]:
    gains = [f for f in diagnosis.findings if f.recoverable is not None]
    sentences = [_gain(finding) for finding in gains[:FINDINGS_TOLD]]
    if sentences:
        return sentences
    looked = len(diagnosis.findings) + len(diagnosis.cleared)
    basis = f"{counted(looked, 'rule')} looked, {len(diagnosis.unchecked)} could not"
    if diagnosis.findings:
        words = f"{counted(len(diagnosis.findings), 'finding')}, none with a gain that could be estimated."
        return [(words, Basis(basis, "findings"))]
    words = "No rule found anything to win back." if looked else "No rule could look for what would help."
    return [(words, Basis(basis, "checks"))]


def _gain(finding: Finding) -> Sentence:
    share = finding.recoverable
    assert share is not None
    remedy = f" {plain(finding.remedies[0].says, 300)}" if finding.remedies else ""
    name = plain(finding.name.replace("-", " "), 80)
    words = (
        f"Fixing “{name}” ({plain(finding.scope, 80)}) could win back {percent(share.value)} of the step's time "
        f"(95 % interval {between(100 * share.low, 100 * share.high)} %).{remedy}"
    )
    return words, Basis("estimated from the measured times, not yet tried", f"finding {finding.code}")


def _cautions(arms: Sequence[Arm]) -> list[Sentence]:
    """The completed trials whose numbers are less sure than was asked for."""
    few, wide, unsteady = [], [], []
    for arm in arms:
        for point in arm.measured:
            for trial in point.measured:
                name = f"{arm.label} batch {point.batch_size}"
                length, step = trial.trial.length, trial.step_s
                if trial.steps < length.min_steps:
                    few.append(f"{name} ({trial.steps} of at least {length.min_steps})")
                elif (
                    step is None
                    or step.high is None
                    or step.high - step.value > max(length.half_width, 0.05) * step.value
                ):
                    wide.append(name)
                if not trial.result.steady:
                    unsteady.append(name)
    sentences: list[Sentence] = []
    if few:
        sentences.append((f"Few steps, so treat as a hint: {_some(few)}.", Basis("measured steps", "trials")))
    if wide:
        sentences.append((f"Wide intervals: {_some(wide)}.", Basis("half-width of the step time", "trials")))
    if unsteady:
        words = f"The warm-up could not be shown to be over: {_some(unsteady)}."
        sentences.append((words, Basis("warm-up test", "trials")))
    return sentences


def _some(names: list[str], most: int = 5) -> str:
    if len(names) <= most:
        return listing(names)
    return f"{', '.join(names[:most])} and {len(names) - most} more"


def _basis_of(point: Point) -> str:
    repeats = len(point.measured)
    trials = "1 trial" if repeats == 1 else f"{repeats} repeats"
    return f"{counted(point.steps, 'measured step')} in {trials}"


def _with_interval(value: Interval, unit: str) -> str:
    if value.low is None or value.high is None:
        return f"{number(value.value)} {unit} (too few steps for an interval)"
    return f"{number(value.value)} {unit} (95 % interval {between(value.low, value.high)})"


def key_figures_of(run: Run, arms: Sequence[Arm], diagnosis: Diagnosis) -> tuple[KeyFigure, ...]:
    """The numbers to show large: the best batch size of each line, the largest gain, memory and completeness."""
    drawn = [arm for arm in arms if arm.measured]
    figures = [figure for arm in drawn[:2] for figure in _arm_figures(arm)]
    gain = next((f for f in diagnosis.findings if f.recoverable is not None), None)
    if gain is not None and gain.recoverable is not None:
        share = gain.recoverable
        note = f"{between(100 * share.low, 100 * share.high)} %, {plain(gain.name.replace('-', ' '), 40)}"
        figures.append(KeyFigure("Could be won back", round(100 * share.value, 1), "% of the step", note))
    total = len(run.results) + len(run.pending)
    figures.append(KeyFigure("Trials completed", f"{len(run.completed)} of {total}", "", _not_completed(run)))
    return tuple(figures)


def _arm_figures(arm: Arm) -> list[KeyFigure]:
    best = arm.best
    if best is None or best.throughput is None:
        return []
    rate = best.throughput
    interval = "" if rate.low is None or rate.high is None else f"95 % interval {between(rate.low, rate.high)}"
    figures = [
        KeyFigure(f"Best batch size, {arm.label}", best.batch_size, "", f"of {len(arm.measured)} measured"),
        KeyFigure(f"Throughput, {arm.label}", rate.value, "samples/s", interval),
    ]
    memory, where = best.largest_bytes("device_memory_peak_reserved"), "held on the device"
    if memory is None:
        memory, where = best.largest_bytes("host_memory_peak"), "of the process"
    unit = byte_unit(memory or 0.0)
    figures.append(
        KeyFigure(
            f"Peak memory, {arm.label}", unit.of(memory), unit.name if memory else "", f"{where}, at that batch size"
        )
    )
    return figures


def _not_completed(run: Run) -> str:
    parts = [
        (sum(result.outcome.failed for result in run.results), "failed"),
        (sum(result.outcome.skipped for result in run.results), "skipped"),
        (len(run.pending), "not run"),
    ]
    return ", ".join(f"{count} {word}" for count, word in parts if count)
