"""The report's answer in plain words: which batch size, where the time goes, what would help, how sure that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perf_diagnostics.diagnose.facts.asked_for import asked_for
from perf_diagnostics.diagnose.facts.facts import Interval, Point, ask
from perf_diagnostics.diagnose.finding import Diagnosis, Family, Finding, Severity
from perf_diagnostics.diagnose.statistics.intervals import quotient
from perf_diagnostics.diagnose.verdict import FAILED_TRIALS
from perf_diagnostics.records import BATCH_SEARCH, Outcome, Run
from perf_diagnostics.report.arms import OUTCOME_WORDS, Arm, clock_of, only_training, throughput
from perf_diagnostics.report.changes import finding_key, worthwhile
from perf_diagnostics.report.charts.charts import throughput_key
from perf_diagnostics.report.charts.phase_charts import largest_phases
from perf_diagnostics.report.gains import gain
from perf_diagnostics.report.model import Basis
from perf_diagnostics.report.phases import PHASE_NAMES
from perf_diagnostics.report.tried import another_pace, in_vain
from perf_diagnostics.report.words import between, counted, listing, number, percent, plain, time_unit

Sentence = tuple[str, Basis]

#: More lines than these are left to the charts and tables.
ARMS_TOLD = 4

#: Doubts that other sentences tell: few steps, trials that failed, a warm-up that may not be over.
_TOLD_OTHERWISE = ("EXP001", "EXP002", "EXP004")

#: A half-width of the step time's interval above this share of the mean is worth a warning.
WIDE = 0.05


_UNCOUNTED: Sentence = (
    "The samples of a step could not be counted, so there is no throughput; times and findings are those of steps.",
    Basis("samples of the trial", "trials"),
)


def headline(run: Run, diagnosis: Diagnosis) -> str:
    """The verdict in words, or that there is none and why."""
    if diagnosis.verdict is not None:
        return plain(diagnosis.verdict.summary) or plain(diagnosis.verdict.name)
    why = plain(diagnosis.no_verdict_because) or _nothing_to_judge(run)
    return f"No verdict: {why}"


def _nothing_to_judge(run: Run) -> str:
    if not asked_for(run).completed:
        return "no trial of this run completed."
    return "no rule explained enough of the measured time."


def answer_of(run: Run, arms: Sequence[Arm], diagnosis: Diagnosis) -> tuple[Sentence, ...]:
    """The answer's paragraphs, each with what it rests on."""
    drawn = [arm for arm in arms if arm.points]
    if not drawn and run.completed and run.of_own_training:
        return _UNCOUNTED, *_what_would_help(diagnosis), *_doubts(diagnosis)
    if not drawn:
        return (_nothing_completed(run),)
    sentences = [*_broken_off(run, diagnosis), *_largest_batch(run)]
    sentences += [_batch_size(arm, throughput_key(drawn, arm)) for arm in drawn[:ARMS_TOLD]]
    if len(drawn) > ARMS_TOLD:
        sentences.append(
            (f"The other {len(drawn) - ARMS_TOLD} configurations stand in the table.", Basis("", "trials"))
        )
    sentences += _comparison(drawn)
    sentences += [s for index, arm in enumerate(drawn[:ARMS_TOLD]) for s in _where_time_goes(arm, index)]
    sentences += _what_would_help(diagnosis)
    sentences += another_pace(drawn, diagnosis.tried)
    sentences += in_vain(diagnosis.tried)
    sentences += _doubts(diagnosis)
    sentences += _cautions(drawn)
    return tuple(sentences)


def _nothing_completed(whole: Run) -> Sentence:
    run = asked_for(whole)
    endings = [OUTCOME_WORDS[result.outcome] for result in run.results]
    told = [f"{endings.count(ending)} {ending}" for ending in dict.fromkeys(endings)]
    if run.pending:
        told.append(f"{len(run.pending)} not run")
    planned = counted(len(run.results) + len(run.pending), "trial")
    # That all ended in one way is said by the headline.
    why = f"None of {planned} completed ({listing(told)})" if len(told) > 1 else "Nothing was measured"
    return (
        f"{_first_failure(run)} {why}, so there is no throughput, no breakdown and no advice to give.",
        Basis("outcomes of the trials", "incomplete"),
    )


