"""Says at the end of a training where its run lies and what limits it: one line on standard error."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Protocol

from perf_diagnostics.measure.observation import Observations
from perf_diagnostics.records import Run
from perf_diagnostics.store.run_folder import RunFolder


class Recorded(Protocol):
    """A training that was recorded."""

    @property
    def run(self) -> Run | None:
        """The records; None where no step was seen."""

    @property
    def folder(self) -> RunFolder | None:
        """Where they lie; None where they could not be written."""


def say(text: str) -> None:
    """Print a line that is ours, after what the training has printed."""
    sys.stdout.flush()
    print(f"perf-diagnostics: {text}", file=sys.stderr)


def tell(recording: Recorded, observations: Observations, notes: Iterable[str] = ()) -> None:
    """Print the run and the verdict, and what the run's notes say."""
    told = "no verdict could be made"
    with observations.guard("verdict"):
        told = _verdict(recording, observations)
    for line in (told, *notes):
        say(line)


def _verdict(recording: Recorded, observations: Observations) -> str:
    from perf_diagnostics.diagnose.engine import diagnose
    from perf_diagnostics.diagnose.verdict_place import verdict_words

    run = recording.run
    if run is None:
        gaps = sorted(observations.gaps, key=lambda gap: gap.signal != "steps")
        return "no training step was measured" + next((f": {gap.why}" for gap in gaps), "")
    where = "not written" if recording.folder is None else os.path.relpath(recording.folder.path)
    diagnosis = diagnose(run, traces=None if recording.folder is None else recording.folder.traces())
    told = f"{'no verdict: ' if diagnosis.verdict is None else ''}{verdict_words(diagnosis)}"
    return f"{where}: {' '.join(told.split())}"
