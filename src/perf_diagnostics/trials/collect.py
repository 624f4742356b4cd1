"""Puts one result together from what a trial wrote, how its process ended, and what was sampled around it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from datetime import UTC, datetime

from perf_diagnostics.errors import RecordError
from perf_diagnostics.measure.memory import memory_limit_bytes
from perf_diagnostics.measure.observation import Observations, Readings
from perf_diagnostics.measure.power import energy
from perf_diagnostics.records import Gap, Json, Outcome, Quantity, Series, Trial, TrialResult
from perf_diagnostics.store import codec
from perf_diagnostics.store.files import read_json
from perf_diagnostics.store.trial_folder import TrialFolder
from perf_diagnostics.trials.outcome import killed
from perf_diagnostics.trials.supervise import Ending


@dataclass(frozen=True, kw_only=True)
class Watched:
    """What the supervising process saw of a trial.

    ``oom_kills`` counts the processes that the kernel's out-of-memory killer took in our cgroup meanwhile (None: the
    kernel does not say); ``began_ns`` is on the clock that the readings are stamped with.
    """

    ending: Ending
    readings: Readings
    observations: Observations
    began_ns: int
    started_at: datetime
    oom_kills: int | None

    @property
    def series(self) -> tuple[Series, ...]:
        """The sampled series, their times counted from the trial's start."""
        return tuple(dataclasses.replace(one, times_ns=one.times_ns - self.began_ns) for one in self.readings[0])


def collect(trial: Trial, folder: TrialFolder, watched: Watched) -> TrialResult:
    """One result out of what the trial's process wrote, how it ended, and what was sampled around it."""
    ending = watched.ending
    measured = _measured(folder, watched.observations)
    steps, step_gaps = folder.read_steps()
    if measured is None:
        outcome, reason = _died(watched)
        known = TrialResult(
            trial=trial, outcome=outcome, reason=_with_last_words(reason, folder), steps=steps, steady=False
        )
        window_ns, window_steps = None, 0
    else:
        # Without steps the outcome says why; with some, a part that cannot be read is a gap.
        known = dataclasses.replace(
            measured.result, trial=trial, steps=steps, gaps=(*measured.result.gaps, *(step_gaps if steps else ()))
        )
        window_ns, window_steps = measured.window_ns, measured.window_steps
    if ending.timed_out:
        reason = "ended by its deadline" + (" and killed, for it did not answer" if ending.killed else "")
        known = dataclasses.replace(known, outcome=Outcome.TIMEOUT, reason=reason)
    return with_readings(known, watched, window_ns, window_steps)


def with_readings(
    result: TrialResult, watched: Watched, window_ns: tuple[int, int] | None, window_steps: int
) -> TrialResult:
    """A result with what was sampled around it: series, peaks, and energy over the window of its steady steps."""
    series, quantities = watched.readings
    energies: tuple[Quantity, ...] = ()
    if window_ns is not None and result.trial.settings.device != "cpu":
        found = energy(series, window_start_ns=window_ns[0], window_end_ns=window_ns[1], steps=window_steps)
        if isinstance(found, Gap):
            watched.observations.note(found.signal, found.why)
        else:
            energies = found.quantities()
    return dataclasses.replace(
        result,
        stop_reason=result.stop_reason or str(result.outcome),
        series=watched.series,
        quantities=(*result.quantities, *quantities, *energies),
        gaps=(*result.gaps, *watched.observations.gaps),
        started_at=_iso(watched.started_at),
        finished_at=_iso(datetime.now(UTC)),
    )


@dataclass(frozen=True)
class _FromTheTrial:
    result: TrialResult
    window_ns: tuple[int, int] | None
    window_steps: int


def _measured(folder: TrialFolder, observations: Observations) -> _FromTheTrial | None:
    """What the trial's process wrote at its end, or None if it did not come to one."""
    path = folder.path / "measured.json"
    if not path.exists():
        return None
    try:
        fields = codec.open_document("measured", read_json(path), where=str(path))
        result = codec.decode(TrialResult, dict(fields.values), where=str(path))
    except RecordError as error:
        observations.note("measured", str(error))
        return None
    window: Json = fields.values.get("window_ns")
    if not isinstance(window, list) or len(window) != 2:
        return _FromTheTrial(result, None, 0)
    begin, end = (int(str(value)) for value in window)
    return _FromTheTrial(result, (begin, end), fields.whole("window_steps"))


def _died(watched: Watched) -> tuple[Outcome, str]:
    """The outcome of a process that wrote no result."""
    code = watched.ending.exit_code
    if code >= 0:
        return Outcome.CRASHED, f"exited with code {code} without a result"
    memory = next((s for s in watched.series if s.name == "host_memory" and s.values.size), None)
    share = None if memory is None else float(memory.values.max()) / memory_limit_bytes()
    return killed(-code, oom_kills=watched.oom_kills, memory_share=share)


def _with_last_words(reason: str, folder: TrialFolder) -> str:
    """The reason, with the last line the trial printed, which is where an interpreter says what killed it."""
    try:
        lines = (folder.path / "output.txt").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return reason
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return f"{reason}; its last line was: {last[:200]}" if last else reason


def _iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds")
