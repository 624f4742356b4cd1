"""Situations drawn at random: trainings that nobody has looked at, each with one fault of a drawn dose, or with none.

The plants of the registry were designed together with the rules. Here a seed draws model, sizes, batch, loader, healthy
habits, a mild disturbance of another family, the fault and its dose; what may be said of it follows from the fault
alone. :func:`draw` gives plants like any other, for the benchmark and for a test.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from perf_diagnostics.diagnose.rules import RULES
from perf_diagnostics.records import Json
from tests.planted.drawn_training import Recipe
from tests.planted.plant import Check, Plant, Seen, Trials

WORKLOAD = "tests.planted.drawn_training:make"

#: Warm-up steps of an arm on the bench.
_WARMUP = 8

#: Of what was to be taken from a step, so much has to be reached, by the training's own stopwatch.
_REACHED = 0.5

#: Operations of a step, forward and backward: some 5 to 20 ms of one core.
_LEAST_OPERATIONS, _MOST_OPERATIONS = 2.5e8, 8e8

#: One healthy situation in so many.
_HEALTHY_IN = 4

_INPUT = ("INP001", "INP002", "INP003")


@dataclass(frozen=True)
class Drawn:
    """The healthy half of a situation: what is trained, at which batch, under which settings."""

    recipe: Recipe
    batch_size: int
    settings: Mapping[str, Any]

    def arm(self, *, steps: int, settings: Mapping[str, Any] | None = None, **recipe: Any) -> Trials:
        changed = replace(self.recipe, **recipe, until=_WARMUP + steps)
        options: dict[str, Json] = asdict(changed)
        given = {name: value for name, value in {**self.settings, **(settings or {})}.items() if value is not None}
        return Trials(workload=WORKLOAD, options=options, batch_sizes=(self.batch_size,), settings=given, steps=steps)


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of fault: what may be its verdict, which doses are drawn, and what its arms differ in.

    ``faulty`` and ``fix`` are settings in which these arms differ from the control; ``mended`` is the part of the dose
    that the fix leaves. ``likeness`` tells which mild disturbances would be of the same family. Faults with
    ``by_steps`` are checked by how much longer the training's own steps take than the control's, at least this share,
    and mended by becoming the control; the others are checked by the stopwatch around them.
    """

    name: str
    top: tuple[str, ...]
    shares: tuple[float, float] = (0.25, 0.6)
    every: tuple[int, int] = (1, 1)
    steps: int = 110
    likeness: str
    families: tuple[str, ...] = ("vectors", "images", "sentences")
    prepare: Callable[[Drawn, np.random.Generator], Drawn] = lambda base, dice: base
    faulty: Mapping[str, Any] = field(default_factory=dict)
    fix: Mapping[str, Any] = field(default_factory=dict)
    mended: float | None = None
    by_steps: float | None = None

    @property
    def mends_to_healthy(self) -> bool:
        """What mends it is the control itself."""
        return self.by_steps is not None


def _to_be_handed_over(base: Drawn, dice: np.random.Generator) -> Drawn:
    """No workers at first, so that workers are what mends it."""
    return replace(base, settings={**base.settings, "num_workers": None, "persistent_workers": None})


def _two_workers(base: Drawn, dice: np.random.Generator) -> Drawn:
    return replace(base, settings={**base.settings, "num_workers": 2, "persistent_workers": True})


def _short_epochs(base: Drawn, dice: np.random.Generator) -> Drawn:
    samples = base.batch_size * int(dice.integers(7, 13))
    settings = {**base.settings, "num_workers": 1, "persistent_workers": True}
    return replace(base, recipe=replace(base.recipe, samples=samples), settings=settings)


def _many_tensors(base: Drawn, dice: np.random.Generator) -> Drawn:
    """Layers that are small to an optimizer, and at these batches still large enough to be worth their calls."""
    recipe = replace(
        base.recipe, width=int(dice.integers(64, 112)), depth=int(dice.integers(40, 80)), optimizer="adamw"
    )
    return replace(base, recipe=recipe, batch_size=int(dice.choice([96, 128, 160])))


def _all_lengths(base: Drawn, dice: np.random.Generator) -> Drawn:
    """Sentences of a quarter to the whole of the longest; bucketed by length where it is healthy."""
    recipe = replace(base.recipe, pad_to=1, samples=base.batch_size * int(dice.integers(60, 120)))
    return replace(base, recipe=recipe, settings={**base.settings, "length_bucketing": True})