def _broken_off(run: Run, diagnosis: Diagnosis) -> list[Sentence]:
    """That a training of the user's own did not end by itself, and why, where the verdict does not say so."""
    training = only_training(run)
    if training is None or training.outcome is Outcome.COMPLETED:
        return []
    failed = next((finding for finding in diagnosis.findings if finding.code == FAILED_TRIALS), None)
    told = failed is not None and failed.summary[1:] in headline(run, diagnosis)
    return [] if failed is None or told else [(plain(failed.summary, 600), Basis("how it ended", finding_key(failed)))]


def _largest_batch(run: Run) -> list[Sentence]:
    """Between which sizes a search for the largest batch has come to its end."""
    if BATCH_SEARCH not in run.notes:
        return []
    ran = [result.trial.settings.batch_size for result in run.completed]
    failed = [result.trial.settings.batch_size for result in run.results if result.outcome.failed]
    end = f"the smallest that did not is {min(failed)}" if failed else "none that was tried did not, so more may fit"
    return [(f"The largest batch that ran whole is {max(ran)}; {end}.", Basis("outcomes of the trials", "trials"))]


def _first_failure(run: Run) -> str:
    """Why the first trial failed, which is what has to be mended first; where no reason was recorded, where to look."""
    if not run.results:
        return f"None of {counted(len(run.pending), 'planned trial')} has run."
    first = next((result for result in run.results if result.outcome.failed and result.reason), None)
    if first is None:
        return "The reasons are listed under what is incomplete."
    settings = first.trial.settings
    where = f"{plain(settings.device, 40)} batch {settings.batch_size}"
    told = f"Mend this first: {where} {OUTCOME_WORDS[first.outcome]}: {plain(first.reason, 300)}"
    return told if told.endswith((".", "!", "?", "…")) else f"{told}."


def _batch_size(arm: Arm, chart: str) -> Sentence:
    """Which batch size to train at, how fast it is, and how it compares."""
    chosen, best = arm.recommended, arm.best
    measured = throughput(chosen) if chosen is not None else None
    if chosen is None or best is None or measured is None:
        return (f"No trial on {arm.label} has a throughput.", Basis("", "trials"))
    rate = _with_interval(measured, "samples/s")
    if "ceiling" in arm.group.settings:
        words = f"{arm.label} is a ceiling experiment, no way to train: {rate} at batch size {chosen.batch_size}."
        return words, Basis(_basis_of(chosen), chart)
    basis = Basis(f"{_basis_of(chosen)}; all samples over all time", chart)
    if len(arm.rated) == 1:
        return f"On {arm.label} {_alone(arm)}: {chosen.batch_size}, at {rate}. {_the_others(arm)}", basis
    return f"On {arm.label}, train at batch size {chosen.batch_size}: {rate}, {_rank(arm, chosen, best)}", basis


def _alone(arm: Arm) -> str:
    several = len(arm.sizes) > 1
    return f"only one of {len(arm.sizes)} batch sizes can be judged" if several else "one batch size was measured"


def _the_others(arm: Arm) -> str:
    """What is not known where one batch size alone was measured: the others were not asked for, or did not complete."""
    aside = dict.fromkeys(arm.set_aside, "measured too badly to compare")
    lost = [f"{size} ({words})" for size in arm.sizes if (words := arm.loss(size) or aside.get(size, ""))]
    if lost:
        return f"The others: {_some(lost)}; whether one of them is faster is not known."
    return "Whether another is faster was not measured."


def _rank(arm: Arm, chosen: Point, best: Point) -> str:
    """How the recommended batch size stands to the others, and how sure the choice is."""
    slowest = min(arm.rated, key=lambda point: point.throughput.value)
    words = f"the fastest of {len(arm.rated)}."
    if chosen is not best:
        part = percent(arm.compared.relative(chosen).value)
        words = (
            f"{part} of the fastest, batch size {best.batch_size} ({number(best.throughput.value)} samples/s), and the "
            "smallest that reaches 95 % of it."
        )
    if slowest is not chosen and slowest.throughput.value > 0:
        times = chosen.throughput.value / slowest.throughput.value
        if times >= 1.05:
            words += (
                f" The slowest, batch size {slowest.batch_size}, reaches {percent(1 / times)} of what "
                f"{chosen.batch_size} does."
            )
    knee = ask(lambda: arm.compared.knee)
    if knee is not None and knee.rising:
        words += " Throughput was still rising at the largest size, so a larger one may be faster."
    elif knee is not None and not knee.sure:
        words += " The intervals do not rule out a neighbouring size."
    if arm.set_aside:
        words += f" No conclusion can be drawn from what was measured at {listing([str(s) for s in arm.set_aside])}."
    return words


