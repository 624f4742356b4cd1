"""What was tried, and what would be, as plain text for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from perf_diagnostics.diagnose.finding import Trying
from perf_diagnostics.diagnose.tried.outcomes import shown, where_of
from perf_diagnostics.diagnose.wording import counted

if TYPE_CHECKING:
    from perf_diagnostics.diagnose.finding import Share, Tried
    from perf_diagnostics.diagnose.rule_parts.experiments import Candidate
    from perf_diagnostics.diagnose.statistics.intervals import Interval
    from perf_diagnostics.records import Json
    from perf_diagnostics.trials.confirm.confirm_order import Foreseen

_WIDTH = 100

CEILING = "a ceiling: what a perfect fix could win, no way to train"
CHANGES = "changes the optimisation, so look at the loss too"


def tried_text(tried: Iterable[Tried]) -> str:
    """One paragraph for each change that was tried: verdict, gain with its interval, prediction."""
    return "\n".join(line for one in tried for line in _tried(one))


def _tried(one: Tried) -> list[str]:
    head = f"{str(one.verdict).upper()}  {change_text(one.change)} ({', '.join(one.codes)}; {one.where})"
    lines = textwrap.wrap(head, _WIDTH, subsequent_indent="  ")
    if one.gain is not None and one.verdict is not Trying.TOO_EARLY:
        said = "gain" if shown(one.gain) else "no gain is shown:"
        lines.append(f"  {said} {gain_text(one.gain)} of the time a sample takes, {counted(one.pairs, 'pair')}")
    if one.predicted is not None and not one.ceiling:
        lines.append(f"  predicted {share_text(one.predicted)}{_held(one)}")
    notes = [words for words, holds in ((CEILING, one.ceiling), (CHANGES, one.changes_training)) if holds]
    for note in (*notes, *([one.why] if one.why else [])):
        lines += textwrap.wrap(" ".join(note.split()), _WIDTH, initial_indent="  ", subsequent_indent="    ")
    return lines


def _held(one: Tried) -> str:
    """Nothing where the pairs decide nothing: what may be anything holds no prediction."""
    if one.as_predicted is None or one.verdict is Trying.INCONCLUSIVE:
        return ""
    return "; held" if one.as_predicted else "; not held"


def planned_text(candidates: Iterable[Candidate], ahead: Iterable[Foreseen]) -> str:
    """What would be tried, in which order, with its prediction, what of it has run, and about how long it takes."""
    lines: list[str] = []
    for number, (one, foreseen) in enumerate(zip(candidates, ahead, strict=True), start=1):
        where = where_of(one.base)
        codes = ", ".join(dict.fromkeys(about.code for about in one.about))
        lines.append(f"{number}. {change_text(one.change)} ({codes}; {where}): {_ahead(foreseen)}")
        predicted = "" if one.predicted is None or one.ceiling else f" Predicted: {share_text(one.predicted)}."
        note = f" ({CEILING})" if one.ceiling else f" ({CHANGES})" if one.changes_training else ""
        lines += textwrap.wrap(f"{one.says}{note}{predicted}", _WIDTH, initial_indent="   ", subsequent_indent="   ")
    return "\n".join(lines)


def _ahead(one: Foreseen) -> str:
    """``5 pairs, about 40 s``; ``2 of 5 pairs, about 16 s, for 3 have run``; ``5 pairs have run, none is left``."""
    done, planned = one.standing.done, one.standing.planned
    if one.standing.over:
        return f"no further pair after {done} of {planned}, for a trial of it failed or had not settled"
    if not one.missing:
        return f"{counted(planned, 'pair')} {'has' if planned == 1 else 'have'} run, none is left"
    of = f"{one.missing} of {counted(planned, 'pair')}" if done else counted(planned, "pair")
    ran = f", for {done} {'has' if done == 1 else 'have'} run" if done else ""
    few = "" if one.pairs == one.missing else f"; the time budget has room for {one.pairs or 'none'} of them"
    return f"{of}, about {one.missing_s:.0f} s{ran}{few}"


def change_text(change: Mapping[str, Json]) -> str:
    """``num_workers=2, persistent_workers=True``"""
    return ", ".join(f"{name}={value}" for name, value in change.items())


def share_text(share: Share) -> str:
    """``12 to 48 %``"""
    return f"{100 * share.low:.0f} to {100 * share.high:.0f} %"


def gain_text(gain: Interval) -> str:
    """``47.9 % (44.0 to 51.2 %)``; ``12.0 % (less than -100 to 93.1 %)``, as of two pairs that differ much."""
    if gain.low is None or gain.high is None:
        return f"{100 * gain.value:.1f} % (one pair, so no interval)"
    if gain.low < -1:
        return f"{100 * gain.value:.1f} % (less than -100 to {100 * gain.high:.1f} %)"
    return f"{100 * gain.value:.1f} % ({100 * gain.low:.1f} to {100 * gain.high:.1f} %)"
