"""Doses in real trainings: each fault at half, twice and four times its rule's limit, by the control's own step.

How much of a fault makes a share of the step is worked out from what the control measured just before; what it became
is measured by a clock afterwards, and a dose that missed by half says nothing about the rule. Padding, hand-over and
recomputation have no setting that doses them: see ``dosed.py`` for these.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules import RULES
from perf_diagnostics.records import Phase
from tests.planted.bases import WIDE, faulty, healthy
from tests.planted.bench import Workbench
from tests.planted.doses import MULTIPLES
from tests.planted.plant import Arm, Seen, Trials
from tests.planted.training import _MANY

#: A dose may miss what was aimed at by the first factor towards the limit, and by the second away from it.
NEAR, FAR = 1.5, 3.0

_ORDER = (Severity.INFO, Severity.WARNING, Severity.CRITICAL)


@dataclass(frozen=True)
class Tried:
    """One dose of a series under one seed: what was aimed at, what a clock found, and whether a code warned."""

    multiple: float
    aimed: float
    reached: float
    fired: bool
    bit: bool


@dataclass(frozen=True, kw_only=True)
class Series:
    """A fault that can be dosed: its control, the arm for a dose, and the dose as a clock finds it.

    ``arm`` is given the dose, what the control brought, and a way to look at another arm first (how long a kilobyte
    takes to be written). ``codes`` are alternatives; the limit is that of the first.
    """

    name: str
    codes: tuple[str, ...]
    limit: str
    control: Arm
    arm: Callable[[float, Seen, Callable[[Arm], Seen]], Arm]
    reached: Callable[[Seen, Seen], float]
    severity: Severity = Severity.WARNING
    multiples: tuple[float, ...] = MULTIPLES

    @property
    def threshold(self) -> float:
        rule = next(rule for rule in RULES if rule.code == self.codes[0])
        return float(getattr(rule, self.limit))

    def fires(self, seen: Seen) -> bool:
        least = _ORDER.index(self.severity)
        return any(f.code in self.codes and _ORDER.index(f.severity) >= least for f in seen.diagnosis.findings)


def tried(series: Series, bench: Workbench, seed: int) -> Iterator[Tried]:
    """Run a series under one seed: the control first, then its doses in an order of their own."""
    turn = f"dose {series.name}"
    control = bench.see(series.control, seed, turn=turn)
    doses = [multiple for multiple in series.multiples if multiple > 0]
    for multiple in [0.0, *np.random.default_rng(seed).permutation(doses).tolist()]:
        if multiple not in series.multiples:
            continue
        aimed = multiple * series.threshold
        seen = control
        if multiple:
            arm = series.arm(aimed, control, lambda other: bench.see(other, seed, turn=turn))
            seen = bench.see(arm, seed, turn=f"{turn} {multiple:g}")
        reached = series.reached(seen, control)
        bit = _bit(multiple, aimed, reached, series.threshold)
        yield Tried(multiple, aimed, reached, series.fires(seen), bit)


def _bit(multiple: float, aimed: float, reached: float, limit: float) -> bool:
    """Whether what was reached is still the dose that was meant: no or half of it, or twice and more."""
    if not multiple:
        return reached < limit / 2 * NEAR
    return aimed / FAR <= reached <= aimed * NEAR if multiple < 1 else aimed / NEAR <= reached <= aimed * FAR


# -- how much of a fault makes a dose


def share_of(seen: Seen, phase: Phase) -> float:
    """A phase's share of the steady steps."""
    assert seen.run is not None
    tables = [result.steps[0].steady for result in seen.run.completed]
    spent = sum(float(np.sum(times)) for table in tables if (times := table.phase_ns(phase)) is not None)
    return spent / sum(float(table.wall_ns.sum()) for table in tables)


def more_s(share: float, control: Seen, phase: Phase) -> float:
    """What a step has to take longer in a phase for that to become this share; at least a microsecond."""
    before = share_of(control, phase) * control.step_s
    return max(1e-6, (share * control.step_s - before) / (1 - share))


def _nap_s() -> float:
    """How much longer than it was asked to a nap takes here."""
    began = time.perf_counter()
    for _ in range(200):
        time.sleep(1e-6)
    return (time.perf_counter() - began) / 200


def _in(phase: Phase) -> Callable[[Seen, Seen], float]:
    return lambda seen, control: share_of(seen, phase)


