"""Has a sweep's configurations counted, each in a process of its own after its trial, and adds what was found.

Nothing runs beside a timed trial: a count begins when one has ended and is over before the next one begins.
"""

from __future__ import annotations

import dataclasses
import json
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perf_diagnostics.errors import RecordError
from perf_diagnostics.measure.observation import Observations
from perf_diagnostics.records import Gap, Outcome, Quantity, Settings, Trial, TrialResult
from perf_diagnostics.store.files import codec
from perf_diagnostics.store.files.whole_files import read_json
from perf_diagnostics.trials.launch.launcher import Launcher, Request
from perf_diagnostics.trials.launch.supervise import signal_group

#: What all counts of a sweep may take of its time budget, or of the time its trials have taken where it has none.
SHARE = 0.05
#: Without a budget the first count of a group may take so long, in s.
_PATIENCE_S = 60.0
_LEAST_S = 1.0
_WAIT_S = 0.1

#: What the counting process writes into the trial's folder; read and removed at once.
FILE = "work.json"
SIGNAL = "flops_per_step"
#: Counted and expected operations that differ by more are worth a remark (measurement design).
SIX_N_TOLERANCE = 0.10


@dataclass(frozen=True, kw_only=True)
class Work:
    """What a number of batches ask of a machine, forward, backward and recomputation, and one update beside them.

    ``flops`` are those of matrix products, convolutions and attention (the formulas of ``torch.utils.flop_counter``: a
    multiplication and an addition count two); ``recomputed_flops`` those of them that activation checkpointing does
    twice; ``attention_flops`` those of products of two activations. ``other_operations`` counts one for each element
    that any other arithmetic reads or writes. ``six_n_flops`` is what 6·N·tokens says, None where it does not apply.
    ``uncounted`` names operators that compute and have no formula: with any, ``flops`` is a lower bound.
    """

    batches: int
    shapes: int
    samples: int
    tokens: int | None
    flops: float
    recomputed_flops: float
    attention_flops: float
    other_operations: float
    traffic_bytes: float
    update_flops: float
    update_bytes: float | None
    six_n_flops: float | None
    method: str
    uncounted: tuple[str, ...] = ()


def counting_settings(settings: Settings) -> Settings:
    """The settings under which a configuration is counted: those that change what is computed, on the CPU.

    Equal for configurations whose steps do the same work. Of the precisions only the size of a number counts.
    """
    return Settings(
        batch_size=settings.batch_size,
        precision="bfloat16" if settings.precision in ("bfloat16", "float16") else "float32",
        sequence_length=settings.sequence_length,
        num_workers=0,
        optimizer_implementation=settings.optimizer_implementation,
        gradient_checkpointing=settings.gradient_checkpointing,
        length_bucketing=settings.length_bucketing,
        channels_last=settings.channels_last,
    )


@dataclass
class Counts:
    """The counts of one sweep: each configuration once, as far as :data:`SHARE` of the time goes.

    Args:
        launch: how processes are started.
        budget_s: the sweep's time budget, None for none.
        interrupted: asked ten times a second; a count under way is then given up.
    """

    launch: Launcher
    budget_s: float | None = None
    interrupted: Callable[[], bool] = lambda: False
    clock: Callable[[], float] = time.monotonic
    spent_s: float = field(default=0.0, init=False)
    _began_s: float = field(default=0.0, init=False)
    _found: dict[str, Work | str] = field(default_factory=dict, init=False)
    _by_group: dict[str, Work | str] = field(default_factory=dict, init=False)
    _last_s: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self._began_s = self.clock()

    def added_to(self, result: TrialResult, directory: Path) -> TrialResult:
        """The result with what its configuration computes and moves, or with the reason why that is not known."""
        if result.outcome is not Outcome.COMPLETED or result.trial.settings.ceiling is not None:
            return result  # a ceiling experiment leaves out a part of the step, and is held against the whole one
        trial = _counted_trial(result.trial)
        key, group = _key(trial), _key(_at_batch_one(trial))
        found = self._found.get(key)
        if found is None and not (isinstance(self._by_group.get(group), str)):
            limit_s = self._limit_s(first=group not in self._by_group)
            if limit_s is None:
                if group not in self._by_group:
                    found = f"it would take more than {SHARE:.0%} of the time budget"
            else:
                found = self._found[key] = self._count(trial, directory, limit_s)
                self._by_group.setdefault(group, found)
        exact = isinstance(found, Work)
        work = found if found is not None else self._by_group[group]
        if isinstance(work, str):
            return dataclasses.replace(result, gaps=(*result.gaps, Gap(SIGNAL, work)))
        return with_work(result, work, exact=exact)

    def _limit_s(self, *, first: bool) -> float | None:
        """Seconds the next count may take; None if it is not to begin."""
        allowed_s = SHARE * (self.clock() - self._began_s if self.budget_s is None else self.budget_s)
        if self.budget_s is None and first:
            return _PATIENCE_S
        left_s = allowed_s - self.spent_s
        return left_s if left_s >= max(_LEAST_S, 0.0 if first else 1.5 * self._last_s) else None

    def _count(self, trial: Trial, directory: Path, limit_s: float) -> Work | str:
        began_s = self.clock()
        path = directory / FILE
        observations = Observations()
        work: Work | str = "the counting process ended without a result"
        with observations.guard(SIGNAL):
            process = self.launch.start(Request(codec.encode(trial), str(directory), limit_s, task="count"))
            code: int | None = None
            while code is None and self.clock() - began_s < limit_s and not self.interrupted():
                code = process.wait(_WAIT_S)
            if code is None:
                work = f"counting was ended after {self.clock() - began_s:.0f} s: {SHARE:.0%} of the time were over"
                signal_group(process.pid, signal.SIGKILL)
                process.wait(10.0)
            elif path.exists():
                work = _read(path)
        path.unlink(missing_ok=True)
        self._last_s = self.clock() - began_s
        self.spent_s += self._last_s
        return observations.gaps[0].why if observations.gaps else work


