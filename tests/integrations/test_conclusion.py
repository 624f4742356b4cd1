"""What a training's result says of the energy of its ranks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from perf_diagnostics.integrations.record import not_shown
from perf_diagnostics.integrations.record.conclusion import Conclusion, Course
from perf_diagnostics.records import Quantity, StepTable

OWN = (Quantity("energy_device", 60.0, "J", "NVML"), Quantity("energy_device_steps", 3.0, "1", "NVML"))
PARAMETERS = Quantity("parameters", 8.0, "1", "the model")


def conclusion(*, several: bool, readings: Any = None) -> Conclusion:
    nothing: Any = SimpleNamespace(origin_ns=17)
    about: Any = SimpleNamespace(crossings=[], quantities=[PARAMETERS, *OWN])
    meeting = SimpleNamespace(several=several, rank=1)
    disk: Any = SimpleNamespace(meeting=meeting, parts=SimpleNamespace(lost=0))
    return Conclusion(
        about=about,
        probe=nothing,
        disk=disk,
        readings=readings,
        code=nothing,
        compilations=nothing,
        worker_looks=nothing,
        exchanges=nothing,
        observations=nothing,
        course=Course(),
    )


def test_the_energy_of_one_rank_of_several_is_not_told_as_the_trainings() -> None:
    assert conclusion(several=True)._told_quantities() == [PARAMETERS]


def test_the_energy_of_one_rank_alone_is_the_trainings() -> None:
    assert conclusion(several=False)._told_quantities() == [PARAMETERS, *OWN]


@pytest.mark.parametrize("several", [True, False])
def test_that_other_ranks_have_boards_too_is_no_gap(several: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(not_shown, "gaps_of", lambda *_arguments: [])
    assert conclusion(several=several)._gaps(StepTable.empty()) == []


def test_a_rank_alone_is_not_asked_what_its_board_has_used_so_far() -> None:
    asked = []
    readings = SimpleNamespace(rank_energy=lambda *arguments: asked.append(arguments))
    conclusion(several=False, readings=readings).rank_energy()
    assert asked == []
    conclusion(several=True, readings=readings).rank_energy()
    assert asked == [(1, 17)]
