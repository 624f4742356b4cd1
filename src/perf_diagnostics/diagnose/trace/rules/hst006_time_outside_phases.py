"""HST006 for traces: operators that belong neither to forward and backward nor to the update."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from perf_diagnostics.diagnose.code.slow_idioms import ONE_NUMBER_A_ROW
from perf_diagnostics.diagnose.facts.facts import Interval, NotMeasured
from perf_diagnostics.diagnose.finding import Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.rules.hst006_time_outside_phases import TimeOutsidePhases
from perf_diagnostics.diagnose.trace.compiler import Compiler
from perf_diagnostics.diagnose.trace.events import Events
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.intervals import Times
from perf_diagnostics.diagnose.trace.kernels import launched_in
from perf_diagnostics.diagnose.trace.phases import Phases
from perf_diagnostics.diagnose.trace.python_frames import in_functions
from perf_diagnostics.diagnose.trace.rule import AT_ONCE, share_of_work
from perf_diagnostics.diagnose.wording import listing, mean_count, percent
from perf_diagnostics.records import Int64

#: Operators that are named.
_MOST_NAMED = 4

#: Up to so many ns between two of them the interpreter runs, on its way to the next (as HST011 takes pauses).
_PAUSE_NS = 1_000_000

#: torch.unique(dim=…), forward of all.
_UNIQUE_ROWS = "aten::unique_dim"
_UNIQUE = Remedy(f"Where torch.unique looks for different rows (dim=0): {ONE_NUMBER_A_ROW}.")

#: ``state_dict()`` calls it for each tensor it gives; from so many calls for each parameter it is called again and
#: again, as in a loop over its names (judgement: once for a model and once for its average is two).
_DETACH, _AGAIN = "aten::detach", 6.0

#: So many tensors are detached one after the other, at least, where a state is asked for (judgement).
_TOGETHER = 3.0

#: What averages of parameters by their names are made of.
_OF_AVERAGES = frozenset(f"aten::{name}" for name in ("mul", "mul_", "add", "add_", "sub", "lerp", "lerp_", "copy_"))

_STATE_DICT = Remedy(
    "state_dict() goes through all modules and detaches every tensor, each time it is called: call it once before the "
    "loop over its names, or go through zip(a.parameters(), b.parameters()) and their buffers."
)
_NOT_EACH_STEP = Remedy(
    "Metrics and what is logged: from few numbers, or not in each step. Preparing of batches: in the loader's workers."
)
_AVERAGES = Remedy(
    "Averages of parameters, and norms of gradients: all tensors at once (torch._foreach_lerp_, "
    "torch.optim.swa_utils.AveragedModel, clip_grad_norm_ with foreach=True)."
)


@dataclass(frozen=True)
class OperatorsOutsidePhases:
    """Operators run before the forward and after the backward that are not the optimizer's."""

    code: ClassVar[str] = TimeOutsidePhases.code
    name: ClassVar[str] = TimeOutsidePhases.name
    family: ClassVar[Family] = TimeOutsidePhases.family
    looks_at: ClassVar[Literal["trace"]] = "trace"

    info_share: float = field(default=0.05, metadata=limit("share of the step to mention", "judgement"))
    warn_share: float = field(
        default=0.10, metadata=limit("share of the step on tensors detached again to warn from", "as HST006 of a run")
    )
    many: float = field(
        default=200.0, metadata=limit("operators a step to call them a loop, where they are small", "judgement")
    )
    small_s: float = field(
        default=20e-6,
        metadata=limit("an operator's mean time to call it small, in s", "twice what HST011 has a call cost"),
    )

    def check(self, facts: TraceFacts) -> Answer:
        facts.require_steady()
        nodes = facts.require_nodes()
        phases = Phases.of(facts)
        if not len(phases.forward) or not len(phases.optimizer):
            raise NotMeasured("phases", "nothing tells when the forward and the optimizer went on")
        if facts.launches.names.graph(facts.trace.runtime).any():
            raise NotMeasured("phases", "the device runs graphs: what is in them, no operator tells")
        rows = nodes.others
        inside = phases.forward | phases.backward | phases.optimizer | facts.split.host.loading
        # What is compiled outside of them is another part of the training that was, such as its update.
        inside |= Compiler(facts.launches).calls
        # What begins where one ends is not in it.
        outside = (inside.containing(rows.start_ns + 1) < 0) & (facts.steps.on_host.containing(rows.start_ns) >= 0)
        rows = rows.where(outside)
        times = Times.union(rows.start_ns, rows.end_ns) - inside
        many = float(facts.calls_in_steps(rows).mean())
        small = many >= self.many and float(rows.duration_ns.mean()) <= 1e9 * self.small_s
        loops = small and not facts.on_device
        if loops:  # whose pauses are its own: the interpreter goes from one operator to the next
            times = Times.union(rows.start_ns, rows.end_ns, bridging=_PAUSE_NS) - inside
        share = share_of_work(facts, times)
        number = evidence("operators outside of forward, backward and update", share, "%", limit=self.info_share)
        if share.value < self.info_share:
            says = f"operators outside of forward, backward and update take {percent(share.value)} of a step"
            return cleared(self, says, number)
        most = _most(facts, rows)
        again = _detached_again(facts, rows) if loops else Times.none()
        needless = facts.share_of(again - inside)
        level = grade(needless, ((Severity.INFO, self.info_share), (Severity.WARNING, self.warn_share)))
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.INFO if level is None else level.severity,
            summary=f"{percent(share.value)} of each step goes into {mean_count(many)} {'small ' if loops else ''}"
            "operators that belong neither to forward and backward nor to the update"
            f"{', and the pauses between them' if loops else ''}, {_where(phases, rows)}{in_functions(facts, times)}: "
            f"{listing(most)}{': a loop in Python' if loops else ''}{_again_in_words(needless) if level else ''}.",
            scope=facts.label,
            evidence=(number, *((evidence("tensors detached again", needless, "%"),) if level else ())),
            remedies=_remedies(most, loops=loops, again=level is not None),
            # Some of it the method may need as it is.
            recoverable=recoverable(
                Interval(share.value, needless.value if level else 0.0, share.high, share.n), self.family
            ),
            confidence=confidence(
                Tier.SHARE_AND_CAUSE if level else Tier.SHARE, sure=True, coverage=facts.coverage, thin=facts.thin
            ),
        )