def _beyond(phase: Phase) -> Callable[[Seen, Seen], float]:
    """The time of a phase beyond the control's, over all time."""

    def share(seen: Seen, control: Seen) -> float:
        more = share_of(seen, phase) * seen.step_s - share_of(control, phase) * control.step_s
        return max(0.0, more / seen.step_s)

    return share


_BATCH = 8


def _small(**faults: float) -> Trials:
    """Few samples a batch: a nap takes some 60 µs whatever it was asked for."""
    given = faulty(**WIDE, steps=120, **faults) if faults else healthy(**WIDE, steps=120)
    return Trials(workload=given.workload, options=given.options, batch_sizes=(_BATCH,), settings=given.settings,
                  steps=given.steps)  # fmt: skip


def _sleeping(share: float, control: Seen, look: Callable[[Arm], Seen]) -> Arm:
    nap_s = more_s(share, control, Phase.DATA_WAIT) / _BATCH - _nap_s()
    return _small(sleep_per_item_ms=max(0.0, nap_s) * 1e3)


def _burning(share: float, control: Seen, look: Callable[[Arm], Seen]) -> Arm:
    return _small(burn_per_item_ms=more_s(share, control, Phase.DATA_WAIT) / _BATCH * 1e3)


def _preparing(share: float, control: Seen, look: Callable[[Arm], Seen]) -> Arm:
    return faulty(preprocess_ms=more_s(share, control, Phase.OTHER) * 1e3)


def _writing(share: float, control: Seen, look: Callable[[Arm], Seen]) -> Arm:
    """By what 512 KB and 4 MB take."""
    took = [share_of(seen, Phase.OTHER) * seen.step_s for kb in (512.0, 4096.0)
            if (seen := look(faulty(**WIDE, fsync_kb=kb, steps=60)))]  # fmt: skip
    a_kb = max(1e-9, (took[1] - took[0]) / (4096 - 512))
    at_all = took[0] - 512 * a_kb
    want = share / (1 - share) * (control.step_s * (1 - share_of(control, Phase.OTHER)))
    return faulty(**WIDE, fsync_kb=max(1.0, (want - at_all) / a_kb))


def _collecting(share: float, control: Seen, look: Callable[[Arm], Seen]) -> Arm:
    """By what a collection of 1 and of 100,000 containers takes."""
    probes = [look(faulty(**WIDE, collect_every=3, heap_objects=count, steps=60)) for count in (1, 100_000)]
    base, more = (probe.column_s("gc_ns") / probe.steps for probe in probes)
    each = max(1e-12, (more - base) / 100_000)
    want = share / (1 - share) * control.step_s
    return faulty(**WIDE, collect_every=3, heap_objects=max(1, round((want - base) / each)))


def _stalling(share: float, control: Seen, look: Callable[[Arm], Seen]) -> Arm:
    return faulty(stall_every=20, stall_ms=20 * share / (1 - share) * control.step_s * 1e3, steps=240)


def _saving(share: float, control: Seen, look: Callable[[Arm], Seen]) -> Arm:
    """By what the writing takes that the model needs at all."""
    probe = look(faulty(save_every=20, save_ms=0.0, steps=120))
    writing = max(0.0, (share_of(probe, Phase.OTHER) * probe.step_s - share_of(control, Phase.OTHER) * control.step_s))
    return faulty(
        save_every=20, save_ms=max(0.0, 20 * (share / (1 - share) * control.step_s - writing)) * 1e3, steps=240
    )


def _drifting(rise: float, control: Seen, look: Callable[[Arm], Seen]) -> Arm:
    return faulty(drift_ms=rise * control.step_s / (600 * max(0.1, 1 - rise / 2)) * 1e3, steps=600)


