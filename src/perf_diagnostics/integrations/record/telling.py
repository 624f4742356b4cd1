"""Says at the end of a training where its run lies and what limits it: one line on standard error."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from perf_diagnostics.integrations.told_paths import told_path
from perf_diagnostics.measure.host.standard_streams import print_error
from perf_diagnostics.measure.observation import Observations
from perf_diagnostics.records import Run
from perf_diagnostics.store.run_folder import RunFolder

if TYPE_CHECKING:
    from perf_diagnostics.diagnose.finding import Diagnosis


#: Where a loop that cannot be watched is marked.
_MARKS = "perf_diagnostics.integrations.OwnLoop, docs/own-loop.md"


class Recorded(Protocol):
    """A training that was recorded."""

    @property
    def run(self) -> Run | None:
        """The records; None where no step was seen."""

    @property
    def broke_off(self) -> bool:
        """Whether an error ended the training."""

    @property
    def folder(self) -> RunFolder | None:
        """Where they lie; None where they could not be written."""


def say(text: str) -> None:
    """Print a line that is ours, after what the training has printed."""
    print_error(f"perf-diagnostics: {text}")


def tell(recording: Recorded, observations: Observations, notes: Iterable[str] = ()) -> Diagnosis | None:
    """Print the run and the verdict, and what the run's notes say; the diagnosis, where there is one to say more of."""
    told, diagnosis = "no verdict could be made", None
    with observations.guard("verdict"):
        told, diagnosis = _verdict(recording, observations)
    failed = () if diagnosis is None else (rule.words for rule in diagnosis.unchecked if rule.failed)
    for line in (told, *notes, *failed):
        say(line)
    return diagnosis


def _verdict(recording: Recorded, observations: Observations) -> tuple[str, Diagnosis | None]:
    from perf_diagnostics.diagnose.engine import diagnose
    from perf_diagnostics.diagnose.verdict_place import verdict_words

    run = recording.run
    if run is None:
        gaps = sorted(observations.gaps, key=lambda gap: gap.signal != "steps")
        why = next((f": {gap.why}" for gap in gaps), "")
        by_hand = "" if recording.broke_off else f"; steps can be marked by hand, too ({_MARKS})"
        return f"no training step was measured{why}{by_hand}", None
    where = "not written" if recording.folder is None else told_path(recording.folder.path)
    diagnosis = diagnose(run, traces=None if recording.folder is None else recording.folder.traces())
    told = f"{'no verdict: ' if diagnosis.verdict is None else ''}{verdict_words(diagnosis)}"
    return f"{where}: {' '.join(told.split())}", diagnosis
