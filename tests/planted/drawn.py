"""Situations drawn at random: trainings that nobody has looked at, each with one fault of a drawn dose, or with none.

The plants of the registry were designed together with the rules. Here a seed draws model, sizes, batch, loader, healthy
habits, a mild disturbance of another family, the fault and its dose; what may be said of it follows from the fault
alone. :func:`draw` gives plants like any other, for the benchmark and for a test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
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

#: Operations of a step, forward and backward: some 4 to 20 ms of one core.
_OPERATIONS = (2.5e8, 8e8)

#: The same where workers load, some 25 to 75 ms: taking over a batch of these trainings took the loop 1.0 to 1.4 ms
#: (two virtual cores, nothing else running), and the first one of a pass 2.7 to 2.9 ms.
_OPERATIONS_BESIDE_WORKERS = (2e9, 3e9)

#: The least for a sentence: making one took the loop 24 µs, which is to be some 4 % of training on it. The samples of
#: the other families are taken from memory all at once.
_OPERATIONS_A_SENTENCE = 2.5e7

#: A training that waits for more of its step is not healthy, whatever the rules say.
_HEALTHY_WAIT = 0.08

#: One healthy situation in so many.
_HEALTHY_IN = 4

_INPUT = ("INP001", "INP002", "INP003")


@dataclass(frozen=True)
class Drawn:
    """The healthy half of a situation: what is trained, at which batch, under which settings."""

    recipe: Recipe
    batch_size: int
    settings: Mapping[str, Any]

    def under(self, **settings: Any) -> Drawn:
        """The same with some settings changed; None leaves one out."""
        return replace(self, settings={**self.settings, **settings})

    def arm(self, *, steps: int, settings: Mapping[str, Any] | None = None, **recipe: Any) -> Trials:
        changed = replace(self.recipe, **recipe, until=_WARMUP + steps)
        options: dict[str, Json] = asdict(changed)
        given = {name: value for name, value in {**self.settings, **(settings or {})}.items() if value is not None}
        return Trials(workload=WORKLOAD, options=options, batch_sizes=(self.batch_size,), settings=given, steps=steps)


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of fault: what may be its verdict, which doses are drawn, and what its arms differ in.

    ``faulty`` and ``fix`` are settings in which these arms differ from the control; ``mended`` is the part of the dose
    that the fix leaves. ``likeness`` tells which mild disturbances would be of the same family; beside a fault that
    changes the ``pace`` they are measured by, none would be the same in all arms. Faults with
    ``by_steps`` are checked by how much longer the training's own steps take than the control's, at least this share,
    and mended by becoming the control; the others are checked by the stopwatch around them. Where it is one of loader
    workers, the step leaves room ``beside_workers``.
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
    beside_workers: bool = False

    @property
    def mends_to_healthy(self) -> bool:
        """What mends it is the control itself."""
        return self.by_steps is not None


def _without_workers(base: Drawn, dice: np.random.Generator) -> Drawn:
    """No workers: they are what mends it, or the step that is left is too short for them."""
    return base.under(num_workers=None, persistent_workers=None)


def _two_workers(base: Drawn, dice: np.random.Generator) -> Drawn:
    return base.under(num_workers=2, persistent_workers=True)


def _short_epochs(base: Drawn, dice: np.random.Generator) -> Drawn:
    # A restart took 36 ms (two virtual cores): 9 % of six steps of 60 ms with it, 26 % of four of 25 ms.
    samples = base.batch_size * int(dice.integers(4, 7))
    return replace(base, recipe=replace(base.recipe, samples=samples)).under(num_workers=1, persistent_workers=True)


def _many_tensors(base: Drawn, dice: np.random.Generator) -> Drawn:
    """Layers that are small to an optimizer, and at these batches still large enough to be worth their calls."""
    recipe = replace(
        base.recipe, width=int(dice.integers(64, 112)), depth=int(dice.integers(40, 80)), optimizer="adamw"
    )
    return replace(_without_workers(base, dice), recipe=recipe, batch_size=int(dice.choice([96, 128, 160])))


def _all_lengths(base: Drawn, dice: np.random.Generator) -> Drawn:
    """Sentences of a quarter to the whole of the longest; bucketed by length where it is healthy."""
    recipe = replace(base.recipe, pad_to=1, samples=base.batch_size * int(dice.integers(60, 120)))
    return replace(_without_workers(base, dice), recipe=recipe).under(length_bucketing=True)


def _slow_items(name: str, workers: int) -> Kind:
    """Each item is slow, and so many workers mend it."""
    return Kind(
        name=name,
        likeness="input",
        top=_INPUT,
        prepare=_without_workers,
        fix={"num_workers": workers, "persistent_workers": True},
    )


def _now_and_then(name: str, top: tuple[str, ...], shares: tuple[float, float]) -> Kind:
    """What single steps lose, one in a dozen or two."""
    return Kind(name=name, likeness="stalls", top=top, shares=shares, every=(12, 25), steps=200, mended=0.01)


KINDS: tuple[Kind, ...] = (
    _slow_items("item-sleep", workers=4),
    _slow_items("item-burn", workers=1),
    Kind(
        name="slow-worker",
        likeness="input",
        top=("INP004", *_INPUT),
        # Of every other batch: 0.76 is 3.2 paces of a step in the place of two, of which a real one takes 2.3.
        shares=(0.76, 0.85),
        prepare=_two_workers,
        by_steps=0.2,
        beside_workers=True,
    ),
    Kind(
        name="short-epochs",
        likeness="input",
        top=("INP005", "INP001"),
        prepare=_short_epochs,
        faulty={"persistent_workers": False},
        by_steps=0.08,
        beside_workers=True,
    ),
    Kind(name="work-in-loop", likeness="loop", top=("INP007", "HST006"), mended=0.02),
    Kind(name="wait-in-loop", likeness="loop", top=("HST006",), mended=0.02),
    _now_and_then("save", ("STB004", "STB002", "HST006"), (0.15, 0.4)),
    _now_and_then("stall", ("STB002", "STB004", "HST006"), (0.2, 0.4)),
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
        likeness="pace",
        top=("OPT001", "OPT002"),
        families=("vectors",),
        prepare=_many_tensors,
        faulty={"optimizer_implementation": "single"},
        by_steps=0.1,
    ),
    Kind(
        name="threads",
        likeness="pace",
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
    if number % _HEALTHY_IN == _HEALTHY_IN - 1:
        return _healthy(number, seed, _with_mild(_base(dice, _SIZES), dice, besides=""), dice)
    faults = number - number // _HEALTHY_IN
    # Each kind once before any comes again, in an order of the seed's own.
    order = np.random.default_rng((seed, faults // len(KINDS), 101)).permutation(len(KINDS))
    kind = KINDS[int(order[faults % len(KINDS)])]
    base = _base(dice, kind.families, beside_workers=kind.beside_workers)
    return _faulty(number, seed, kind, kind.prepare(_with_mild(base, dice, besides=kind.likeness), dice), dice)


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
        check=both(took(least) if kind.by_steps is None else longer(least), unhurried(_HEALTHY_WAIT)),
    )


def _healthy(number: int, seed: int, base: Drawn, dice: np.random.Generator) -> Plant:
    return Plant(
        name=f"drawn-{seed}-{number}-healthy",
        number="drawn",
        says=_says(base),
        dose="none",
        faulty=base.arm(steps=int(dice.choice([80, 150, 240]))),
        check=unhurried(_HEALTHY_WAIT),
    )


def _says(base: Drawn) -> str:
    recipe = base.recipe
    mild = f", {recipe.mild} of {recipe.mild_share:.1%}" if recipe.mild else ""
    return f"{recipe.family} {recipe.depth} x {recipe.width}, batch {base.batch_size}{mild}"


# -- what is healthy


def _base(dice: np.random.Generator, families: Iterable[str], *, beside_workers: bool = False) -> Drawn:
    """A training of a few ms a step: sizes are drawn until its operations lie in range; of more where workers load."""
    family = str(dice.choice(sorted(families)))
    workers = int(dice.choice([0, 0, 0, 0, 1, 2]))
    least, most = _OPERATIONS_BESIDE_WORKERS if workers or beside_workers else _OPERATIONS
    while True:
        recipe, batch, operations = _SIZES[family](dice)
        needs = batch * _OPERATIONS_A_SENTENCE if family == "sentences" else 0.0
        if max(least, needs) <= operations <= most:
            break
    samples = batch * int(dice.integers(25, 200))
    habits = {
        "samples": samples,
        "optimizer": str(dice.choice(["sgd", "adamw"])),
        "evaluate_every": int(dice.choice([0, 25, 50])),
        "log_every": int(dice.choice([0, 1, 10])),
    }
    drawn = Drawn(replace(recipe, **habits), batch, {"threads": 1, "optimizer_implementation": "fused"})
    return drawn.under(num_workers=workers, persistent_workers=True) if workers else drawn


def _vectors(dice: np.random.Generator) -> tuple[Recipe, int, float]:
    width, depth = int(dice.integers(128, 769)), int(dice.integers(2, 7))
    batch = int(dice.choice([16, 32, 64, 128, 256]))
    parameters = 64 * width + (depth - 1) * width**2
    return _recipe("vectors", width, depth), batch, 6.0 * parameters * batch


def _images(dice: np.random.Generator) -> tuple[Recipe, int, float]:
    width, depth = int(dice.integers(8, 65)), int(dice.integers(2, 5))
    batch = int(dice.choice([4, 8, 16, 32, 64]))
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
    if not wanted or besides in (family, "pace"):
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


def part_of_a_step(seen: Seen, name: str) -> float | None:
    """A time that the training tells, as a share of its steps; None where it did not come so far."""
    time_s, step_s = told(seen, name), told(seen, "step_s")
    return None if time_s is None or not step_s else time_s / step_s


def took(least: float) -> Check:
    """What is planted takes at least this share of the training's own steps."""

    def check(faulty: Seen, control: Seen | None) -> str:
        return _reached(part_of_a_step(faulty, "fault_s"), least)

    return check


def longer(least: float) -> Check:
    """The training's own steps are so much longer than the control's: this share of them is the fault's."""

    def check(faulty: Seen, control: Seen | None) -> str:
        assert control is not None
        with_it, without = told(faulty, "step_s"), told(control, "step_s")
        return _reached(None if not with_it or without is None else 1 - without / with_it, least)

    return check


def unhurried(most: float) -> Check:
    """The training without the fault waits for its batches for less than this share of its own steps.

    One that broke off says nothing either: it is quiet for the wrong reason.
    """

    def check(faulty: Seen, control: Seen | None) -> str:
        share = part_of_a_step(faulty if control is None else control, "wait_s")
        if share is None:
            return _BROKE_OFF
        return "" if share < most else f"the training without a fault waits for {share:.0%} of a step, so it is no such"

    return check


def both(one: Check, other: Check) -> Check:
    """What the first of two checks has to say, else the second."""
    return lambda faulty, control: one(faulty, control) or other(faulty, control)


_BROKE_OFF = "the training did not come to its last counted batch"


def _reached(share: float | None, least: float) -> str:
    if share is None:
        return _BROKE_OFF
    return "" if share >= least else f"the fault took {share:.0%} of a step, not {least:.0%}"