def _rise(seen: Seen, control: Seen) -> float:
    """The last tenth of the steps over the first, by their medians and a line between the tenths' middles."""
    assert seen.run is not None
    wall = np.asarray(seen.run.completed[0].steps[0].steady.wall_ns, dtype=float)
    first, last = float(np.median(wall[: wall.size // 10])), float(np.median(wall[-(wall.size // 10) :]))
    return (last - first) / 0.9 / float(np.median(wall))


def _leaking(rise: float, control: Seen, look: Callable[[Arm], Seen]) -> Arm:
    """By what the graph of a kept loss holds already."""
    probe = look(_tiny(leak_kb=1.0))
    graph_kb = float(_memory(probe)[-1] - _memory(probe)[0]) / probe.steps / 1024
    return _tiny(leak_kb=max(1.0, rise * _limit_bytes(control) / MEMORY_SHARE / _TINY_STEPS / 1024 - graph_kb))


_TINY_STEPS = 240


def _tiny(**faults: float) -> Trials:
    """Two samples a batch, so that the graph of a loss is small."""
    given = faulty(**WIDE, **faults) if faults else healthy(**WIDE)
    return Trials(workload=given.workload, options=given.options, batch_sizes=(2,), settings=given.settings,
                  steps=_TINY_STEPS)  # fmt: skip


MEMORY_SHARE = 0.05


def _limit_bytes(control: Seen) -> float:
    """The rise from which MEM004 speaks in so few steps: 5 % of the memory, 64 MB at least."""
    return max(MEMORY_SHARE * float(np.median(_memory(control))), 64e6)


def _memory(seen: Seen) -> np.ndarray:
    assert seen.run is not None
    found = np.asarray(seen.run.completed[0].steps[0].steady.columns["host_rss_bytes"], dtype=float)
    return found[np.isfinite(found)]


def _memory_rise(seen: Seen, control: Seen) -> float:
    values = _memory(seen)
    return float(values[-1] - values[0]) / _limit_bytes(control) * MEMORY_SHARE


def _many(batch: int) -> Trials:
    return Trials(options=_MANY, settings={"optimizer_implementation": "single", "threads": 1}, batch_sizes=(batch,))


def _updating(share: float, control: Seen, look: Callable[[Arm], Seen]) -> Arm:
    """The batch beside which an update of 162 small tensors takes this share, by a line through two batches."""
    small, large = look(_many(8)), look(_many(256))
    update = share_of(small, Phase.OPTIMIZER) * small.step_s
    rest = [seen.step_s * (1 - share_of(seen, Phase.OPTIMIZER)) for seen in (small, large)]
    a_sample = max(1e-9, (rest[1] - rest[0]) / (256 - 8))
    batch = 8 + (update * (1 / share - 1) - rest[0]) / a_sample
    return _many(int(min(1024, max(1, round(batch)))))


REAL_DOSES: tuple[Series, ...] = (
    Series(
        name="sleeping loader",
        codes=("INP001",),
        limit="warn_share",
        control=_small(),
        arm=_sleeping,
        reached=_in(Phase.DATA_WAIT),
    ),
    Series(
        name="burning loader",
        codes=("INP001",),
        limit="warn_share",
        control=_small(),
        arm=_burning,
        reached=_in(Phase.DATA_WAIT),
    ),
    Series(
        name="work in the loop",
        codes=("HST006", "INP007"),
        limit="warn_share",
        control=healthy(),
        arm=_preparing,
        reached=_in(Phase.OTHER),
    ),
    Series(
        name="write each step",
        codes=("HST006",),
        limit="warn_share",
        control=healthy(**WIDE),
        arm=_writing,
        reached=_in(Phase.OTHER),
    ),
    Series(
        name="collections",
        codes=("HST005",),
        limit="warn_share",
        control=healthy(**WIDE),
        arm=_collecting,
        reached=lambda seen, control: seen.column_s("gc_ns") / (seen.step_s * seen.steps),
    ),
    Series(
        name="stalls",
        codes=("STB004", "STB002"),
        limit="lost_share",
        control=healthy(steps=240),
        arm=_stalling,
        reached=_beyond(Phase.OTHER),
    ),
    Series(
        name="saving",
        codes=("STB004", "STB002"),
        limit="lost_share",
        control=healthy(steps=240),
        arm=_saving,
        reached=_beyond(Phase.OTHER),
    ),
    Series(name="drift", codes=("EXP004",), limit="rise", control=healthy(steps=600), arm=_drifting, reached=_rise),
    Series(
        name="leak", codes=("MEM004",), limit="least_host_rise", control=_tiny(), arm=_leaking, reached=_memory_rise
    ),
    Series(
        name="many small updates",
        codes=("OPT001",),
        limit="warn_share",
        control=_many(1024),
        arm=_updating,
        reached=_in(Phase.OPTIMIZER),
        multiples=(0.5, 2.0),
    ),
)
