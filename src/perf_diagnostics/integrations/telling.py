"""Says at the end of a training where its run lies and what limits it: one line on standard error."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from perf_diagnostics.measure.observation import Observations

if TYPE_CHECKING:
    from perf_diagnostics.integrations.recording import Recording


def say(text: str) -> None:
    """Print a line that is ours, after what the training has printed."""
    sys.stdout.flush()
    print(f"perf-diagnostics: {text}", file=sys.stderr)


def tell(recording: Recording, observations: Observations, notes: Iterable[str] = ()) -> None:
    """Print the run and the verdict, and what the run's notes say."""
    told = "no verdict could be made"
    with observations.guard("verdict"):
        told = _verdict(recording, observations)
    for line in (told, *notes):
        say(line)


def _verdict(recording: Recording, observations: Observations) -> str:
    from perf_diagnostics.diagnose.engine import diagnose

    run = recording.run
    if run is None:
        return "no training step was measured" + next((f": {gap.why}" for gap in observations.gaps), "")
    where = "not written" if recording.folder is None else os.path.relpath(recording.folder.path)
    diagnosis = diagnose(run)
    found = diagnosis.verdict
    told = f"no verdict: {diagnosis.no_verdict_because}" if found is None else f"{found.summary} [{found.code}]"
    return f"{where}: {' '.join(told.split())}"
