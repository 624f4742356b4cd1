"""Puts one result together from what a trial wrote, how its process ended, and what was sampled around it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from perf_diagnostics.errors import RecordError
from perf_diagnostics.measure.boards.power import energy, idle_power
from perf_diagnostics.measure.host.memory import memory_limit_bytes
from perf_diagnostics.measure.observation import Observations, Readings
from perf_diagnostics.records import Gap, Json, Outcome, Quantity, Series, StepTable, Trial, TrialResult
from perf_diagnostics.store.files import codec
from perf_diagnostics.store.files.documents import open_document
from perf_diagnostics.store.files.whole_files import read_json
from perf_diagnostics.store.trial_folder import TrialFolder
from perf_diagnostics.trials.launch.supervise import Ending
from perf_diagnostics.trials.outcome import killed

#: With this Python ends after an exception, which it prints below this line.
_EXCEPTION, _TRACEBACK = 1, "Traceback (most recent call last):"

#: Sampled peaks, and the series that they are the largest value of.
_PEAK_OF = {"host_tree_memory_peak": "host_memory", "device_memory_process_peak": "gpu_memory_process"}


@dataclass(frozen=True)
class Windows:
    """Stretches of a trial on the host clock, in ns: its steady steps and how many they are, and its device's rest."""

    steady_ns: tuple[int, int] | None = None
    steps: int = 0
    idle_ns: tuple[int, int] | None = None


@dataclass(frozen=True, kw_only=True)
class Watched:
    """What the supervising process saw of a trial.

    ``oom_kills`` counts the processes that the kernel's out-of-memory killer took in our cgroup meanwhile (None: the
    kernel does not say); ``began_ns`` is on the clock that the readings are stamped with. ``devices`` are those the
    trial ran on, as an environment records them: its own process has asked no driver.
    """

    ending: Ending
    readings: Readings
    observations: Observations
    began_ns: int
    started_at: datetime
    oom_kills: int | None
    devices: tuple[Mapping[str, Json], ...] = ()

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
        raised = watched.ending.exit_code == _EXCEPTION
        known = TrialResult(
            trial=trial,
            outcome=outcome,
            reason=_with_last_words(reason, folder, raised=raised),
            steps=steps,
            steady=False,
        )
        windows = Windows()
    else:
        # Without steps the outcome says why; with some, a part that cannot be read is a gap.
        known = dataclasses.replace(
            measured.result, trial=trial, steps=steps, gaps=(*measured.result.gaps, *(step_gaps if steps else ()))
        )
        windows = measured.windows
    if ending.timed_out and known.outcome is Outcome.COMPLETED:
        # Every timed step had run; what was cut off looked at the trial after them.
        watched.observations.note("afterwards", "the trial's time was over before the passes after its steps were")
    elif ending.timed_out:
        reason = "ended by its deadline" + (" and killed, for it did not answer" if ending.killed else "")
        known = dataclasses.replace(known, outcome=Outcome.TIMEOUT, reason=reason)
    return with_readings(known, watched, windows)


def with_readings(result: TrialResult, watched: Watched, windows: Windows) -> TrialResult:
    """A result with what was sampled around it: series, peaks, and energy over the window of its steady steps."""
    quantities = _peaks_of_the_steps(watched, windows)
    energies = () if result.trial.settings.device == "cpu" else tuple(_energies(watched, windows))
    return dataclasses.replace(
        result,
        stop_reason=result.stop_reason or str(result.outcome),
        environment=dataclasses.replace(result.environment, devices=watched.devices or result.environment.devices),
        series=watched.series,
        quantities=(*result.quantities, *quantities, *energies, *_began(result, watched, windows)),
        gaps=(*result.gaps, *watched.observations.gaps),
        started_at=_iso(watched.started_at),
        finished_at=_iso(datetime.now(UTC)),
    )


def _peaks_of_the_steps(watched: Watched, windows: Windows) -> tuple[Quantity, ...]:
    """The sampled numbers, with peaks taken until the last step ended: passes after it hold memory of their own."""
    series, quantities = watched.readings
    if windows.steady_ns is None:
        return quantities
    last_ns, found = windows.steady_ns[1], {one.name: one for one in series}
    return tuple(_peak_until(quantity, found.get(_PEAK_OF.get(quantity.name, "")), last_ns) for quantity in quantities)