def _comparison(arms: Sequence[Arm]) -> list[Sentence]:
    """The fastest configuration against the next one, each at its own best batch size."""
    trainable = [arm for arm in arms if "ceiling" not in arm.group.settings]
    rated = [(arm, best.throughput) for arm in trainable if (best := arm.best) is not None]
    rated = [(arm, rate) for arm, rate in rated if rate.value > 0]
    if len(rated) < 2:
        return []
    (first, a), (second, b) = sorted(rated, key=lambda pair: -pair[1].value)[:2]
    ratio = quotient(a, b)
    words = f"At their fastest batch sizes, {first.label} trains {_with_interval(ratio, 'times')} as fast as "
    words += f"{second.label}{_no_difference(ratio)}."
    return [
        (words + _unlike(first, second), Basis(f"{counted(a.n, 'step')} against {counted(b.n, 'step')}", "trials")),
    ]


def _no_difference(ratio: Interval) -> str:
    """What an interval on both sides of 1 means."""
    if ratio.low is None or ratio.high is None or not ratio.low <= 1 <= ratio.high:
        return ""
    return "; the interval holds 1, so neither is shown to be the faster one"


def _unlike(first: Arm, second: Arm) -> str:
    """What such a comparison compares besides, where one of the two was measured at a single batch size of its own."""
    ours, theirs = ([point.batch_size for point in arm.rated] for arm in (first, second))
    if ours == theirs or min(len(ours), len(theirs)) > 1:
        return ""
    sizes = f"{listing([str(size) for size in ours])} against {listing([str(size) for size in theirs])}"
    return f" They were not measured at the same batch sizes ({sizes}), so part of it may be the batch size's."


def _where_time_goes(arm: Arm, index: int) -> list[Sentence]:
    chosen = arm.recommended
    step = ask(lambda: chosen.step_time_s) if chosen is not None else None
    ranked = largest_phases(chosen) if chosen is not None else []
    if chosen is None or step is None or not ranked:
        return []
    unit = time_unit(step.value)
    told = [f"{PHASE_NAMES[phase]} {percent(share)}" for phase, share in ranked if share >= 0.005]
    small = [PHASE_NAMES[phase] for phase, share in ranked if share < 0.005]
    rest = f"; {listing(small)} {'less' if len(small) == 1 else 'each less'} than 0.5 %" if small else ""
    clocks = listing(sorted({clock_of(trial) for trial in chosen.trials}))
    return [
        (
            f"On {arm.label} at batch size {chosen.batch_size} a step takes {number(unit.of(step.value))} {unit.name}: "
            f"{listing(told)}{rest}.",
            Basis(f"{_basis_of(chosen)}; {clocks} clock", f"phases_{index + 1}"),
        )
    ]


def _what_would_help(diagnosis: Diagnosis) -> list[Sentence]:
    """Where no change is worthwhile: a fault of unknown gain, the largest guess, or that nothing was found. The changes
    stand apart.
    """
    if worthwhile(diagnosis):
        return []
    looked = len({*(finding.code for finding in diagnosis.findings), *(rule.code for rule in diagnosis.cleared)})
    basis = f"{counted(looked, 'rule')} looked, {len({rule.code for rule in diagnosis.not_checked})} could not"
    if not looked:
        return [("No rule could look for what would help.", Basis(basis, "checks"))]
    faults = [f for f in diagnosis.findings if f.severity is not Severity.INFO and f.family is not Family.EXPERIMENT]
    if faults:
        return [_of_unknown_gain(faults[0])]
    hints = [f for f in diagnosis.findings if f.recoverable is not None and f.remedies and not f.recoverable.measured]
    if hints:
        words, found = _guess(hints[0])
        return [(f"No rule found a fault in the training; the largest gain in sight is a guess. {words}", found)]
    words = "No rule found anything that would speed up training at these batch sizes."
    return [(words, Basis(basis, "findings" if diagnosis.findings else "checks"))]


