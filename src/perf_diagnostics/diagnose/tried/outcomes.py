"""What came of the advice that was tried, and what that does to the findings behind it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from perf_diagnostics.diagnose.asking import SEVERITIES, Placed
from perf_diagnostics.diagnose.compare.comparing import THRESHOLD
from perf_diagnostics.diagnose.facts.facts import LEAST_STEPS, TrialFacts, ask
from perf_diagnostics.diagnose.facts.settling import not_settled
from perf_diagnostics.diagnose.finding import Finding, Remedy, Severity, Share, Tried, Trying
from perf_diagnostics.diagnose.rule_parts.experiments import CEILING_OF, Experiment, Experiments, LeftOut, same_question
from perf_diagnostics.diagnose.rule_parts.gain import Tier, capped, recoverable
from perf_diagnostics.diagnose.rules.inp001_input_bound import InputBound
from perf_diagnostics.diagnose.rules.xfr001_transfer_bound import TransferBound
from perf_diagnostics.diagnose.statistics.intervals import Interval
from perf_diagnostics.diagnose.statistics.paired import paired_ratio
from perf_diagnostics.diagnose.statistics.welch import geometric_mean
from perf_diagnostics.diagnose.wording import counted, percent, percent_between
from perf_diagnostics.records import Outcome, Trial, TrialResult

#: With fewer pairs an interval says nothing about how the next pair would come out.
LEAST_PAIRS = 3

#: What these claim is all that the ceiling of their family takes away; the shares from which they warn, are critical.
_ALL_OF_IT: Mapping[str, tuple[float, float]] = {
    rule.code: (rule.warn_share, rule.critical_share) for rule in (InputBound, TransferBound)
}

#: The change was run, and decides nothing.
UNSURE = (Trying.INCONCLUSIVE, Trying.TOO_EARLY, Trying.NOT_SETTLED)


def tried_of(experiments: Experiments, *, of_script: bool = False) -> tuple[Tried, ...]:
    """What came of every experiment, then what was left out.

    ``of_script``: the trials are a script of the user's own, which has to be named again to go on.

    Of each process there is one number, the time a sample took over all its steady steps: steps of one process share
    its memory layout and its neighbours. The gain is 1 less the ratio of the two, with Student's interval over the
    pairs. It is *confirmed* where the whole interval lies at or above 2 %, *refuted* where it lies below, else
    *inconclusive*. With fewer than three pairs it is *too early to say*. The number of pairs is fixed beforehand: who
    stops when the interval pleases is right too often. A pair with a trial that was still in its warm-up when it was
    measured does not count (see :func:`~perf_diagnostics.diagnose.facts.settling.not_settled`); where that leaves too
    few, the change is *not settled*.
    """
    results = {result.trial.id: result for result in experiments.results}
    asked = {same_question(one.base, one.change): one for one in experiments.planned}  # the last of each
    again = f"{experiments.again} --rerun SCRIPT ARGUMENTS" if of_script else experiments.again
    done = tuple(_outcome(experiment, results, again) for experiment in asked.values())
    return (*done, *(_left_out(item) for item in experiments.left_out))


def _outcome(experiment: Experiment, results: Mapping[str, TrialResult], again: str) -> Tried:
    arms = [experiment.pair(index) for index in range(experiment.pairs)]
    whole = [
        (pair, _why_not_settled(results[base.id]) or _why_not_settled(results[new.id]))
        for base, new in arms
        if (pair := _pair(results.get(base.id), results.get(new.id))) is not None
    ]
    pairs = [pair for pair, unsettled in whole if not unsettled]
    reasons = [unsettled for _, unsettled in whole if unsettled]
    ended = [result for trials in arms for trial in trials if (result := results.get(trial.id)) is not None]
    failed = [result for result in ended if result.outcome is not Outcome.COMPLETED]
    gain = _gain(pairs)
    if _leaves_too_few(len(reasons), experiment.pairs):
        gain, verdict = None, Trying.NOT_SETTLED
        why = f"{_count_not(reasons)}; `{again}` tries it anew after a longer warm-up"
    elif gain or reasons:
        verdict, why = _verdict(gain, len(pairs), experiment.pairs, _count_not(reasons))
    else:
        verdict, why = _without_gain(ended, failed)
    if verdict is Trying.TOO_EARLY:
        why = f"{why}; {_what_now(failed, again)}"
    predicted = experiment.predicted
    enough = gain is not None and verdict is not Trying.TOO_EARLY
    comparable = enough and predicted is not None and not experiment.ceiling
    return Tried(
        codes=tuple(dict.fromkeys(each.code for each in experiment.about)),
        groups=tuple(dict.fromkeys(each.group for each in experiment.about)),
        where=where_of(experiment.base),
        says=experiment.says,
        change=experiment.change,
        verdict=verdict,
        predicted=predicted,
        gain=gain,
        as_predicted=predicted.low <= gain.value <= predicted.high if comparable and gain and predicted else None,
        pairs=len(pairs),
        base_s=geometric_mean([base for base, _ in pairs]) if pairs else None,
        new_s=geometric_mean([new for _, new in pairs]) if pairs else None,
        why=why,
        changes_training=experiment.changes_training,
        ceiling=experiment.ceiling,
    )


def _left_out(item: LeftOut) -> Tried:
    return Tried(
        codes=tuple(dict.fromkeys(each.code for each in item.about)),
        groups=tuple(dict.fromkeys(each.group for each in item.about)),
        where=f"batch {item.batch_size}" if item.base is None else where_of(item.base),
        says=item.says,
        change=item.change,
        verdict=Trying.NOT_TRIED,
        predicted=item.predicted,
        why=item.why,
        changes_training=item.changes_training,
        ceiling=item.ceiling,
    )


def where_of(base: Trial) -> str:
    """The configuration that a change is made to: ``cuda:0, batch 32, bfloat16, num_workers=2``."""
    settings = base.settings.canonical()
    device, batch_size, precision = (settings.pop(name) for name in ("device", "batch_size", "precision"))
    others = [] if precision == "float32" else [str(precision)]
    others += [f"{name}={value}" for name, value in settings.items()]
    return ", ".join([str(device), f"batch {batch_size}", *others])


def _pair(base: TrialResult | None, new: TrialResult | None) -> tuple[float, float] | None:
    """Seconds a sample in both members of a pair; None where one of them has no steps to show."""
    times = [None if result is None else _sample_s(result) for result in (base, new)]
    return None if times[0] is None or times[1] is None else (times[0], times[1])


def _sample_s(result: TrialResult) -> float | None:
    if result.outcome is not Outcome.COMPLETED:
        return None
    facts = TrialFacts.of(result)
    rate = ask(lambda: facts.throughput) if facts.steps >= LEAST_STEPS else None
    return None if rate is None or rate.value <= 0 else 1 / rate.value


def _gain(pairs: Sequence[tuple[float, float]]) -> Interval | None:
    if not pairs:
        return None
    ratio = paired_ratio(pairs)
    low = None if ratio.high is None else 1 - ratio.high
    high = None if ratio.low is None else 1 - ratio.low
    return Interval(1 - ratio.value, low, high, ratio.n)


def still_unsettled(experiment: Experiment, results: Mapping[str, TrialResult]) -> tuple[TrialResult, ...]:
    """The trials that had not settled, where these leave too few pairs for a verdict; else none."""
    found: list[TrialResult] = []
    pairs = 0
    for index in range(experiment.pairs):
        trials = [results[trial.id] for trial in experiment.pair(index) if trial.id in results]
        unsettled = [result for result in trials if _why_not_settled(result)]
        pairs += len(trials) == 2 and bool(unsettled)
        found += unsettled
    return tuple(found) if _leaves_too_few(pairs, experiment.pairs) else ()


def _leaves_too_few(unsettled: int, planned: int) -> bool:
    """Whether so many pairs that did not settle leave fewer than a verdict needs, or than were to be run at all."""
    return planned - unsettled < min(LEAST_PAIRS, planned)


def _why_not_settled(result: TrialResult) -> str:
    return not_settled(TrialFacts.of(result)) if result.outcome is Outcome.COMPLETED else ""


def _count_not(reasons: Sequence[str]) -> str:
    """``2 pairs had not settled when measured (of one trial its warm-up was given up …)``; empty where all had."""
    if not reasons:
        return ""
    return f"{counted(len(reasons), 'pair')} had not settled when measured (of one trial {reasons[0]})"


def _verdict(gain: Interval | None, pairs: int, planned: int, unsettled: str) -> tuple[Trying, str]:
    """The verdict of the pairs that count, and what there is to know about those that do not."""
    short = f"{counted(pairs, 'pair')} of {planned}"
    if gain is None or pairs < LEAST_PAIRS or gain.low is None or gain.high is None:
        few = f"{counted(pairs, 'pair')} ran whole{' and settled' if unsettled else ''}"
        return Trying.TOO_EARLY, f"{few}, and a verdict needs {LEAST_PAIRS}"
    why = "" if pairs == planned else unsettled or f"{short} ran whole"
    if gain.low >= THRESHOLD:
        return Trying.CONFIRMED, why
    if gain.high < THRESHOLD:
        return Trying.REFUTED, why
    return (
        Trying.INCONCLUSIVE,
        why or f"its interval reaches across {100 * THRESHOLD:.0f} %, the least gain that matters",
    )


def _without_gain(ended: Sequence[TrialResult], failed: Sequence[TrialResult]) -> tuple[Trying, str]:
    """Why no pair has anything to compare."""
    if failed:
        return Trying.NOT_TRIED, f"it could not be run: {_failure(failed[0])}"
    if len(ended) > 1:
        return Trying.NOT_TRIED, f"its trials cannot be compared: fewer than {LEAST_STEPS} steps, or no samples counted"
    return Trying.NOT_TRIED, "no pair has been run yet"


def _what_now(failed: Sequence[TrialResult], again: str) -> str:
    if failed:
        return f"then it could not be run: {_failure(failed[0])}"
    return f"`{again}` runs those that are missing"


def _failure(result: TrialResult) -> str:
    return f"{str(result.outcome).replace('_', ' ')}: {result.reason}"


def with_tried(placed: Iterable[Placed], tried: Sequence[Tried]) -> tuple[Placed, ...]:
    """The findings with what trying their advice has shown.

    A confirmed remedy stands first, its measured gain replaces the prediction, and the confidence is that of two
    measured configurations. A refuted one is no longer advised. Of advice that was tried and left open no more is
    promised than its interval leaves, where nothing else is advised. Where nothing that was tried helps, and no ceiling
    says that something could, the finding becomes an info. What a ceiling allows caps every prediction of its family; a
    wait for data or for copies of which the run showed surely less is as bad as its ceiling says.
    """
    if not tried:
        return tuple(placed)
    return tuple(dataclasses.replace(item, finding=_judged(item.finding, tried)) for item in placed)


def _judged(finding: Finding, tried: Sequence[Tried]) -> Finding:
    about = [one for one in tried if finding.code in one.codes and finding.group in one.groups and not one.ceiling]
    ceiling = _ceiling(finding, tried)
    confirmed = [one for one in about if one.verdict is Trying.CONFIRMED]
    refuted = [one for one in about if one.verdict is Trying.REFUTED]
    finding = dataclasses.replace(finding, remedies=_remedies(finding, confirmed, refuted))
    if confirmed:
        return _confirmed(finding, min(confirmed, key=better))
    finding = _as_put_down(finding, about)
    if ceiling is not None and ceiling.gain is not None and ceiling.gain.high is not None:
        finding = _by_ceiling(finding, ceiling.gain)
    unsure = [one for one in about if one.verdict in UNSURE]
    hopeless = ceiling is not None and ceiling.verdict is Trying.REFUTED
    possible = ceiling is not None and ceiling.verdict is not Trying.REFUTED
    if hopeless or (refuted and not unsure and not possible):
        return _refuted(finding, refuted)
    return _with_words(_at_most(finding, about, unsure), refuted, unsure)


def _ceiling(finding: Finding, tried: Sequence[Tried]) -> Tried | None:
    """What a perfect fix wins, where that was tried; None for a finding that promises no gain to hold against it."""
    name = None if finding.recoverable is None else CEILING_OF.get(finding.family)
    return next(
        (
            one
            for one in tried
            if one.ceiling and one.change.get("ceiling") == name and finding.group in one.groups and tells(one)
        ),
        None,
    )


def tells(one: Tried) -> bool:
    """Whether enough pairs ran for the interval to be worth something."""
    return one.pairs >= LEAST_PAIRS and one.gain is not None and one.gain.low is not None


def better(one: Tried) -> tuple[bool, float]:
    """Advice that leaves the training as it is comes first, then the gain that is sure."""
    low = one.gain.low if one.gain is not None else None
    return one.changes_training, -(low or 0.0)


def _remedies(finding: Finding, confirmed: Sequence[Tried], refuted: Sequence[Tried]) -> tuple[Remedy, ...]:
    bad = [dict(one.change) for one in refuted]
    good = [dict(one.change) for one in sorted(confirmed, key=better)]
    kept = [remedy for remedy in finding.remedies if dict(remedy.change) not in bad]
    return tuple(sorted(kept, key=lambda r: good.index(dict(r.change)) if dict(r.change) in good else len(good)))


def _confirmed(finding: Finding, best: Tried) -> Finding:
    assert best.gain is not None
    words = f"Tried: {change_words(best)} {won(best.gain)}"
    caution = " It changes the optimisation." if best.changes_training else ""
    return dataclasses.replace(
        finding,
        recoverable=measured_share(best.gain),
        confidence=max(finding.confidence, Tier.BOTH_MEASURED.value),
        summary=f"{finding.summary} {words}, in {counted(best.pairs, 'pair')} of trials.{caution}",
    )


def _by_ceiling(finding: Finding, gain: Interval) -> Finding:
    """The finding with a prediction that what a perfect fix wins caps; or raises, where the run showed surely less.

    Then the run was disturbed, or its steps were of another kind, and the pairs alternate.
    """
    if finding.recoverable is None:
        return finding
    words = f"A perfect fix, put in its place as an experiment, {won(gain)}"
    if finding.code in _ALL_OF_IT and gain.low is not None and gain.low > finding.recoverable.high:
        warns, critical = _ALL_OF_IT[finding.code]
        least = Severity.CRITICAL if gain.low >= critical else Severity.WARNING if gain.low >= warns else Severity.INFO
        return dataclasses.replace(
            finding,
            severity=max(finding.severity, least, key=SEVERITIES.index),
            recoverable=recoverable(gain, finding.family),
            confidence=max(finding.confidence, Tier.SHARE_AND_CAUSE.value),
            summary=f"{finding.summary} {words}: more than this run let see.",
        )
    most = gain.value if gain.high is None else gain.high
    return dataclasses.replace(
        finding, recoverable=capped(finding.recoverable, most), summary=f"{finding.summary} {words}."
    )


def _at_most(finding: Finding, about: Sequence[Tried], unsure: Sequence[Tried]) -> Finding:
    """The finding with what trying all its advice has left possible, where that is less, and known better, than what
    was predicted.
    """
    tried = [dict(one.change) for one in about]
    decided = [one.gain for one in unsure if one.verdict is Trying.INCONCLUSIVE and one.gain is not None and tells(one)]
    predicted = finding.recoverable
    if predicted is None or len(decided) < max(1, len(unsure)):
        return finding
    if any(remedy.change and dict(remedy.change) not in tried for remedy in finding.remedies):
        return finding
    best = max(decided, key=lambda gain: gain.value if gain.high is None else gain.high)
    if best.low is None or best.high is None or best.high >= predicted.high:
        return finding
    narrower = best.high - best.low < predicted.high - predicted.low
    return dataclasses.replace(finding, recoverable=measured_share(best)) if narrower else finding


def _refuted(finding: Finding, refuted: Sequence[Tried]) -> Finding:
    best = max((one.gain for one in refuted if one.gain is not None), key=lambda gain: gain.value, default=None)
    return dataclasses.replace(
        _with_words(finding, refuted),
        severity=Severity.INFO,
        recoverable=finding.recoverable if best is None else measured_share(best),
        confidence=max(finding.confidence, Tier.BOTH_MEASURED.value),
    )


def _as_put_down(finding: Finding, about: Sequence[Tried]) -> Finding:
    """The finding with the prediction that was put down before the first pair, to which its change is held.

    Today's rules may predict something else, and one change has one prediction. An info that advises it beside the
    finding that asked for it first takes that one's over; what is ordered by its gain keeps its own.
    """
    mine = (one.predicted for one in about if one.verdict in UNSURE and _leads_or_follows(finding, one))
    put_down = next((share for share in mine if share is not None), None)
    if put_down is None or finding.recoverable is None or finding.recoverable.measured:
        return finding
    return dataclasses.replace(finding, recoverable=put_down)


def _leads_or_follows(finding: Finding, one: Tried) -> bool:
    first = finding.remedies[0].change if finding.remedies else {}
    return one.codes[0] == finding.code or (finding.severity is Severity.INFO and dict(first) == dict(one.change))


def _with_words(finding: Finding, refuted: Sequence[Tried], unsure: Sequence[Tried] = ()) -> Finding:
    told = [f"Tried without success: {change_words(one)} {won(one.gain)}." for one in refuted if one.gain is not None]
    told += [_undecided(one) for one in unsure]
    return dataclasses.replace(finding, summary=" ".join([finding.summary, *told])) if told else finding


def _undecided(one: Tried) -> str:
    """``Tried, too early to say what num_workers=2 wins: 1 pair ran whole, and a verdict needs 3; …``"""
    if one.verdict is Trying.TOO_EARLY:
        return f"Tried, {one.verdict} what {change_words(one)} wins: {one.why}."
    if one.verdict is Trying.NOT_SETTLED:
        return f"Tried, but {one.verdict}: {change_words(one)}. {one.why[:1].upper()}{one.why[1:]}."
    pairs = f"in {counted(one.pairs, 'pair')} of trials"
    if one.gain is None or one.gain.low is None or one.gain.low < -1:
        return f"Tried and undecided: {change_words(one)}, {pairs} that differ too much to tell what it wins."
    return f"Tried and undecided: {change_words(one)} {won(one.gain)}, {pairs}."


def shown(gain: Interval) -> bool:
    """Whether a gain is one: its interval, where there is one, lies above 0."""
    return (gain.value if gain.low is None else gain.low) > 0


def won(gain: Interval) -> str:
    """What a change was measured to win, or to cost; a gain whose interval holds 0 is none that is shown.

    >>> won(Interval(0.5, 0.4, 0.6, 5))
    'wins 50 % (40 % to 60 %) of the time a sample takes'
    >>> won(Interval(-0.5, -0.6, -0.4, 5))
    'costs 50 % (40 % to 60 %) of the time a sample takes'
    >>> won(Interval(0.5, -0.4, 0.8, 5))
    'shows no gain (50 % of the time a sample takes, with an interval of -40 % to 80 %)'
    """
    of = "of the time a sample takes"
    if shown(gain):
        return f"wins {percent_between(gain)} {of}"
    if (gain.value if gain.high is None else gain.high) < 0:
        low, high = (None if end is None else -end for end in (gain.high, gain.low))
        return f"costs {percent_between(Interval(-gain.value, low, high, gain.n))} {of}"
    if gain.low is not None and gain.low < -1:
        return "shows no gain: its pairs of trials differ too much to tell"
    if gain.low is None or gain.high is None:
        return f"shows no gain ({percent(gain.value)} {of})"
    ends = f"{percent(gain.low)} to {percent(gain.high)}"
    return f"shows no gain ({percent(gain.value)} {of}, with an interval of {ends})"


def measured_share(gain: Interval) -> Share:
    """A measured gain as a share in 0…1: what costs time wins nothing."""
    ends = (gain.value, gain.value if gain.low is None else gain.low, gain.value if gain.high is None else gain.high)
    value, low, high = (min(max(end, 0.0), 1.0) for end in ends)
    return Share(value, low, high, measured=True)


def change_words(tried: Tried) -> str:
    """``num_workers=2, persistent_workers=True``."""
    return ", ".join(f"{name}={value}" for name, value in tried.change.items())