def _peak_until(quantity: Quantity, series: Series | None, last_ns: int) -> Quantity:
    if series is None:
        return quantity
    meanwhile = series.values[series.times_ns <= last_ns]
    return dataclasses.replace(quantity, value=float(meanwhile.max())) if meanwhile.size else quantity


def _began(result: TrialResult, watched: Watched, windows: Windows) -> tuple[Quantity, ...]:
    """When the first steady step began on the clock of the series, so that samples and steps can be laid together.

    The window begins with the first measured step; steps found to be warm-up afterwards lie before the steady ones.
    """
    table = result.steps[0] if result.steps else StepTable.empty()
    starts, steady = table.get("start_ns"), np.flatnonzero(~table.columns["warmup"])
    if windows.steady_ns is None or starts is None or not steady.size or not 0 < windows.steps <= len(table):
        return ()
    first_ns = windows.steady_ns[0] - watched.began_ns
    began_ns = first_ns + int(starts[steady[0]] - starts[len(table) - windows.steps])
    return (Quantity("steps_began_s", began_ns / 1e9, "s", "perf_counter_ns"),)


def _energies(watched: Watched, windows: Windows) -> Iterator[Quantity]:
    """The device's energy over its steady steps, gross and net of its idle draw; a gap for what cannot be had."""
    series, idle_w = watched.readings[0], None
    if windows.idle_ns is not None:
        begin, end = windows.idle_ns
        idle = idle_power(series, window_start_ns=begin, window_end_ns=end)
        if isinstance(idle, Gap):
            watched.observations.note(idle.signal, idle.why)
        else:
            idle_w = idle
            yield Quantity("device_idle_power", sum(idle.values()), "W", f"NVML ({', '.join(idle)})")
    if windows.steady_ns is None:
        return
    begin, end = windows.steady_ns
    found = energy(series, window_start_ns=begin, window_end_ns=end, steps=windows.steps, idle_power_w=idle_w)
    if isinstance(found, Gap):
        watched.observations.note(found.signal, found.why)
        return
    if found.cross_check is not None:
        watched.observations.note(found.cross_check.signal, found.cross_check.why)
    yield from found.quantities()


@dataclass(frozen=True)
class _FromTheTrial:
    result: TrialResult
    windows: Windows


def _measured(folder: TrialFolder, observations: Observations) -> _FromTheTrial | None:
    """What the trial's process wrote at its end, or None if it did not come to one."""
    path = folder.path / "measured.json"
    if not path.exists():
        return None
    try:
        fields = open_document("measured", read_json(path), where=str(path))
        result = codec.decode(TrialResult, dict(fields.values), where=str(path))
    except RecordError as error:
        observations.note("measured", str(error))
        return None
    steady_ns, idle_ns = (_window(fields.values.get(name)) for name in ("window_ns", "idle_window_ns"))
    return _FromTheTrial(result, Windows(steady_ns, fields.whole("window_steps") if steady_ns else 0, idle_ns))


def _window(found: Json) -> tuple[int, int] | None:
    if not isinstance(found, list) or len(found) != 2:
        return None
    begin, end = (int(str(value)) for value in found)
    return begin, end


def _died(watched: Watched) -> tuple[Outcome, str]:
    """The outcome of a process that wrote no result."""
    code = watched.ending.exit_code
    if code >= 0:
        return Outcome.CRASHED, f"exited with code {code} without a result"
    memory = next((s for s in watched.series if s.name == "host_memory" and s.values.size), None)
    share = None if memory is None else float(memory.values.max()) / memory_limit_bytes()
    return killed(-code, oom_kills=watched.oom_kills, memory_share=share)


def _with_last_words(reason: str, folder: TrialFolder, *, raised: bool) -> str:
    """The reason, with what the trial printed last: that is where an interpreter says what killed it."""
    try:
        lines = (folder.path / "output.txt").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return reason
    if raised and (exception := _exception_in(lines)):
        return f"{reason}; it raised {exception[:200]}"
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return f"{reason}; its last line was: {last[:200]}" if last else reason


def _exception_in(lines: Sequence[str]) -> str:
    """The line below the last traceback that names the exception, of whose message others may follow."""
    begins = [number for number, line in enumerate(lines) if line == _TRACEBACK]
    after = lines[begins[-1] + 1 :] if begins else ()
    return next((line for line in after if line.strip() and not line[0].isspace()), "")


def _iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds")
