"""Whether stated confidence and promised gains hold: read off the scores of planted faults.

    python benchmarks/calibration.py FOLDER [FOLDER ...]

Each folder is the output of ``benchmarks/diagnosis.py``; several are pooled. Confidence is held against how often the
verdict was right, level by level. What a fix won is held against the upper end of what was predicted, family by family,
beside the prior (kappa) that ``diagnose/rule_parts/gain.py`` takes for the lower end. Turns and seeds of one plant are
no independent trials, so the plant is what is counted; levels and families of few plants are said to be too thin to
judge.
Nothing here changes a prior.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from perf_diagnostics.diagnose.finding import Family
from perf_diagnostics.diagnose.rule_parts.gain import kappa

#: Confidence is held against the rate of hits in these bins. Their edges lie between the tiers of ``gain.py`` (and 0.6
#: of each), because time that no phase accounts for takes a little off a tier.
BINS = (0.0, 0.24, 0.36, 0.46, 0.6, 0.78, 0.9, 1.01)

#: With fewer plants nothing is concluded: even 20 of 20 leaves a rate of 0.84 open (Wilson).
LEAST_PLANTS = 20

_NORMAL = 1.959963984540054


class Scored(Protocol):
    """What is needed of a row of scores."""

    @property
    def plant(self) -> str: ...

    @property
    def number(self) -> str: ...

    @property
    def real(self) -> bool: ...

    @property
    def inert(self) -> str: ...

    @property
    def right(self) -> bool | None: ...

    @property
    def confidence(self) -> float | None: ...

    @property
    def verdict(self) -> str | None: ...

    @property
    def predicted(self) -> tuple[float, float] | None: ...

    @property
    def realised(self) -> float | None: ...


R = TypeVar("R", bound=Scored)


class Kept:
    """A row as ``diagnosis.json`` keeps it."""

    def __init__(self, told: dict[str, Any]) -> None:
        self.plant: str = told["plant"]
        self.number: str = told["number"]
        self.real: bool = told["real"]
        self.inert: str = told["inert"]
        self.right: bool | None = told["right"]
        self.confidence: float | None = told["confidence"]
        self.verdict: str | None = told["verdict"]
        predicted = told["predicted"]
        self.predicted: tuple[float, float] | None = None if predicted is None else (predicted[0], predicted[1])
        self.realised: float | None = told["realised"]


def wilson(rate: float, n: int) -> tuple[float, float]:
    """The 95 % interval of a proportion (Wilson, JASA 22, 1927), 0…1; the whole range where nothing was counted."""
    if n <= 0:
        return 0.0, 1.0
    z2 = _NORMAL**2
    middle = (rate + z2 / (2 * n)) / (1 + z2 / n)
    half = _NORMAL / (1 + z2 / n) * math.sqrt(rate * (1 - rate) / n + z2 / (4 * n * n))
    return max(0.0, middle - half), min(1.0, middle + half)


def by_origin(rows: Iterable[R]) -> dict[str, list[R]]:
    """Rows of situations that were drawn, of plants that were designed, and of those in made-up records.

    Rules and designed plants were made together, and made-up records hold what their maker thought of: only drawn ones
    are fresh.
    """
    found: dict[str, list[R]] = {"drawn": [], "designed": [], "made up": []}
    for row in rows:
        found["drawn" if row.number == "drawn" else "designed" if row.real else "made up"].append(row)
    return {origin: there for origin, there in found.items() if there}


def reliability(rows: Iterable[Scored]) -> list[dict[str, Any]]:
    """A line for each level of confidence that was stated: hit rate with its interval, and what may be said of it."""
    asked = _asked(rows)
    table = []
    for low, high in itertools.pairwise(BINS):
        there = [row for row in asked if low <= _confidence(row) < high]
        if not there:
            continue
        plants = len({row.plant for row in there})
        stated = statistics.fmean(_confidence(row) for row in there)
        right = _rate(there)
        least, most = wilson(right, plants)
        table.append(
            {
                "from": low,
                "to": min(high, 1.0),
                "n": len(there),
                "plants": plants,
                "stated": stated,
                "right": right,
                "low": least,
                "high": most,
                "says": _says(stated, least, most, plants),
            }
        )
    return table


def _says(stated: float, least: float, most: float, plants: int) -> str:
    if plants < LEAST_PLANTS:
        return f"too thin: {plants} of {LEAST_PLANTS} plants"
    return "too modest" if least > stated else "too sure" if most < stated else "agrees"


def brier(rows: Iterable[Scored]) -> dict[str, float | int] | None:
    """The Brier score of the confidences (Brier, 1950; 0 is best), and that of always stating the mean hit rate.

    None where no verdict was scored.
    """
    asked = _asked(rows)
    if not asked:
        return None
    rate = _rate(asked)
    score = statistics.fmean((_confidence(row) - bool(row.right)) ** 2 for row in asked)
    return {"n": len(asked), "plants": len({row.plant for row in asked}), "score": score, "base": rate * (1 - rate)}


def ledger(rows: Iterable[Scored]) -> dict[str, dict[str, Any]]:
    """What part of the upper end of a prediction was realised, by family of verdicts, beside the prior for it.

    ``tenth`` is the 10th percentile over plants, each by the mean of its rows: what kappa stands for.
    """
    by_plant: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        if row.verdict and not row.inert and row.predicted and row.realised is not None and row.predicted[1] > 0:
            found = by_plant.setdefault(row.verdict[:3], {}).setdefault(row.plant, [])
            found.append(row.realised / row.predicted[1])
    return {family: _realised(family, plants) for family, plants in sorted(by_plant.items())}


def _realised(family: str, plants: dict[str, list[float]]) -> dict[str, Any]:
    parts = sorted(statistics.fmean(found) for found in plants.values())
    at = 0.1 * (len(parts) - 1)
    below = parts[math.floor(at)]
    tenth = below + (at - math.floor(at)) * (parts[math.ceil(at)] - below)
    prior = kappa(Family(family))
    enough = len(parts) >= LEAST_PLANTS
    return {
        "n": len(parts),
        "least": parts[0],
        "tenth": tenth,
        "median": statistics.median(parts),
        "most": parts[-1],
        "kappa": prior,
        "says": ("holds" if tenth >= prior else "promises too much") if enough else f"too thin: {len(parts)} plants",
    }


def _asked(rows: Iterable[Scored]) -> list[Scored]:
    return [row for row in rows if not row.inert and row.right is not None and row.confidence is not None]


def _confidence(row: Scored) -> float:
    assert row.confidence is not None
    return row.confidence


def _rate(rows: Sequence[Scored]) -> float:
    """The mean over plants of how often the verdict was right."""
    by_plant: dict[str, list[bool]] = {}
    for row in rows:
        by_plant.setdefault(row.plant, []).append(bool(row.right))
    return statistics.fmean(statistics.fmean(found) for found in by_plant.values())


def lines(rows: Iterable[Scored]) -> list[str]:
    """The tables of each origin, in Markdown."""
    said: list[str] = []
    for origin, there in by_origin(rows).items():
        if not _asked(there):
            continue
        said += [*([""] if said else []), f"Confidence and gains, {origin}:", "", *_lines(there)]
    return said


def _lines(rows: Sequence[Scored]) -> list[str]:
    said = ["| confidence | rows | plants | stated | right | 95 % of it | |", "|---" * 7 + "|"]
    said += [
        f"| {b['from']:.2f} to {b['to']:.2f} | {b['n']} | {b['plants']} | {b['stated']:.2f} | {b['right']:.2f} "
        f"| {b['low']:.2f} to {b['high']:.2f} | {b['says']} |"
        for b in reliability(rows)
    ]
    score = brier(rows)
    if score is not None:
        said += ["", f"Brier score {score['score']:.3f} over {score['plants']} plants; {score['base']:.3f} is that of "
                 "stating the hit rate each time."]  # fmt: skip
    found = ledger(rows)
    if found:
        said += ["", "| realised of the predicted upper end | plants | least | 10th percentile | median | most "
                 "| kappa | |", "|---" * 8 + "|"]  # fmt: skip
        said += [
            f"| {family} | {b['n']} | {b['least']:.2f} | {b['tenth']:.2f} | {b['median']:.2f} | {b['most']:.2f} "
            f"| {b['kappa']:.2f} | {b['says']} |"
            for family, b in found.items()
        ]
    return said


def rows_in(folder: Path) -> list[Kept]:
    """The rows that a benchmark left in its folder.

    Raises:
        SystemExit: there is no ``diagnosis.json``, or it is none.
    """
    path = folder / "diagnosis.json"
    try:
        return [Kept(told) for told in json.loads(path.read_text(encoding="utf-8"))["rows"]]
    except (OSError, json.JSONDecodeError, KeyError, TypeError) as error:
        raise SystemExit(
            f"{path} holds no scores ({error!r}); run benchmarks/diagnosis.py --output {folder}."
        ) from None


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    print("\n".join(lines([row for folder in parser.parse_args(arguments).folders for row in rows_in(folder)])))


if __name__ == "__main__":
    main(sys.argv[1:])