def with_work(result: TrialResult, work: Work, *, exact: bool) -> TrialResult:
    """The result with the work of its mean step.

    A trial's steps hold other batches than those that were counted, so that the counts are carried over by tokens
    (padding included), or by samples where there are none. ``exact`` is false where another batch size was counted.
    """
    steps = result.steps[0].steady if result.steps else None
    if steps is None or not len(steps):
        return result
    if work.uncounted and not work.flops:
        why = f"none of its operators has a formula ({', '.join(work.uncounted)})"
        return dataclasses.replace(result, gaps=(*result.gaps, Gap(SIGNAL, why)))
    samples = float(steps.samples.mean())
    in_tokens = steps.get("tokens") if work.tokens else None
    tokens = None if in_tokens is None else float(in_tokens.mean())
    scale = samples / work.samples if tokens is None or not work.tokens else tokens / work.tokens
    source = f"{work.method}, {work.batches} batches of {work.shapes} shapes"
    if not exact:
        source = f"{source} of another batch size"
    flops = work.flops * scale + work.update_flops
    numbers: list[tuple[str, float | None, str]] = [
        ("flops_per_step", flops, "1"),
        ("flops_per_sample", flops / samples, "1"),
        ("flops_per_token", None if not tokens else flops / tokens, "1"),
        ("flops_matmul_share", _share(work.flops, work.flops + work.other_operations), "1"),
    ]
    if work.update_bytes is not None:
        numbers.append(("traffic_bytes_per_step", work.traffic_bytes * scale + work.update_bytes, "bytes"))
    return dataclasses.replace(
        result,
        quantities=(
            *result.quantities,
            *(Quantity(n, v, unit, source, estimated=not exact) for n, v, unit in numbers if v is not None),
        ),
        gaps=(*result.gaps, *_gaps(work)),
        facts={**result.facts, "recomputed_flops_share": _share(work.recomputed_flops, work.flops) or 0.0},
    )


def _gaps(work: Work) -> tuple[Gap, ...]:
    found: list[Gap] = []
    if work.update_bytes is None:
        found.append(Gap("traffic_bytes_per_step", "the optimizer cannot be run on tensors without memory"))
    if work.uncounted:
        names = ", ".join(work.uncounted)
        found.append(Gap("flops_uncounted", f"no formula for {names}: the operations are a lower bound"))
    why = six_n_disagrees(work)
    if why:
        found.append(Gap("flops_6n", why))
    return tuple(found)


def six_n_disagrees(work: Work) -> str:
    """Why 6·N·tokens does not confirm the count, or nothing. Attention's own products may count or not."""
    if work.six_n_flops is None or not work.six_n_flops:
        return ""
    once = work.flops - work.recomputed_flops
    # The share of attention in what is recomputed is not known; at most all of it is.
    low, high = (once - work.attention_flops) / work.six_n_flops, once / work.six_n_flops
    if low <= 1 + SIX_N_TOLERANCE and high >= 1 - SIX_N_TOLERANCE:
        return ""
    return (
        f"the operators of a step count {high:.2f} times what 6 x parameters x tokens says; right for a model whose "
        "parameters do not all meet every token (mixture of experts, pooled heads), else one of the two is wrong"
    )


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _read(path: Path) -> Work | str:
    body = read_json(path)
    if not isinstance(body, dict) or not isinstance(body.get("work"), dict):
        return str(body.get("why")) if isinstance(body, dict) else "the count cannot be read"
    fields: dict[str, Any] = dict(body["work"])  # type: ignore[arg-type]
    fields["uncounted"] = tuple(fields.get("uncounted") or ())
    try:
        return Work(**fields)
    except TypeError as error:
        raise RecordError(f"{path} holds no count: {error}.") from error


def _counted_trial(trial: Trial) -> Trial:
    """The trial that is counted for this one: the same work, whatever the device, the repeat and the length."""
    return Trial(
        workload=trial.workload,
        settings=counting_settings(trial.settings),
        options=trial.options,
        seed=trial.seed,
    )


def _at_batch_one(trial: Trial) -> Trial:
    return dataclasses.replace(trial, settings=trial.settings.replace(batch_size=1))


def _key(trial: Trial) -> str:
    return json.dumps(trial.canonical(), sort_keys=True)