def _of_unknown_gain(finding: Finding) -> Sentence:
    """A fault of which nobody knows what mending it would win."""
    name = plain(finding.name.replace("-", " "), 80)
    words = f"“{name}” ({plain(finding.scope, 80)}): what mending it would win is not known."
    advice = f" {plain(finding.remedies[0].says, 300)}" if finding.remedies else ""
    return words + advice, Basis(f"confidence {100 * finding.confidence:.0f} %", finding_key(finding))


def _guess(finding: Finding) -> Sentence:
    share = finding.recoverable
    assert share is not None
    name = plain(finding.name.replace("-", " "), 80)
    words = f"“{name}” ({plain(finding.scope, 80)}) {gain(share)}. {plain(finding.remedies[0].says, 300)}"
    return words, Basis(f"confidence {100 * finding.confidence:.0f} %", finding_key(finding))


def _doubts(diagnosis: Diagnosis) -> list[Sentence]:
    """What was found wrong with the measuring itself, each kind once: the reason why verdicts are missing or unsure."""
    found: dict[str, Finding] = {}
    for finding in diagnosis.findings:
        serious = finding.family is Family.EXPERIMENT and finding.severity is not Severity.INFO
        if serious and finding.code not in _TOLD_OTHERWISE:
            found.setdefault(finding.code, finding)
    return [
        (
            f"Less sure because of “{plain(finding.name.replace('-', ' '), 80)}” ({plain(finding.scope, 80)}): "
            f"{plain(finding.summary, 400)}",
            Basis(f"confidence {100 * finding.confidence:.0f} %", finding_key(finding)),
        )
        for finding in found.values()
    ]


def _cautions(arms: Sequence[Arm]) -> list[Sentence]:
    """The completed trials whose numbers are less sure than was asked for."""
    few: dict[str, list[str]] = {}
    wide: dict[str, list[str]] = {}
    unsteady: dict[str, list[str]] = {}
    measured = [(arm, trial) for arm in arms for trial in arm.results if trial.result.outcome is Outcome.COMPLETED]
    for arm, trial in measured:
        name = f"{arm.label} batch {trial.trial.settings.batch_size}"
        length, step = trial.trial.length, trial.step_s
        if trial.steps < length.min_steps:
            few.setdefault(name, []).append(f"{trial.steps} of at least {length.min_steps}")
        elif step is None or step.high is None or step.high > (1 + WIDE) * step.value:
            off = None if step is None or step.high is None else step.high / step.value - 1
            wide.setdefault(name, []).append("no interval" if off is None else f"±{100 * off:.0f} %")
        if not trial.result.steady:
            unsteady.setdefault(name, []).append("")
    sentences: list[Sentence] = []
    if few:
        sentences.append((f"Few steps, so treat as a hint: {_of_trials(few)}.", Basis("measured steps", "trials")))
    if wide:
        words = f"The mean step time is known to no better than ±{100 * WIDE:.0f} %: {_of_trials(wide)}."
        sentences.append((words, Basis("half-width of its 95 % interval", "trials")))
    if unsteady:
        words = f"The warm-up could not be shown to be over: {_of_trials(unsteady)}."
        sentences.append((words, Basis("warm-up test", "trials")))
    return sentences


def _some(names: list[str], most: int = 5) -> str:
    if len(names) <= most:
        return listing(names)
    return f"{', '.join(names[:most])} and {len(names) - most} more"


def _of_trials(found: Mapping[str, Sequence[str]]) -> str:
    """What was found of trials, by their names: ``cpu batch 4 (±7 % and ±31 %)``; repeats of one stand together."""
    return _some([_with_notes(name, notes) for name, notes in found.items()])


def _with_notes(name: str, notes: Sequence[str]) -> str:
    told = listing(list(dict.fromkeys(note for note in notes if note)))
    if not told:
        return name if len(notes) == 1 else f"{name} ({len(notes)} trials)"
    return f"{name} ({told})"


def _basis_of(point: Point) -> str:
    repeats = len(point.trials)
    trials = "1 trial" if repeats == 1 else f"{repeats} repeats"
    return f"{counted(point.steps, 'measured step')} in {trials}"


def _with_interval(value: Interval, unit: str) -> str:
    if value.low is None or value.high is None:
        return f"{number(value.value)} {unit} (too few steps for an interval)"
    return f"{number(value.value)} {unit} (95 % interval {between(value.low, value.high)})"
