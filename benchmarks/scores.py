"""The scores of planted faults: what the verdict on each was, and what all of them come to."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.calibration import brier, by_origin, ledger, reliability
from benchmarks.other_verdicts import OtherVerdict, TraceML, thresholds
from perf_diagnostics.diagnose.finding import Finding
from perf_diagnostics.records import Run
from tests.planted.bench import Turn, Workbench, mean_gain
from tests.planted.plant import Plant, Seen, complaints

#: Who else is asked about the same runs.
Others = Mapping[str, Callable[[Run], OtherVerdict | None]]
OTHERS: Others = {"TraceML": TraceML(), "fixed thresholds": thresholds}

#: A fix that slows the run by more than this, or wins less than a quarter of what was sure, is harmful advice.
SLOWER = 0.02
LEAST_OF_SURE = 0.25


@dataclass(frozen=True)
class Row:
    """One turn of a plant under one seed, and what came of it; None where a question was not put.

    ``realised`` is the gain over both turns, ``turns`` that of each; ``disturbed`` where an arm of the turn shows that
    something else used the processors.
    """

    plant: str
    number: str
    real: bool
    seed: int
    turn: int
    healthy: bool
    disturbed: bool
    inert: str
    verdict: str | None
    right: bool | None
    abstained: bool
    complaints: tuple[str, ...]
    false_alarms: tuple[str, ...]
    control_alarms: tuple[str, ...] | None
    confidence: float | None
    predicted: tuple[float, float] | None
    realised: float | None
    turns: tuple[float, ...]
    harmful: bool | None
    inside: bool | None
    others: dict[str, str | None]
    others_right: dict[str, bool | None]
    others_alarm: dict[str, bool | None]


def scored(plant: Plant, bench: Workbench, seed: int, asked: Others = OTHERS, *, once: bool = False) -> list[Row]:
    """Run (or read) the arms of a plant and score what is said of them, turn by turn; ``once``: in one turn."""
    turns: Sequence[Turn] = bench.abba(plant, seed) if plant.real and not once else (bench.once(plant, seed),)
    realised = mean_gain(turns)
    gains = tuple(turn.gain for turn in turns if turn.gain is not None)
    return [_row(plant, seed, number, turn, realised, gains, asked) for number, turn in enumerate(turns)]


def _row(
    plant: Plant,
    seed: int,
    number: int,
    turn: Turn,
    realised_by_all: float | None,
    gains: tuple[float, ...],
    asked: Others,
) -> Row:
    faulty, control = turn.faulty, turn.control
    inert = plant.check(faulty, control)
    verdict = faulty.diagnosis.verdict
    named = None if verdict is None else next((f for f in faulty.diagnosis.findings if f.code == verdict.code), None)
    right = (verdict is not None and verdict.code in plant.top) if plant.top else None
    realised = realised_by_all if right and not inert else None
    followed = _followed(plant, named, faulty)
    gain = None if followed is None else followed.recoverable
    predicted = None if gain is None else (gain.low, gain.high)
    others = {name: None if faulty.run is None else ask(faulty.run) for name, ask in asked.items()}
    return Row(
        plant=plant.name,
        number=plant.number,
        real=plant.real,
        seed=seed,
        turn=number,
        healthy=plant.healthy,
        disturbed=any(_disturbed(seen) for seen in (faulty, control, turn.fix) if seen is not None),
        inert=inert,
        verdict=None if verdict is None else verdict.code,
        right=right,
        abstained=bool(plant.top) and verdict is None,
        complaints=tuple(complaints(plant, faulty, control)),
        false_alarms=faulty.alarms if plant.healthy else (),
        control_alarms=None if control is None else control.alarms,
        confidence=None if named is None else named.confidence,
        predicted=predicted,
        realised=realised,
        turns=gains if realised is not None else (),
        harmful=_harmful(followed, realised),
        inside=None if predicted is None or realised is None else predicted[0] <= realised <= predicted[1],
        others={name: None if said is None else said.says for name, said in others.items()},
        others_right={name: _other_right(plant, said) for name, said in others.items()},
        others_alarm={name: None if said is None else said.alarm for name, said in others.items()},
    )


def _followed(plant: Plant, verdict: Finding | None, faulty: Seen) -> Finding | None:
    """The finding whose advice the fix is: the verdict's, unless the plant says that it is another's."""
    if not plant.tried or (verdict is not None and verdict.code in plant.tried):
        return verdict
    return next((finding for finding in faulty.diagnosis.findings if finding.code in plant.tried), None)


def _disturbed(seen: Seen) -> bool:
    return any(finding.code == "EXP010" for finding in seen.faults)


def _harmful(named: Finding | None, realised: float | None) -> bool | None:
    if named is None or realised is None:
        return None
    sure = 0.0 if named.recoverable is None else named.recoverable.low
    return realised < -SLOWER or (sure > 0 and realised < LEAST_OF_SURE * sure)


def _other_right(plant: Plant, said: OtherVerdict | None) -> bool | None:
    """Right if it names the family of one of the codes that the verdict may be."""
    if said is None or not plant.top:
        return None
    return bool({code[:3] for code in plant.top} & set(said.families))


def summary(rows: Sequence[Row]) -> dict[str, object]:
    """The scores over all rows whose fault bit."""
    live = [row for row in rows if not row.inert]
    asked = [row for row in live if row.right is not None]
    controls = [row for row in live if row.control_alarms is not None]
    healthy = [row for row in live if row.healthy]
    tried = [row for row in live if row.harmful is not None]
    gains = [row for row in live if row.inside is not None]
    quiet = sum(not row.control_alarms for row in controls) + sum(not row.false_alarms for row in healthy)
    return {
        "plants": len({row.plant for row in rows}),
        "rows": len(rows),
        "disturbed": sum(row.disturbed for row in rows),
        "inert": [f"{row.plant} {row.seed}.{row.turn}: {row.inert}" for row in rows if row.inert],
        "top_cause_right": _rate(sum(bool(row.right) for row in asked), len(asked)),
        "abstained": _rate(sum(row.abstained for row in asked), len(asked)),
        "as_the_catalogue_demands": _rate(sum(not row.complaints for row in live), len(live)),
        "quiet_controls": _rate(quiet, len(controls) + len(healthy)),
        "harmful_advice": _rate(sum(bool(row.harmful) for row in tried), len(tried)),
        "gain_inside_prediction": _rate(sum(bool(row.inside) for row in gains), len(gains)),
        "gain_inside_by_turns": _rate(sum(_meets(row) for row in gains), len(gains)),
        "gain_inside_undisturbed": _inside([row for row in gains if not row.disturbed]),
        "predicted_width": _median([r.predicted[1] - r.predicted[0] for r in gains if r.predicted is not None]),
        "realised_of_predicted": ledger(gains),
        "others": {name: _others(asked, healthy, name) for name in OTHERS},
        "top_cause_right_by_origin": {
            origin: _rate(sum(bool(row.right) for row in there), len(there))
            for origin, there in by_origin(asked).items()
        },
        "reliability": {origin: reliability(there) for origin, there in by_origin(asked).items()},
        "brier": {origin: brier(there) for origin, there in by_origin(asked).items()},
    }


def _meets(row: Row) -> bool:
    """Whether the gains of the two turns, from the smaller to the larger, reach into the prediction."""
    assert row.predicted is not None
    return min(row.turns) <= row.predicted[1] and max(row.turns) >= row.predicted[0]


def _inside(rows: Sequence[Row]) -> dict[str, float | int | None]:
    return _rate(sum(bool(row.inside) for row in rows), len(rows))


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def _others(asked: Sequence[Row], healthy: Sequence[Row], name: str) -> dict[str, object]:
    put = [row for row in asked if row.others_right[name] is not None]
    quiet = [row for row in healthy if row.others_alarm[name] is not None]
    return {
        "top_cause_right": _rate(sum(bool(row.others_right[name]) for row in put), len(put)),
        "ours_on_the_same_rows": _rate(sum(bool(row.right) for row in put), len(put)),
        "quiet_controls": _rate(sum(not row.others_alarm[name] for row in quiet), len(quiet)),
    }


def _rate(hits: int, of: int) -> dict[str, float | int | None]:
    return {"hits": hits, "of": of, "share": hits / of if of else None}
