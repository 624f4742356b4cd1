"""How often the verdict is right: every planted fault, its control and its fix, diagnosed and scored.

    python benchmarks/diagnosis.py [--made-up] [--only NAME ...] [--seeds N] [--parts plants drawn doses gpu]
                                   [--drawn N] [--seed S] [--traceml PYTHON] [--output FOLDER]

The arms of a real plant run interleaved, twice each: control, faulty, fix, fix, faulty, control. ``drawn`` adds
situations that a seed draws (tests/planted/drawn.py), so that what is scored was designed by nobody. ``gpu`` trains
those of tests/planted/on_a_gpu.py on a CUDA device, each arm once. Beside the plants,
dose-response tables: how often each limit fires at 0, half, twice and four times its dose, in made-up records over many
seeds and in real trainings. Confidence is held against hit rates, and promised gains against realised ones
(calibration.py).

Runs of real trials are kept in FOLDER and not run again, so that a broken run goes on where it ended, and better rules
can be scored on old runs; delete the folder to measure anew. Writes ``diagnosis.md`` and ``diagnosis.json`` there after
each plant, and says on standard error how long the rest takes. Let nothing else run meanwhile: a real plant measures
this machine. Start it in the repository's root.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import calibration
from benchmarks.dose_response import made_up_curves, real_curves, real_runs, section
from benchmarks.other_verdicts import TRACEML_MISSING, TraceML
from benchmarks.progress import Progress
from benchmarks.scores import OTHERS, Others, Row, scored, summary
from tests.planted import on_a_gpu
from tests.planted.bench import Workbench
from tests.planted.drawn import draw
from tests.planted.plant import Plant
from tests.planted.registry import PLANTS
from tests.planted.warm import WarmStart

PARTS = ("plants", "drawn", "doses", "gpu")

#: What keeps a plant from being scored, but not the next one.
_BROKEN = (RuntimeError, subprocess.TimeoutExpired)


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
    by_origin = scores["top_cause_right_by_origin"]
    assert isinstance(by_origin, dict)
    lines += [f"| top cause right, {origin} | {_words(rate)} |" for origin, rate in by_origin.items()]
    lines += ["", "| on the same rows | top cause right | ours | quiet on healthy runs |", "|---|---|---|---|"]
    others = scores["others"]
    assert isinstance(others, dict)
    for name, told in others.items():
        if name == "TraceML" and not (told["top_cause_right"]["of"] or told["quiet_controls"]["of"]):
            lines.append(f"| {name} | {TRACEML_MISSING} | | |")
        else:
            right, ours, quiet = (told[key] for key in ("top_cause_right", "ours_on_the_same_rows", "quiet_controls"))
            lines.append(f"| {name} | {_words(right)} | {_words(ours)} | {_words(quiet)} |")
    lines += ["", *calibration.lines(rows)]
    width = scores["predicted_width"]
    if isinstance(width, float):
        lines += ["", f"The predicted interval is {width:.0%} of the step wide in the median."]
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


def chosen(only: Sequence[str], *, made_up: bool, drawn: Sequence[Plant] = ()) -> list[Plant]:
    """The plants that were asked for, of the registry and of those that were drawn.

    Raises:
        SystemExit: a name that no plant has.
    """
    known = (*PLANTS, *drawn, *on_a_gpu.PLANTS)
    unknown = set(only) - {plant.name for plant in known}
    if unknown:
        raise SystemExit(f"There is no plant {sorted(unknown)[0]!r}; see tests/planted/.")
    return [plant for plant in known if (not only or plant.name in only) and not (made_up and plant.real)]


@dataclass
class Scoring:
    """What has been scored so far, written into a folder after each plant."""

    output: Path
    bench: Workbench
    others: Others
    rows: list[Row] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    curves: dict[str, object] = field(default_factory=dict)
    tables: list[str] = field(default_factory=list)

    def plants(self, work: Sequence[tuple[Plant, int]], progress: Progress) -> None:
        """Score these plants under these seeds; one that breaks is named, and the next one is tried."""
        for at, (plant, seed) in enumerate(work):
            once = plant in on_a_gpu.PLANTS
            runs = self.bench.missing(plant, seed, once=once)
            if plant.real:
                progress.say(f"{plant.name}, seed {seed}: {at + 1} of {len(work)}, {runs} runs")
            try:
                found = scored(plant, self.bench, seed, self.others, once=once)
            except _BROKEN as error:
                self.broken.append(f"{plant.name}, seed {seed}: {error}")
                print(self.broken[-1], file=sys.stderr, flush=True)
                continue
            finally:
                progress.done(runs)
            self.rows += found
            print("\n".join(map(_line, found)), file=sys.stderr, flush=True)
            if plant.real:
                self.write()

    def doses(self, given: argparse.Namespace, progress: Progress) -> None:
        """The dose-response tables."""
        self.curves["made_up"], table = made_up_curves(given.dose_seeds)
        self.tables += section("Doses in made-up records", table)
        if not given.made_up:
            self.curves["real"], table = real_curves(self.bench, given.seeds, progress)
            self.tables += section("Doses in real trainings", table)

    def write(self) -> str:
        """Write both files; the text of the scores alone."""
        scores = summary(self.rows)
        document = {"scores": scores, "doses": self.curves, "broken": self.broken, "rows": list(map(asdict, self.rows))}
        (self.output / "diagnosis.json").write_text(json.dumps(document, indent=2), encoding="utf-8")
        text = markdown(self.rows, scores)
        broken = section("Broken", [f"- {said.splitlines()[0]}" for said in self.broken]) if self.broken else []
        whole = text + "\n".join([*broken, *self.tables])
        (self.output / "diagnosis.md").write_text(whole.rstrip() + "\n", encoding="utf-8")
        return text.partition("| plant |")[0].rstrip()


def _work(given: argparse.Namespace) -> Iterator[tuple[Plant, int]]:
    """Each plant with the seeds it is run under. A drawn one has its own, which also says what begins.

    Raises:
        SystemExit: drawn situations were asked for outside of the repository's root, or a name that no plant has.
    """
    drawn = draw(given.drawn, given.seed) if "drawn" in given.parts and not given.made_up else ()
    # A trial looks for a workload of one's own in the folder it was started in, and drawn trainings are such.
    if drawn and not Path("tests/planted/drawn_training.py").exists():
        raise SystemExit(f"Drawn situations are trained from the repository's root; {Path.cwd()} is none.")
    asked = chosen(given.only, made_up=given.made_up, drawn=drawn)
    if "plants" in given.parts or given.only:
        for plant in asked:
            if plant not in (*drawn, *on_a_gpu.PLANTS):
                yield from ((plant, seed) for seed in range(given.seeds if plant.real else 1))
    yield from ((plant, number) for number, plant in enumerate(drawn) if plant in asked)
    if "gpu" in given.parts or given.only:
        yield from ((plant, seed) for plant in on_a_gpu.PLANTS if plant in asked for seed in range(given.seeds))


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these plants")
    parser.add_argument("--made-up", action="store_true", help="only plants in made-up records and traces: seconds")
    parser.add_argument("--seeds", type=int, default=1, metavar="N", help="how often each plant is run (default: 1)")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=["plants", "doses"],
                        help="what to run (default: plants doses)")  # fmt: skip
    parser.add_argument("--drawn", type=int, default=12, metavar="N", help="situations to draw (default: 12)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="what draws them (default: 0)")
    parser.add_argument("--dose-seeds", type=int, default=40, metavar="N",
                        help="records made up for each dose (default: 40)")  # fmt: skip
    parser.add_argument("--traceml", type=Path, metavar="PYTHON",
                        help="a Python that has traceml-ai, where ours has not")  # fmt: skip
    parser.add_argument("--output", type=Path, default=Path("results/diagnosis-benchmark"), metavar="FOLDER")
    given = parser.parse_args(arguments)
    given.output.mkdir(parents=True, exist_ok=True)
    bench = Workbench(given.output / "runs", keep=True)
    if given.parts == ["gpu"]:  # a GPU's time is dear: what scripts import, they find there
        bench.start = WarmStart(PYTORCH_NVML_BASED_CUDA_CHECK="1")
    traceml = TraceML(given.traceml)
    scoring = Scoring(given.output, bench, {**OTHERS, "TraceML": traceml})
    try:
        work = list(_work(given))
        doses = "doses" in given.parts and not given.only
        runs = sum(bench.missing(plant, seed, once=plant in on_a_gpu.PLANTS) for plant, seed in work)
        progress = Progress(runs + (real_runs(given.seeds) if doses and not given.made_up else 0), lambda: bench.ran)
        scoring.plants(work, progress)
        if doses:
            scoring.doses(given, progress)
    finally:
        bench.close()
        traceml.close()
        text = scoring.write()
    print(text)
    print(f"\n{given.output / 'diagnosis.md'}")
    if scoring.broken:
        raise SystemExit(f"{len(scoring.broken)} plants broke; run the same command again to try them anew.")


if __name__ == "__main__":
    main(sys.argv[1:])
