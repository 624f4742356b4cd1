"""What a training's result says about what was not measured."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from perf_diagnostics.integrations import not_shown
from perf_diagnostics.integrations.conclusion import Conclusion, Course
from perf_diagnostics.records import Quantity, StepTable


@pytest.mark.parametrize(("several", "read", "told"), [(True, True, True), (True, False, False), (False, True, False)])
def test_of_several_ranks_only_one_board_was_read(
    several: bool, read: bool, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(not_shown, "gaps_of", lambda *_arguments: [])
    nothing: Any = SimpleNamespace()
    about: Any = SimpleNamespace(quantities=[Quantity("energy_device", 0.0, "J", "NVML")] if read else [])
    disk: Any = SimpleNamespace(meeting=SimpleNamespace(several=several), parts=SimpleNamespace(lost=0))
    conclusion = Conclusion(
        about=about,
        probe=nothing,
        disk=disk,
        readings=nothing,
        exchanges=nothing,
        observations=nothing,
        course=Course(),
    )
    found = [gap.signal for gap in conclusion._gaps(StepTable.empty())]
    assert found == (["energy_of_other_ranks"] if told else [])
