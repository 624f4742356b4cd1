"""Which 16-bit format a trial's device has units for: by its recorded compute capability, else by its maker's sheet."""

from __future__ import annotations

import re

from perf_diagnostics.diagnose.hardware.data_sheets import half_precision
from perf_diagnostics.records import TrialResult

#: What to say where the format cannot be told; no change of settings stands for it.
EITHER = "in 16 bits (bfloat16 from compute capability 8.0 on, float16 with gradient scaling below)"


def half_format(result: TrialResult) -> str | None:
    """``bfloat16``, or ``float16`` where that is all the device has units for; None where nobody knows.

    A device of CUDA without a recorded compute capability and without a sheet may be an RTX 20, on which bfloat16 is
    computed by way of float32; nothing is guessed there.
    """
    text, name = _capability(result), result.facts.get("device_name")
    numbers = re.fullmatch(r"(\d+)\.(\d+)", text or "")
    capability = None if numbers is None else (int(numbers[1]), int(numbers[2]))
    found = half_precision(name if isinstance(name, str) else None, capability)
    # A text that is no number is AMD's name of an architecture.
    unknown = result.trial.settings.device.startswith("cuda") and text is None
    return found or (None if unknown else "bfloat16")


def _capability(result: TrialResult) -> str | None:
    """What the environment recorded as the compute capability of the trial's device."""
    name = result.trial.settings.device
    wanted = f"{name}:0" if name == "cuda" else name
    for device in result.environment.devices:
        found = device.get("capability")
        if device.get("name") == wanted and isinstance(found, str) and found:
            return found
    return None