def _remedies(most: Sequence[str], *, loops: bool, again: bool) -> tuple[Remedy, ...]:
    """The first is about what the time goes to, as far as its operators tell."""
    averages = loops and sum(name in _OF_AVERAGES for name in most) >= len(most) / 2
    return (
        *((_STATE_DICT,) if again else ()),
        *((_UNIQUE,) if any(name.startswith(_UNIQUE_ROWS) for name in most) else ()),
        *((_AVERAGES,) if averages else ()),
        *((AT_ONCE,) if loops else ()),
        *(() if averages else (_AVERAGES,)),
        _NOT_EACH_STEP,
    )


def _again_in_words(needless: Interval) -> str:
    return (
        f"; {percent(needless.value)} of the step is detaching tensors again, as state_dict() does with all of a "
        "model's at each call"
    )


def _detached_again(facts: TraceFacts, rows: Events) -> Times:
    """When tensors were detached of which there are many more than parameters, with the pauses between them."""
    detaches = rows.where(facts.trace.named(lambda name: name == _DETACH)[rows.name])
    parameters = facts.gradients_a_step or 0.0
    if not parameters or float(facts.calls_in_steps(detaches).mean()) < _AGAIN * parameters:
        return Times.none()
    # Up to whatever is called next by the same thread.
    rows = rows.where(np.lexsort((rows.start_ns, rows.track)))
    mine = facts.trace.named(lambda name: name == _DETACH)[rows.name]
    # All of a model's come one after the other, and that again and again.
    begins = mine & ~np.append(False, mine[:-1])
    if begins.sum() < _AGAIN * len(facts.steps) or mine.sum() < _TOGETHER * begins.sum():
        return Times.none()
    until = np.where(
        np.append((rows.track[1:] == rows.track[:-1]) & (np.diff(rows.start_ns) < _PAUSE_NS), False),
        np.append(rows.start_ns[1:], 0),
        rows.end_ns,
    )
    return Times.union(rows.start_ns[mine], np.maximum(until, rows.end_ns)[mine])


def _where(phases: Phases, rows: Events) -> str:
    """Before the update or after it, by where most of the time lies."""
    waits_for_update = _last_end(phases.backward, rows.start_ns) > _last_end(phases.optimizer, rows.start_ns)
    before = float(rows.duration_ns[waits_for_update].sum()) > float(rows.duration_ns.sum()) / 2
    return f"most of it {'between backward and update' if before else 'after the update'}"


def _last_end(times: Times, at: Int64) -> Int64:
    """When the last interval ended before each point; -1 where none did."""
    ends = np.append(np.int64(-1), times.end)
    return ends[np.searchsorted(times.end, at, side="right")]


def _most(facts: TraceFacts, rows: Events) -> list[str]:
    """The operators that take the most, with what they call, or what they launch."""
    device = facts.trace.device
    took = {}
    for name in np.unique(rows.name).tolist():
        mine = rows.where(rows.name == name)
        times = Times.union(mine.start_ns, mine.end_ns)
        launched = launched_in(facts.launches, times)
        took[facts.trace.names[name]] = device.duration_ns[launched].sum() if facts.on_device else times.total_ns
    return sorted(took, key=lambda name: -took[name])[:_MOST_NAMED]
