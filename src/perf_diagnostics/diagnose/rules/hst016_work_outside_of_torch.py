"""HST016: inside of forward Python, NumPy or SciPy are at work, while no operator of torch runs."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Set
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.code.code_shares import code_shares, host_share
from perf_diagnostics.diagnose.code.code_ways import OURS
from perf_diagnostics.diagnose.code.code_words import at_line
from perf_diagnostics.diagnose.code_share import CodeShare
from perf_diagnostics.diagnose.facts.dataflow_facts import phase_of_forward
from perf_diagnostics.diagnose.facts.facts import TrialFacts, ask
from perf_diagnostics.diagnose.facts.outside_facts import OutsideWork, together, worked_outside
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, grade, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.rule_parts.needless_work import and_more
from perf_diagnostics.diagnose.rule_parts.one_step import in_one_step
from perf_diagnostics.diagnose.wording import percent_between
from perf_diagnostics.records import CodePath, CodeSamples, Phase

_IN_LOADER = Remedy(
    "No parameter goes into it, as far as the data's way through the step shows: compute it where the batch is made, "
    "in the dataset's __getitem__ or in collate_fn, where workers (num_workers) do it while the step before goes on."
)
_ONCE = Remedy(
    "What comes out the same for a sample each time: compute it once, before the training, and keep it with the sample."
)
_IF_OF_DATA = Remedy(
    "If it is not made of the model's results: compute it where the batch is made, in the dataset's __getitem__ or in "
    "collate_fn, or once, before the training, and keep it with the sample."
)
_NO_TENSOR = Remedy(
    "What is the same in each step: make it once and keep it (register_buffer). What is made of the batch (texts, "
    "lists): make it in the dataset or in collate_fn, where workers do it."
)
_SELDOM = Remedy(
    "No loss depends on it, by the program's text: do it every so many steps, on a part of the batch, or in evaluation."
)
_IN_STEP = Remedy(
    "It works on the model's results, so it stays in the step: hand over the whole batch at once rather than sample by "
    "sample, and less of it (the best candidates); write it in operators of torch on whole tensors; or let a pool of "
    "threads do the samples, where the library lets go of the interpreter meanwhile, as much of SciPy does."
)

#: A library's function is named that has this part of what was seen below the line.
_MOSTLY = 0.5

#: What no loss depends on is seen at lines of that kind for at least this part of the work.
_AT_LINE = 0.5

#: Lines that a finding names at most.
_MOST_LINES = 3


@dataclass(frozen=True)
class WorkOutsideOfTorch:
    """Forward or the loss hands numbers to Python, NumPy or SciPy, which work on them while no operator runs.

    What it measures:
        In a step of a loop or trial, which is none of those that count: how long the training's thread ran on after it
        had read a tensor (``numpy()``, ``tolist()``, ``item()``), to the next operator of forward or to backward, or
        before an operator that makes a tensor of Python's numbers; 200 µs or more each time, for less is what calling
        an operator takes. Whether what was read had parameters in it is seen by the data's way through the step; where
        the model's results had been read before, it may be these that are worked on, which is said. What lies between
        two calls of models does not count.

    Why it matters:
        It is done in one thread, in each step, while everything else waits: distance maps of masks for a boundary loss,
        masks built row by row, matchings. What depends on the data alone need not be in the step: a
        segmentation's distance maps, made by SciPy in its loss, took 28 % of the step (torch 2.13, two cores), and half
        a second in all when they were made once for each image.

    What to try:
        What depends on the data alone: in the loader, or once. What no loss depends on: seldom. What works on the
        model's results: for the whole batch at once, or in torch.

    When it is wrong:
        What an earlier step has left (a state, a memory of features) counts as data. On a CPU without free cores
        workers take from the model what they do for it; computing it once does not. What the training needs of the
        model's results is its method, and only mentioned; so is all of it on a device, which may be at work meanwhile.
        Work outside of forward and the loss is INP007's or HST006's. Python that works on no tensor's numbers and makes
        no tensor is not told. One step was looked at: what is done in every hundredth step only may be told, or missed.
    """

    code: ClassVar[str] = "HST016"
    name: ClassVar[str] = "work-outside-of-torch"
    family: ClassVar[Family] = Family.HOST
    looks_at: ClassVar[Literal["trial"]] = "trial"

    info_share: float = field(default=0.05, metadata=limit("share of the step to mention", "as HST013; a judgement"))
    warn_share: float = field(default=0.10, metadata=limit("share of the step to warn from", "as HST013; a judgement"))

    def check(self, facts: TrialFacts) -> Answer:
        found = worked_outside(facts)
        unread = {one for one in found if _is_unread(facts, one)}
        in_step = tuple(one for one in found if one.of in ("model", "unclear") and one not in unread)
        free = self._of(facts, tuple(one for one in found if one not in in_step), unread)
        if isinstance(free, Finding) and not facts.on_accelerator:
            return free
        bound = free if isinstance(free, Finding) else self._of(facts, in_step, unread)
        if not isinstance(bound, Finding):
            return free
        # On a device, what was launched before may still run meanwhile.
        gain = bound.recoverable and dataclasses.replace(bound.recoverable, low=0.0)
        return dataclasses.replace(bound, severity=Severity.INFO, recoverable=gain)

    def _of(self, facts: TrialFacts, found: tuple[OutsideWork, ...], unread: Set[OutsideWork]) -> Answer:
        share = together(found)
        number = in_one_step("work outside of torch in forward", share, limit=self.info_share)
        graded = grade(share, ((Severity.INFO, self.info_share), (Severity.WARNING, self.warn_share)))
        if graded is None or not found:
            return cleared(self, "hardly anything is worked on outside of torch in forward", number)
        first = found[0]
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=graded.severity,
            summary=f"For {percent_between(share)} of each step forward waits for work outside of torch"
            f"{_by(facts, first)}: {_what(first)}{at_line(first.place, with_text=True)}"
            f"{and_more(found)}.",
            scope=facts.label,
            evidence=(
                number,
                Evidence(metric="pauses of torch for it in the step", value=sum(one.times for one in found)),
            ),
            remedies=_remedies(found, unread),
            recoverable=recoverable(share, self.family),
            confidence=confidence(Tier.SHARE_AND_CAUSE, sure=graded.sure, coverage=facts.coverage, thin=facts.thin),
            claims={str(phase_of_forward(facts)): share.value},
            # Metrics, text and files are told with what they are there.
            symptom_of=("HST013", "CMP027", "CMP032"),
            lines=_lines(facts, found),
        )


def _what(one: OutsideWork) -> str:
    return {
        "python": "a tensor is made of Python's numbers",
        "data": "numbers that no parameter went into are read",
        "model": "the model's results are read",
        "unclear": "numbers are handed over, perhaps of the model's results, which were read before,",
    }[one.of]


def _remedies(found: tuple[OutsideWork, ...], unread: Set[OutsideWork]) -> tuple[Remedy, ...]:
    """Those against what takes longest first."""
    against = {
        "data": (_IN_LOADER, _ONCE),
        "python": (_NO_TENSOR,),
        "model": (_IN_STEP,),
        "unclear": (_IF_OF_DATA, _IN_STEP),
        "": (_SELDOM,),
    }
    kinds = dict.fromkeys("" if one in unread else one.of for one in found)
    return tuple(remedy for kind in kinds for remedy in against[kind])


def _by(facts: TrialFacts, one: OutsideWork) -> str:
    """Whose function was mostly seen at work in forward at these lines; empty where none was, or it is not known."""
    if one.library:
        return f" (in {one.library})"
    code, forward = facts.result.code, str(phase_of_forward(facts))
    if code is None:
        return ""
    below = _below(code, (one,))
    seconds: defaultdict[str, float] = defaultdict(float)
    for path in filter(below, code.paths):
        if path.phase == forward and path.calls != OURS:
            seconds[path.calls[0] if path.calls else ""] += code.seconds(path)
    called = max(seconds, key=lambda name: seconds[name], default="")
    if not called or called.startswith("torch.") or seconds[called] < _MOSTLY * sum(seconds.values()):
        return ""
    # The line that starts a framework's loop calls that framework, whatever is at work in it.
    starts = any(path.phase not in (forward, str(Phase.OTHER)) and below(path) for path in code.paths)
    return "" if starts else f" (mostly {called})"


def _lines(facts: TrialFacts, found: tuple[OutsideWork, ...]) -> tuple[CodeShare, ...]:
    """The lines below those that hand numbers over, or their own."""
    code = facts.result.code
    if code is None:
        return ()
    return code_shares(facts, phase_of_forward(facts), seen_so=_below(code, found))[:_MOST_LINES]


def _below(code: CodeSamples, found: tuple[OutsideWork, ...]) -> Callable[[CodePath], bool]:
    """Tells the looks that saw the thread at these lines, or in what they call, and no layer of torch's at work."""
    at = {number for number, place in enumerate(code.places) if any(one.is_at(place) for one in found)}
    return lambda path: not at.isdisjoint(path.places) and not any(call.endswith(".forward") for call in path.calls)


def _is_unread(facts: TrialFacts, work: OutsideWork) -> bool:
    """Whether no loss depends on its line, by the program's text, and the looks saw most of it there.

    A tensor that is made of what comes of it goes on into the step.
    """
    code, forward = facts.result.code, str(phase_of_forward(facts))
    if code is None or not code.roles or work.makes:
        return False
    roles = enumerate(zip(code.places, code.roles, strict=True))
    unread = {number for number, (place, role) in roles if role == "unread" and work.is_at(place)}
    looks = [path for path in code.paths if path.phase == forward]
    there_s = sum(code.seconds(path) for path in looks if not unread.isdisjoint(path.places))
    length = ask(host_share, facts, forward) or 0.0
    return there_s > 0 and length * there_s / sum(map(code.seconds, looks)) >= _AT_LINE * work.share.value
