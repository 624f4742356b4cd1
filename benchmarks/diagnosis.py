"""How often the verdict is right: every planted fault, its control and its fix, diagnosed and scored.

    python benchmarks/diagnosis.py [--made-up] [--only NAME ...] [--seeds N] [--parts plants doses] [--output FOLDER]

The arms of a real plant run interleaved, twice each: control, faulty, fix, fix, faulty, control. Beside the plants,
dose-response tables: how often each limit fires at 0, half, twice and four times its dose, in made-up records over many
seeds and in real trainings.

Runs of real trials are kept in FOLDER and not run again, so that a broken run goes on where it ended, and better rules
can be scored on old runs; delete the folder to measure anew. Writes ``diagnosis.md`` and ``diagnosis.json`` there. Let
nothing else run meanwhile: a real plant measures this machine.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.dose_response import made_up_curves, real_curves, section
from benchmarks.other_verdicts import TRACEML_MISSING, OtherVerdict, thresholds, traceml
from perf_diagnostics.diagnose.finding import Finding
from perf_diagnostics.records import Run
from tests.planted.bench import Turn, Workbench, mean_gain
from tests.planted.plant import Plant, Seen, complaints
from tests.planted.registry import PLANTS

#: Confidence is held against the rate of hits in these bins.
BINS = (0.0, 0.3, 0.5, 0.7, 0.85, 1.01)

#: A fix that slows the run by more than this, or wins less than a quarter of what was sure, is harmful advice.
SLOWER = 0.02
LEAST_OF_SURE = 0.25

OTHERS: dict[str, Callable[[Run], OtherVerdict | None]] = {"TraceML": traceml, "fixed thresholds": thresholds}


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


def scored(plant: Plant, bench: Workbench, seed: int) -> list[Row]:
    """Run (or read) the arms of a plant and score what is said of them, turn by turn."""
    turns: Sequence[Turn]
    if plant.real:
        turns = bench.abba(plant, seed)
    else:
        control = None if plant.control is None else bench.see(plant.control, seed)
        turns = (Turn(bench.see(plant.faulty, seed), control),)
    realised = mean_gain(turns)
    gains = tuple(turn.gain for turn in turns if turn.gain is not None)
    return [_row(plant, seed, number, turn, realised, gains) for number, turn in enumerate(turns)]


def _row(
    plant: Plant, seed: int, number: int, turn: Turn, realised_by_all: float | None, gains: tuple[float, ...]
) -> Row:
    faulty, control = turn.faulty, turn.control
    inert = plant.check(faulty, control)
    verdict = faulty.diagnosis.verdict
    named = None if verdict is None else next((f for f in faulty.diagnosis.findings if f.code == verdict.code), None)
    right = (verdict is not None and verdict.code in plant.top) if plant.top else None
    realised = realised_by_all if right and not inert else None
    predicted = None if named is None or named.recoverable is None else (named.recoverable.low, named.recoverable.high)
    others = {name: None if faulty.run is None else ask(faulty.run) for name, ask in OTHERS.items()}
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
        harmful=_harmful(named, realised),
        inside=None if predicted is None or realised is None else predicted[0] <= realised <= predicted[1],
        others={name: None if said is None else said.says for name, said in others.items()},
        others_right={name: _other_right(plant, said) for name, said in others.items()},
        others_alarm={name: None if said is None else said.alarm for name, said in others.items()},
    )


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
        "realised_of_predicted": _ledger(gains),
        "others": {name: _others(asked, healthy, name) for name in OTHERS},
        "reliability": _reliability(asked),
    }


def _meets(row: Row) -> bool:
    """Whether the gains of the two turns, from the smaller to the larger, reach into the prediction."""
    assert row.predicted is not None
    return min(row.turns) <= row.predicted[1] and max(row.turns) >= row.predicted[0]


def _ledger(gains: Sequence[Row]) -> dict[str, dict[str, float | int]]:
    """What part of the upper end of a prediction was realised, by family: what kappa in gain.py is about."""
    parts: dict[str, list[float]] = {}
    for row in gains:
        if row.verdict is not None and row.predicted is not None and row.realised is not None and row.predicted[1] > 0:
            parts.setdefault(row.verdict[:3], []).append(row.realised / row.predicted[1])
    return {
        family: {"n": len(found), "least": min(found), "median": statistics.median(found), "most": max(found)}
        for family, found in sorted(parts.items())
    }


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


def _reliability(asked: Sequence[Row]) -> list[dict[str, object]]:
    """Stated confidence against how often the verdict was right."""
    table = []
    for low, high in itertools.pairwise(BINS):
        there = [row for row in asked if row.confidence is not None and low <= row.confidence < high]
        if there:
            stated = sum(row.confidence or 0.0 for row in there) / len(there)
            table.append(
                {"from": low, "to": min(high, 1.0), "n": len(there), "stated": stated}
                | {"right": sum(bool(row.right) for row in there) / len(there)}
            )
    return table


def _rate(hits: int, of: int) -> dict[str, float | int | None]:
    return {"hits": hits, "of": of, "share": hits / of if of else None}


def markdown(rows: Sequence[Row], scores: dict[str, object]) -> str:
    """The scores and every row, as people read them."""
    lines = ["# Planted faults", "", f"{scores['plants']} plants, {scores['rows']} rows.", ""]
    if scores["disturbed"]:
        lines += [f"In {scores['disturbed']} rows something else used the processors (EXP010).", ""]
    lines += ["| score | |", "|---|---|"]
    named = (
        ("top_cause_right", "top cause right"),
        ("abstained", "no verdict although there is a fault"),
        ("as_the_catalogue_demands", "everything said as the catalogue demands"),
        ("quiet_controls", "controls and decoys without an alarm beyond the EXP family"),
        ("harmful_advice", "harmful advice"),
        ("gain_inside_prediction", "measured gain inside the predicted interval"),
        ("gain_inside_by_turns", "the same, or one of its two turns on the other side"),
        ("gain_inside_undisturbed", "inside where nothing else used the processors"),
    )
    lines += [f"| {says} | {_words(scores[key])} |" for key, says in named]
    lines += ["", "| on the same rows | top cause right | ours | quiet on healthy runs |", "|---|---|---|---|"]
    others = scores["others"]
    assert isinstance(others, dict)
    for name, told in others.items():
        if name == "TraceML" and not told["top_cause_right"]["of"]:
            lines.append(f"| {name} | {TRACEML_MISSING} | | |")
        else:
            right, ours, quiet = (told[key] for key in ("top_cause_right", "ours_on_the_same_rows", "quiet_controls"))
            lines.append(f"| {name} | {_words(right)} | {_words(ours)} | {_words(quiet)} |")
    lines += ["", "| confidence | n | stated | right |", "|---|---|---|---|"]
    table = scores["reliability"]
    assert isinstance(table, list)
    lines += [f"| {b['from']:.2f} to {b['to']:.2f} | {b['n']} | {b['stated']:.2f} | {b['right']:.2f} |" for b in table]
    width = scores["predicted_width"]
    if isinstance(width, float):
        lines += ["", f"The predicted interval is {width:.0%} of the step wide in the median."]
    ledger = scores["realised_of_predicted"]
    assert isinstance(ledger, dict)
    if ledger:
        lines += ["", "| realised of the predicted upper end | n | least | median | most |", "|---|---|---|---|---|"]
        lines += [
            f"| {family} | {told['n']} | {told['least']:.2f} | {told['median']:.2f} | {told['most']:.2f} |"
            for family, told in ledger.items()
        ]
    lines += ["", "| plant | no. | seed | verdict | right | predicted | realised | others | complaints |"]
    lines += ["|---|---|---|---|---|---|---|---|---|", *(_line(row) for row in rows)]
    return "\n".join(lines) + "\n"


def _words(rate: object) -> str:
    assert isinstance(rate, dict)
    return "-" if not rate["of"] else f"{rate['share']:.0%} ({rate['hits']} of {rate['of']})"


def _line(row: Row) -> str:
    predicted = "" if row.predicted is None else f"{row.predicted[0]:.0%} to {row.predicted[1]:.0%}"
    realised = "" if row.realised is None else f"{row.realised:.0%} ({', '.join(f'{g:.0%}' for g in row.turns)})"
    right = {None: "", True: "yes", False: "**no**"}[row.right]
    others = ", ".join(f"{name}: {said}" for name, said in row.others.items() if said is not None)
    wrong = f"inert: {row.inert}" if row.inert else "; ".join(row.complaints)
    cells = (
        row.plant,
        row.number,
        f"{row.seed}.{row.turn}",
        row.verdict or "none",
        right,
        predicted,
        realised,
        others,
        wrong,
    )
    return "| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |"


def chosen(only: Sequence[str], *, made_up: bool) -> list[Plant]:
    """The plants that were asked for.

    Raises:
        SystemExit: a name that no plant has.
    """
    unknown = set(only) - {plant.name for plant in PLANTS}
    if unknown:
        raise SystemExit(f"There is no plant {sorted(unknown)[0]!r}; see tests/planted/.")
    return [p for p in PLANTS if (not only or p.name in only) and not (made_up and p.real)]


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these plants")
    parser.add_argument("--made-up", action="store_true", help="only plants in made-up records and traces: seconds")
    parser.add_argument("--seeds", type=int, default=1, metavar="N", help="how often each plant is run (default: 1)")
    parser.add_argument("--parts", nargs="+", choices=("plants", "doses"), default=["plants", "doses"],
                        help="what to run (default: both)")  # fmt: skip
    parser.add_argument("--dose-seeds", type=int, default=40, metavar="N",
                        help="records made up for each dose (default: 40)")  # fmt: skip
    parser.add_argument("--output", type=Path, default=Path("results/diagnosis-benchmark"), metavar="FOLDER")
    given = parser.parse_args(arguments)
    given.output.mkdir(parents=True, exist_ok=True)
    bench = Workbench(given.output / "runs", keep=True)
    rows: list[Row] = []
    tables: list[str] = []
    curves: dict[str, object] = {}
    try:
        for plant in chosen(given.only, made_up=given.made_up) if "plants" in given.parts else ():
            for seed in range(given.seeds if plant.real else 1):
                rows += scored(plant, bench, seed)
                print("\n".join(map(_line, rows[-2:] if plant.real else rows[-1:])), file=sys.stderr, flush=True)
        if "doses" in given.parts and not given.only:
            curves["made_up"], table = made_up_curves(given.dose_seeds)
            tables += section("Doses in made-up records", table)
            if not given.made_up:
                curves["real"], table = real_curves(bench, given.seeds)
                tables += section("Doses in real trainings", table)
    finally:
        bench.close()
        scores = summary(rows)
        document = {"scores": scores, "doses": curves, "rows": [asdict(row) for row in rows]}
        (given.output / "diagnosis.json").write_text(json.dumps(document, indent=2), encoding="utf-8")
        text = markdown(rows, scores) + "\n".join(tables)
        (given.output / "diagnosis.md").write_text(text.rstrip() + "\n", encoding="utf-8")
    print(markdown(rows, scores).partition("| plant |")[0].rstrip())
    print(f"\n{given.output / 'diagnosis.md'}")


if __name__ == "__main__":
    main(sys.argv[1:])
