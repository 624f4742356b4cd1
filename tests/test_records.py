"""Settings refuse what cannot be meant, and a ceiling is named wherever a trial is."""

from __future__ import annotations

import pytest

from perf_diagnostics.errors import InvalidSettings
from perf_diagnostics.records import CEILINGS, Length, Settings, Trial

SWITCHES = (
    "persistent_workers",
    "pin_memory",
    "gradient_checkpointing",
    "length_bucketing",
    "channels_last",
    "freeze_gc",
    "keep_freed_memory",
    "masks_from_bits",
    "flush_denormals",
)


@pytest.mark.parametrize("name", SWITCHES)
@pytest.mark.parametrize("value", ["no", "false", 0, 1])
def test_a_switch_is_true_or_false_and_the_word_no_does_not_turn_it_on(name: str, value: object) -> None:
    with pytest.raises(InvalidSettings, match=f"{name}={value!r} must be true or false"):
        Settings(batch_size=8, **{name: value})  # type: ignore[arg-type]
    assert Settings(batch_size=8, **{name: False}).canonical()[name] is False  # type: ignore[arg-type]


@pytest.mark.parametrize("ceiling", CEILINGS)
def test_a_ceiling_stands_in_the_label(ceiling: str) -> None:
    trial = Trial(workload="mlp", settings=Settings(batch_size=8, ceiling=ceiling))
    assert trial.label == f"mlp cpu batch 8 ceiling {ceiling}"
    assert Trial(workload="mlp", settings=Settings(batch_size=8)).label == "mlp cpu batch 8"


@pytest.mark.parametrize("steps", [3.5, 3.0, float("nan"), "3", True])
def test_a_number_of_steps_is_whole(steps: object) -> None:
    """A loop that is to end after 3.5 steps would never end."""
    with pytest.raises(InvalidSettings, match="whole number of steps"):
        Length.exactly(steps)  # type: ignore[arg-type]
    with pytest.raises(InvalidSettings, match=r"max_steps=.* must be a whole number of steps"):
        Length(max_steps=steps)  # type: ignore[arg-type]
    assert Length.exactly(3).max_steps == 3
