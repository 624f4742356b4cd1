"""Every plant is found, and nothing is found where there is none; see ``plant.py`` for how to add one."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from perf_diagnostics.diagnose.rules import RULES
from perf_diagnostics.diagnose.trace.rules import TRACE_RULES
from tests.planted import on_a_gpu
from tests.planted.bench import Workbench
from tests.planted.plant import Plant, Script, Seen, complaints
from tests.planted.registry import PLANTS
from tests.planted.warm import WarmStart

#: Where the script has its trainings, by name.
TABLE = "TRAININGS"

KNOWN = {rule.code for rule in (*RULES, *TRACE_RULES)}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workbench]:
    """Warm servers and one memory for all plants, so that shared controls run once."""
    bench = Workbench(tmp_path_factory.mktemp("planted"), start=WarmStart())
    yield bench
    bench.close()


def parameters(*, real: bool) -> list[object]:
    return [
        pytest.param(plant, id=plant.name, marks=[pytest.mark.beside] if plant.bears_another else [])
        for plant in PLANTS
        if plant.real is real
    ]


def check(plant: Plant, bench: Workbench, *, turn: str = "") -> None:
    faulty = bench.see(plant.faulty, turn=turn)
    control = None if plant.control is None else bench.see(plant.control, turn=turn)
    inert = plant.check(faulty, control)
    if inert:
        pytest.skip(f"inert here, so it says nothing about the rules: {inert}")
    wrong = complaints(plant, faulty, control)
    if control is not None:
        planted = {code for codes in plant.expected for code in codes.split("|")}
        alarms = sorted(set(control.alarms) & planted)
        wrong += [f"{code} warns of the control" for code in alarms]
    assert not wrong, "\n  ".join([f"{plant.name}: {'; '.join(wrong)}", *_found(faulty), "control:", *_found(control)])


def _found(seen: Seen | None) -> list[str]:
    return [] if seen is None else [f"{f.code} {f.severity} {f.summary}" for f in seen.diagnosis.findings]


@pytest.mark.planted
@pytest.mark.parametrize("plant", parameters(real=True))
def test_a_real_plant(plant: Plant, bench: Workbench, turn: str) -> None:
    check(plant, bench, turn=turn)


@pytest.mark.parametrize("plant", parameters(real=False))
def test_a_made_up_plant(plant: Plant, bench: Workbench) -> None:
    check(plant, bench)


def test_there_are_enough_and_each_has_a_name_of_its_own() -> None:
    names = [plant.name for plant in PLANTS]
    assert len(names) == len(set(names)) and len(names) >= 35
    assert sum(plant.healthy for plant in PLANTS) >= 8


@pytest.mark.parametrize("plant", (*PLANTS, *on_a_gpu.PLANTS), ids=lambda plant: plant.name)
def test_a_plant_speaks_of_rules_that_there_are(plant: Plant) -> None:
    said = (*plant.expected, *plant.noted, *plant.top, *plant.must_not, *plant.never_critical)
    for codes in said:
        for code in codes.split("|"):
            assert code in KNOWN, code
    wanted = {code for codes in (*plant.expected, *plant.noted, *plant.top) for code in codes.split("|")}
    assert not wanted & set(plant.must_not)


def test_each_training_on_a_gpu_is_one_that_the_script_has_and_all_of_them_are_used() -> None:
    """It cannot be imported, for it trains then."""
    script = ast.parse((Path(__file__).parent / "scripts" / "on_a_gpu.py").read_text(encoding="utf-8"))
    (table,) = [
        one.value for one in script.body if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == TABLE
    ]
    assert isinstance(table, ast.Dict)
    known = {ast.literal_eval(key) for key in table.keys if key is not None}
    arms = [arm for plant in on_a_gpu.PLANTS for arm in (plant.faulty, plant.control, plant.fix) if arm is not None]
    assert {arm.fault for arm in arms if isinstance(arm, Script)} == known
    assert all(isinstance(arm, Script) and arm.file == "on_a_gpu.py" for arm in arms)