KINDS: tuple[Kind, ...] = (
    Kind(
        name="item-sleep",
        likeness="input",
        top=_INPUT,
        prepare=_to_be_handed_over,
        fix={"num_workers": 4, "persistent_workers": True},
    ),
    Kind(
        name="item-burn",
        likeness="input",
        top=_INPUT,
        prepare=_to_be_handed_over,
        fix={"num_workers": 1, "persistent_workers": True},
    ),
    Kind(
        name="slow-worker",
        likeness="input",
        top=("INP004", *_INPUT),
        shares=(0.7, 0.85),
        prepare=_two_workers,
        by_steps=0.2,
    ),
    Kind(
        name="short-epochs",
        likeness="input",
        top=("INP005", "INP001"),
        prepare=_short_epochs,
        faulty={"persistent_workers": False},
        by_steps=0.15,
    ),
    Kind(name="work-in-loop", likeness="loop", top=("INP007", "HST006"), mended=0.02),
    Kind(name="wait-in-loop", likeness="loop", top=("HST006",), mended=0.02),
    Kind(
        name="save",
        likeness="stalls",
        top=("STB004", "STB002", "HST006"),
        shares=(0.15, 0.4),
        every=(12, 25),
        steps=200,
        mended=0.01,
    ),
    Kind(
        name="stall",
        likeness="stalls",
        top=("STB002", "STB004", "HST006"),
        shares=(0.2, 0.4),
        every=(12, 25),
        steps=200,
        mended=0.01,
    ),
    Kind(
        name="collector",
        likeness="collector",
        top=("HST005",),
        shares=(0.15, 0.4),
        every=(2, 6),
        fix={"freeze_gc": True},
    ),
    Kind(
        name="small-updates",
        likeness="optimizer",
        top=("OPT001", "OPT002"),
        families=("vectors",),
        prepare=_many_tensors,
        faulty={"optimizer_implementation": "single"},
        by_steps=0.1,
    ),
    Kind(
        name="threads",
        likeness="processor",
        top=("CPU001",),
        faulty={"threads": 16},
        by_steps=0.2,
    ),
    Kind(
        name="padding",
        likeness="padding",
        top=("CMP004",),
        families=("sentences",),
        prepare=_all_lengths,
        faulty={"length_bucketing": None},
        by_steps=0.08,
    ),
)


def draw(count: int, seed: int) -> tuple[Plant, ...]:
    """So many situations; the first ones of a longer draw are those of a shorter one."""
    return tuple(_situation(number, seed) for number in range(count))


