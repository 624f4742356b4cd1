"""HST011: forward and backward are so many small operators, or recurrent cells, that a loop takes most of the time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity, Share
from perf_diagnostics.diagnose.rule import CHANGES_TRAINING, Answer, cleared, evidence, grade, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.statistics.intervals import Interval
from perf_diagnostics.diagnose.trace.cells import Cells
from perf_diagnostics.diagnose.trace.events import Kind
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.loops import Loop
from perf_diagnostics.diagnose.trace.operators import Operators
from perf_diagnostics.diagnose.trace.passes import ACCUMULATED
from perf_diagnostics.diagnose.trace.python_frames import in_functions
from perf_diagnostics.diagnose.trace.rule import AT_ONCE, warn_and_critical
from perf_diagnostics.diagnose.wording import duration, listing, mean_count, percent_between, significant, times


@dataclass(frozen=True)
class ManySmallCalls:
    """Forward and backward are so many small operators that calling them takes most of the time.

    What it measures:
        In a profiler window on the CPU, the operators that the loop's own thread calls in forward and backward, none of
        them inside another: what calling them costs (of each the first microseconds, which an operator on an empty
        tensor takes as well, and the pauses of less than a millisecond before it, in which the interpreter runs) as a
        share of the step; and how many of them forward calls for each tensor whose gradient the backward writes. Calls
        of a recurrent cell (``aten::lstm_cell``, ``gru_cell``, …), each of them large, are a loop over time steps: of
        these it is their whole time and that of the operators that backward calls as often; where it joins, attends or
        draws between two of them it is an observation. So it is of operators that forward calls equally often in each
        step, sixteen times or more; where none of these takes a part of a tensor, and all rounds work on the same
        sizes, each may need the one before (a solver of differential equations), and it is an observation.

    Why it matters:
        A loop in Python over time steps, samples or heads calls the same small operators again and again. The processor
        then mostly looks up what to call: faster arithmetic wins nothing, one operator on all of them nearly all.

    What to try:
        One call on the whole tensor in place of a loop (stack the inputs, ``torch.nn.LSTM`` in place of cells,
        ``torch.vmap``); where batches are accumulated, fewer and larger ones, which train the same; ``torch.compile``,
        which makes one call of many; where nothing is repeated, a larger batch.

    When it is wrong:
        The profiler lengthens each call, most of all short ones. What it cost a step is taken off before this is a
        fault, and where that leaves less than the limit it stays an observation; unless the undisturbed steps show that
        an operator takes no longer than its call: their forward and backward, over the operators that were counted. A
        recurrence that needs the step
        before cannot be stacked, and one that feeds its output back through other layers cannot be ``torch.nn.LSTM``;
        what that would win is not predicted. Without many calls for each tensor the model is small, which may be as it
        should be: that is an observation only.
    """

    code: ClassVar[str] = "HST011"
    name: ClassVar[str] = "many-small-calls"
    family: ClassVar[Family] = Family.HOST
    looks_at: ClassVar[Literal["trace"]] = "trace"

    warn_share: float = field(default=0.30, metadata=limit("calling over the step to warn from", "judgement"))
    critical_share: float = field(default=0.60, metadata=limit("… that is critical", "judgement"))
    call_s: float = field(
        default=10e-6,
        metadata=limit(
            "what a call costs of an operator's time, in s",
            "on 8 numbers: 0.4 to 3 µs in a row, 2 to 23 µs between large ones",
        ),
    )
    repeats: float = field(
        default=10.0, metadata=limit("operators of forward for each trained tensor to call it a loop", "judgement")
    )
    cells: float = field(
        default=10.0, metadata=limit("calls of recurrent cells in a forward pass to call it a loop", "judgement")
    )
    cells_share: float = field(
        default=0.30, metadata=limit("these and their backward over the step to warn from", "judgement")
    )
    loop_share: float = field(
        default=0.20,
        metadata=limit(
            "operators that are called equally often, over the step, to warn from (half of it to mention)",
            "judgement; a loop over 128 graphs: 32 % of a step, of which one call won 28 to 40 %",
        ),
    )

    def check(self, facts: TraceFacts) -> Answer:
        operators = Operators.of(facts)
        operators.require_one_rank()
        call_ns = round(self.call_s * 1e9)
        by_phase = {phase: operators.calling_ns(phase, call_ns) for phase in ("forward", "backward")}
        share = facts.share_of(np.sum(list(by_phase.values()), axis=0))
        calls = operators.calls("forward", "backward")
        gradients = facts.gradients_a_step
        repeated = None if not gradients else operators.calls("forward") / gradients
        batches = _accumulated(operators)
        most = max((*operators.most("forward"), *operators.most("backward")), key=lambda one: one.calls)
        numbers = (
            Evidence(metric="operators of forward and backward, a step", value=calls, n=len(facts.steps)),
            *(
                ()
                if repeated is None
                else (Evidence(metric="operators of forward a trained tensor", value=repeated, limit=self.repeats),)
            ),
            evidence("pauses between operators", facts.share_of(operators.pauses), "%"),
            *(() if batches is None else (Evidence(metric="batches accumulated", value=batches),)),
        )
        level = grade(share, warn_and_critical(self.warn_share, self.critical_share))
        loops = repeated is not None and repeated >= self.repeats
        cells = Cells.of(operators)
        if cells is not None and cells.each_pass >= self.cells:
            of_cells = facts.share_of(cells.forward_ns + cells.backward_ns)
            found = self._of_cells(facts, cells, of_cells, numbers)
            # What only may be a fault hides none that calls make.
            says_more = of_cells.value > share.value and not self._fed_back(cells)
            if found is not None and (level is None or not loops or says_more):
                return found
        # Where calls alone take as much as a fault does, they say more of it.
        loop = Loop.of(operators) if level is None or not loops else None
        if loop is not None and gradients and loop.calls / gradients >= self.repeats:
            found = self._of_loop(facts, loop, facts.share_of(loop.forward_ns + loop.backward_ns), numbers)
            if found is not None:
                return found
        counted = f"{mean_count(calls)} operators of forward and backward"
        if level is None:
            number = evidence("calling operators", share, "%", limit=self.warn_share)
            return cleared(self, f"calling {counted} takes {percent_between(share)} of a step", number, *numbers)
        step = duration(facts.step_time_s.value)
        says = (
            f"Calling {counted} takes {percent_between(share)} of a step of {step} under the profiler; "
            f"{most.name} is called {times(most.calls, 'time')}"
        )
        of_each = "" if repeated is None else f"; forward calls {significant(repeated, 2)} for each trained tensor"
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=level.severity if loops or batches is not None else Severity.INFO,
            summary=f"{says}{f'{of_each}: a loop in Python' if loops else of_each}{_of_batches(batches)}.",
            scope=facts.label,
            evidence=(evidence("calling operators", share, "%", limit=level.limit), *numbers),
            remedies=_remedies(batches, loops=loops),
            recoverable=_gain(share, batches, loops=loops),
            confidence=confidence(Tier.DEEP_WINDOW, sure=level.sure, coverage=facts.coverage, thin=facts.thin),
            claims={phase: facts.share_of(ns).value for phase, ns in by_phase.items()},
        )

    def _of_loop(self, facts: TraceFacts, loop: Loop, share: Interval, numbers: tuple[Evidence, ...]) -> Finding | None:
        """Operators that are called again and again, small or not, if they and their backward take enough."""
        level = grade(share, ((Severity.INFO, self.loop_share / 2), (Severity.WARNING, self.loop_share)))
        if level is None:
            return None
        of_weights = bool(_OF_A_WEIGHT.intersection(loop.names))
        may_follow = loop.may_follow and not of_weights
        over = "" if may_follow else ", over samples, groups or places"
        says = _ONE_AFTER_ANOTHER if may_follow else ""
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.INFO if may_follow else level.severity,
            summary=f"A loop in Python goes round {times(loop.rounds, 'time')} in each forward{over}"
            f"{in_functions(facts, loop.times)}: {listing(loop.names)}. With what backward "
            f"calls as often it takes {percent_between(share)} of a step of {duration(facts.step_time_s.value)} under "
            f"the profiler.{says}",
            scope=facts.label,
            evidence=(
                evidence("operators that are called equally often, and their backward", share, "%", limit=level.limit),
                Evidence(metric="operators of the loop in forward, a step", value=loop.calls, n=len(facts.steps)),
                *numbers,
            ),
            remedies=(_OF_WEIGHTS, AT_ONCE) if of_weights else (AT_ONCE,),
            recoverable=None if may_follow else recoverable(share, self.family),
            confidence=confidence(Tier.DEEP_WINDOW, sure=level.sure, coverage=facts.coverage, thin=facts.thin),
            claims={
                "forward": facts.share_of(loop.forward_ns).value,
                "backward": facts.share_of(loop.backward_ns).value,
            },
        )

    def _fed_back(self, cells: Cells) -> bool:
        """Whether the recurrence may need what other layers made of the time step before."""
        return cells.fed_back >= self.cells

    def _of_cells(
        self, facts: TraceFacts, cells: Cells, share: Interval, numbers: tuple[Evidence, ...]
    ) -> Finding | None:
        """A loop over time steps, if its cells and their backward take enough of the step."""
        level = grade(share, ((Severity.WARNING, self.cells_share),))
        if level is None:
            return None
        by_phase = {
            "forward": facts.share_of(cells.forward_ns).value,
            "backward": facts.share_of(cells.backward_ns).value,
        }
        fed_back = self._fed_back(cells)
        says = (
            f" Between two of them it calls {listing(cells.feeding)}, as a recurrence does that feeds its output back; "
            "if it does, it cannot be one call."
            if fed_back
            else ""
        )
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.INFO if fed_back else level.severity,
            summary=f"{cells.name} is called {times(cells.calls, 'time')} a step, a loop in Python over time "
            f"steps; with what backward calls as often it takes {percent_between(share)} of a step of "
            f"{duration(facts.step_time_s.value)} under the profiler.{says}",
            scope=facts.label,
            evidence=(
                evidence("cells and what backward calls as often", share, "%", limit=level.limit),
                Evidence(metric="recurrent cells a forward pass", value=cells.each_pass, limit=self.cells),
                *numbers,
            ),
            remedies=(_WHOLE_SEQUENCE,),
            confidence=confidence(Tier.DEEP_WINDOW, sure=level.sure, coverage=facts.coverage, thin=facts.thin),
            claims=by_phase,
        )


#: What parametrizations of a weight call (``torch/nn/utils/parametrizations.py`` of torch 2.13): orthogonal, and by the
#: norm of its rows.
_OF_A_WEIGHT = frozenset(
    ("aten::matrix_exp", "aten::linalg_matrix_exp", "aten::linalg_householder_product", "aten::_weight_norm_interface")
)

_OF_WEIGHTS = Remedy(
    "If a weight is made of others in each round (an orthogonal or normalised one): make it once a forward, in with "
    "torch.nn.utils.parametrize.cached(): around the loop, or as a variable before it. The numbers are the same."
)

_ONE_AFTER_ANOTHER = (
    " It takes no parts of a tensor: rounds of a solver, each of which needs the one before, are no one call."
)

_WHOLE_SEQUENCE = Remedy(
    "Call torch.nn.LSTM, torch.nn.GRU or torch.nn.RNN once on the whole sequence in place of a cell at each time step: "
    "its loop runs in oneDNN or ATen on the CPU and in cuDNN on a GPU. A recurrence that feeds its output back through "
    "other layers (a decoder that reads what it wrote, attention in between) cannot; of it, take out of the loop what "
    "does not need the step before."
)


def _accumulated(operators: Operators) -> float | None:
    """How many batches a step accumulates: each is waited for, and has a backward pass; None for one, or unknown."""
    facts = operators.facts
    annotations = facts.trace.of(Kind.ANNOTATION)
    annotations = annotations.where(facts.launches.on_training_threads(annotations))
    waits = annotations.where(facts.launches.names.data_wait(annotations)).start_ns
    counts = (waits, operators.time_of("backward").start)
    batches = min(float((facts.steps.windows.containing(starts) >= 0).sum()) for starts in counts) / len(facts.steps)
    return batches if batches >= ACCUMULATED else None


def _of_batches(batches: float | None) -> str:
    return "" if batches is None else f", in {mean_count(batches)} accumulated batches a step"


def _gain(share: Interval, batches: float | None, *, loops: bool) -> Share | None:
    """Without the loop nearly all calls go; with all batches in one, all but one batch's; else nobody knows."""
    if loops:
        return recoverable(share, Family.HOST)
    return None if batches is None else recoverable(share.scaled(1 - 1 / batches), Family.HOST)


def _remedies(batches: float | None, *, loops: bool) -> tuple[Remedy, ...]:
    compiled = Remedy("Compile the model, so that a step takes fewer calls.", {"compile_mode": "default"})
    says = "Replace the loop in forward by one call on all it goes over (stacked inputs, torch.nn.LSTM, torch.vmap)."
    loop = (Remedy(says),) if loops else ()
    if batches is not None:
        fewer = Remedy(
            "Accumulate fewer, larger batches, as far as memory allows: the optimizer sees the same samples in each "
            f"update, and one batch of all {mean_count(batches)} takes the calls of one. Only layers that look at "
            "the batch (batch normalisation) see another one."
        )
        return (*loop, fewer, compiled)
    if loops:
        return (*loop, compiled)
    return (compiled, Remedy(f"A larger batch, if throughput still rises with it. {CHANGES_TRAINING}"))