def _situation(number: int, seed: int) -> Plant:
    dice = np.random.default_rng((seed, number, 97))
    base = _base(dice, ("vectors", "images", "sentences"))
    if number % _HEALTHY_IN == _HEALTHY_IN - 1:
        return _healthy(number, seed, _with_mild(base, dice, besides=""), dice)
    faults = number - number // _HEALTHY_IN
    # Each kind once before any comes again, in an order of the seed's own.
    order = np.random.default_rng((seed, faults // len(KINDS), 101)).permutation(len(KINDS))
    kind = KINDS[int(order[faults % len(KINDS)])]
    base = kind.prepare(_with_mild(_base(dice, kind.families), dice, besides=kind.likeness), dice)
    return _faulty(number, seed, kind, base, dice)


def _faulty(number: int, seed: int, kind: Kind, base: Drawn, dice: np.random.Generator) -> Plant:
    share = float(dice.uniform(*kind.shares))
    every = int(dice.integers(kind.every[0], kind.every[1] + 1))
    place = str(dice.choice(["loop", "transfer"])) if kind.name == "work-in-loop" else "loop"
    planted = {"fault": kind.name, "share": share, "every": every, "place": place}
    faulty = base.arm(steps=kind.steps, settings=kind.faulty, **planted)
    control = base.arm(steps=kind.steps)
    mended = planted | ({} if kind.mended is None else {"share": share * kind.mended})
    fix = control if kind.mends_to_healthy else base.arm(steps=kind.steps, settings=kind.fix, **mended)
    least = share * _REACHED if kind.by_steps is None else kind.by_steps
    return Plant(
        name=f"drawn-{seed}-{number}-{kind.name}",
        number="drawn",
        says=_says(base),
        dose=f"{share:.2f} of a step" if kind.by_steps is None else f"at least {kind.by_steps:.2f} of a step",
        faulty=faulty,
        control=control,
        fix=fix,
        top=kind.top,
        check=took(least) if kind.by_steps is None else longer(least),
    )


def _healthy(number: int, seed: int, base: Drawn, dice: np.random.Generator) -> Plant:
    return Plant(
        name=f"drawn-{seed}-{number}-healthy",
        number="drawn",
        says=_says(base),
        dose="none",
        faulty=base.arm(steps=int(dice.choice([80, 150, 240]))),
        check=came_to_its_end,
    )


def _says(base: Drawn) -> str:
    recipe = base.recipe
    mild = f", {recipe.mild} of {recipe.mild_share:.1%}" if recipe.mild else ""
    return f"{recipe.family} {recipe.depth} x {recipe.width}, batch {base.batch_size}{mild}"


# -- what is healthy


def _base(dice: np.random.Generator, families: tuple[str, ...]) -> Drawn:
    """A training of a few ms a step: sizes are drawn until its operations lie in range."""
    family = str(dice.choice(families))
    while True:
        recipe, batch, operations = _SIZES[family](dice)
        if _LEAST_OPERATIONS <= operations <= _MOST_OPERATIONS:
            break
    samples = batch * int(dice.integers(25, 200))
    habits = {
        "samples": samples,
        "optimizer": str(dice.choice(["sgd", "adamw"])),
        "evaluate_every": int(dice.choice([0, 25, 50])),
        "log_every": int(dice.choice([0, 1, 10])),
    }
    workers = int(dice.choice([0, 0, 1, 2])) if operations > 4e8 else 0
    settings: dict[str, Any] = {"threads": 1, "optimizer_implementation": "fused"}
    if workers:
        settings |= {"num_workers": workers, "persistent_workers": True}
    return Drawn(replace(recipe, **habits), batch, settings)


def _vectors(dice: np.random.Generator) -> tuple[Recipe, int, float]:
    width, depth = int(dice.integers(128, 769)), int(dice.integers(2, 7))
    batch = int(dice.choice([16, 32, 64, 128]))
    parameters = 64 * width + (depth - 1) * width**2
    return _recipe("vectors", width, depth), batch, 6.0 * parameters * batch


def _images(dice: np.random.Generator) -> tuple[Recipe, int, float]:
    width, depth = int(dice.integers(8, 41)), int(dice.integers(2, 5))
    batch = int(dice.choice([4, 8, 16, 32]))
    products = 9 * 16**2 * (3 * width + (depth - 1) * width**2)
    return _recipe("images", width, depth), batch, 6.0 * products * batch


def _sentences(dice: np.random.Generator) -> tuple[Recipe, int, float]:
    width, depth = 4 * int(dice.integers(8, 33)), int(dice.integers(1, 4))
    length, batch = int(dice.choice([32, 64, 96])), int(dice.choice([4, 8, 16, 32]))
    parameters = 12 * depth * width**2 + 500 * width
    return _recipe("sentences", width, depth, length=length), batch, 6.0 * parameters * batch * length / 2


def _recipe(family: str, width: int, depth: int, *, length: int = 1) -> Recipe:
    return Recipe(family=family, width=width, depth=depth, length=length, samples=1, until=1)


_SIZES: Mapping[str, Callable[[np.random.Generator], tuple[Recipe, int, float]]] = {
    "vectors": _vectors,
    "images": _images,
    "sentences": _sentences,
}

#: Mild disturbances: whose family they are of, and the limit of which they stay far below.
_MILD: tuple[tuple[str, str, str, str], ...] = (
    ("item-sleep", "input", "INP001", "warn_share"),
    ("item-burn", "input", "INP001", "warn_share"),
    ("work-in-loop", "loop", "HST006", "warn_share"),
    ("wait-in-loop", "loop", "HST006", "warn_share"),
)


def _with_mild(base: Drawn, dice: np.random.Generator, *, besides: str) -> Drawn:
    """In two of three situations something small of another family, at a tenth to three tenths of what warns."""
    name, family, code, limit = _MILD[int(dice.integers(len(_MILD)))]
    part, wanted = float(dice.uniform(0.1, 0.3)), bool(dice.random() < 2 / 3)
    if not wanted or family == besides:
        return base
    rule = next(rule for rule in RULES if rule.code == code)
    return replace(base, recipe=replace(base.recipe, mild=name, mild_share=part * float(getattr(rule, limit))))


# -- whether the fault bit, by the training's own stopwatch


def told(seen: Seen, name: str) -> float | None:
    """What the training says of itself; None where it did not come so far."""
    assert seen.run is not None
    for result in seen.run.completed:
        planted = result.facts.get("planted")
        value = planted.get(name) if isinstance(planted, dict) else None
        if isinstance(value, int | float):
            return float(value)
    return None


def came_to_its_end(faulty: Seen, control: Seen | None) -> str:
    """A healthy training that broke off is quiet for the wrong reason."""
    return "" if told(faulty, "step_s") else "the training did not come to its last counted batch"


def took(least: float) -> Check:
    """What is planted takes at least this share of the training's own steps."""

    def check(faulty: Seen, control: Seen | None) -> str:
        fault_s, step_s = told(faulty, "fault_s"), told(faulty, "step_s")
        if fault_s is None or not step_s:
            return "the training did not tell what its fault took"
        share = fault_s / step_s
        return "" if share >= least else f"the fault took {share:.0%} of a step, not {least:.0%}"

    return check


def longer(least: float) -> Check:
    """The training's own steps are so much longer than the control's: this share of them is the fault's."""

    def check(faulty: Seen, control: Seen | None) -> str:
        assert control is not None
        with_it, without = told(faulty, "step_s"), told(control, "step_s")
        if not with_it or without is None:
            return "a training did not tell how long its steps took"
        share = 1 - without / with_it
        return "" if share >= least else f"the fault took {share:.0%} of a step, not {least:.0%}"

    return check
