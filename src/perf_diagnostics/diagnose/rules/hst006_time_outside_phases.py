"""HST006: the loop does other things than loading, computing and updating."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from perf_diagnostics.diagnose.code.code_shares import code_shares
from perf_diagnostics.diagnose.facts import processor, run_delay
from perf_diagnostics.diagnose.facts.facts import Interval, TrialFacts, ask
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.loaders.preparation import as_it_should_be, prepared_ns
from perf_diagnostics.diagnose.ranks.rank_facts import RankFacts
from perf_diagnostics.diagnose.rule import Answer, Grade, cleared, evidence, grade, limit
from perf_diagnostics.diagnose.rule_parts.advice import PROFILER_WINDOW
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.rule_parts.kinds_of_work import Work, kind_of_work
from perf_diagnostics.diagnose.rule_parts.method_work import MethodWork, is_method, method_work, without
from perf_diagnostics.diagnose.rule_parts.model_asked import WORTH_SAYING, model_asked
from perf_diagnostics.diagnose.rule_parts.whose_work import LEAST_PART, Framework, OwnFunction, whose_work
from perf_diagnostics.diagnose.wording import duration, percent, percent_between
from perf_diagnostics.records import Float64, Phase

#: From this part of the time outside of the phases on that may be others', it is said.
_WORTH_SAYING = 0.1

#: What every training does: where one of these is not marked, the time outside of the phases is its.
_WORK = (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)


#: Lines that a finding names at most.
_MOST_LINES = 3


@dataclass(frozen=True)
class TimeOutsidePhases:
    """The loop spends its time on things that are none of its phases.

    What it measures:
        The share of ``other``: what data wait, transfer, forward, backward and optimizer leave of the step. In a trial
        on the CPU ``transfer`` counts as well, for there is nothing to copy: what takes time there is work on batches.
        There also how much of it the loop's own thread computed at least: its CPU time beyond that of all phases.
        Where the thread's stack was looked at, what of it the method asks for: lines that the loss depends on, and that
        depend on the model in turn (a target network's or a teacher's forward, pseudo-labels, rollouts), by the
        program's text; and averages of parameters. Only the rest is a fault by its share. In a profiler window or
        trace: operators that run between the phases, where autograd's numbers tell which forward each backward goes
        back to; what they are for nobody knows, so they are only mentioned.

    Why it matters:
        Preparing or tokenising a batch after it was loaded, logging, metrics, callbacks, saving: all of it keeps the
        training waiting, and no tool that times only the model sees it.

    What to try:
        Move preparation of batches into the loader's workers or onto the device; log, evaluate and save less often, or
        in another thread. What belongs to the method can be cheaper: one call in place of several small ones, all
        tensors of an average at once (``torch._foreach_lerp_``, ``torch.optim.swa_utils.AveragedModel``).

    When it is wrong:
        What depends on what is read from the text by names alone: a loss that reads its inputs in ways that do not show
        there (callbacks, ``exec``, files) makes them look like work that nothing reads, and a name or a method's name
        that is used for several things makes logging look needed. That the method asks for something does not say that
        it has to take so long. Where no backward pass stands in the user's own text, nothing is known of this.
        In a loop without a loader, making the batches lies here, and nothing of it is surely won.
        What a framework's own loop does in each step is only mentioned, and so is work on whole batches that INP007
        knows nothing to make cheaper, and what a rank waits there for others, of which COM002, COM004 and COM012 tell.
        Where the thread's stack was not looked at, what the time is spent on is not told: preprocessing after
        ``next()`` (INP007) looks like logging. Where it was, a kind of work is named by the libraries' functions that
        it calls, if it has at least half of this time; of other work the user's own function that has as much.
        What a loop does not mark counts as other, and in steps of a few milliseconds so does the measuring itself.
        Where the scheduler counted that the loop's thread lacked a core, what others can have taken of this time is not
        held against the loop; what then is left uncertain is only mentioned.
        Less than 50 µs a step is no fault: the lines of a plain loop take about half of that.
    """

    code: ClassVar[str] = "HST006"
    name: ClassVar[str] = "time-outside-phases"
    family: ClassVar[Family] = Family.HOST
    looks_at: ClassVar[Literal["trial"]] = "trial"

    warn_share: float = field(
        default=0.10, metadata=limit("share of the step to warn from", "TraceML's residual: 10 %")
    )
    critical_share: float = field(default=0.20, metadata=limit("… that is critical", "TraceML's residual: 20 %"))
    least_s: float = field(
        default=50e-6,
        metadata=limit("time outside the phases a step, in s, to look from", "a plain loop: 22 to 24 µs (torch 2.13)"),
    )
    computing_share: float = field(
        default=0.7, metadata=limit("CPU time over it from which it is computing", "as INP002")
    )

    def check(self, facts: TrialFacts) -> Answer:
        facts.column("wall_ns")
        unmarked = next((phase for phase in _WORK if facts.table.phase_ns(phase) is None), None)
        if unmarked is not None:
            raise facts.missing(f"host_{unmarked}_ns", f"the loop does not mark its {unmarked}: its time lies in other")
        phases = _outside(facts)
        outside_of_all = _outside_share(facts, phases)
        share, own = outside_of_all.seen, outside_of_all.own
        number = evidence("outside of all phases", share, "%", limit=self.warn_share)
        moved = facts.share(Phase.TRANSFER).value if Phase.TRANSFER in phases else 0.0
        method = method_work(facts) if moved < share.value / 2 else None
        of_method, waits = _of_all(method, share.value, moved), _waits_for_ranks(facts, phases)
        none_of_its = _and(of_method, waits)
        left, left_at_most = without(own, none_of_its), outside_of_all.own_at_most * (1 - (none_of_its.low or 0.0))
        limits = ((Severity.WARNING, self.warn_share), (Severity.CRITICAL, self.critical_share))
        found = grade(left, limits)
        if found is None and left_at_most >= self.warn_share:
            found = Grade(Severity.INFO, self.warn_share, sure=False)
        if found is None and grade(own, limits) is not None:
            found = Grade(Severity.INFO, self.warn_share, sure=True)
        if found is None:
            return cleared(self, f"{percent_between(share)} of a step lies outside of its phases", number)
        outside = facts.joint_share(*phases).scaled(facts.step_time_s.value)
        numbers = [number, evidence("outside of all phases a step", outside.scaled(1e3), "ms")]
        if outside.value < self.least_s:
            return cleared(self, f"{duration(outside.value)} of a step lies outside of its phases", *numbers)
        computing = ask(_computing_part, facts, phases)
        if computing is not None:
            numbers.append(evidence("of it surely computing", computing, "%", limit=self.computing_share))
        busy = computing is not None and computing.value >= self.computing_share
        batches = _makes_batches(facts) and moved < share.value / 2
        known, by_line = is_method(facts), moved < share.value / 2
        rest = method is None or left_at_most >= self.warn_share
        work = kind_of_work(facts, Phase.OTHER, known) if by_line and rest else None
        whose = whose_work(facts, Phase.OTHER, known) if work is None and by_line and rest else None
        if method is not None:
            numbers.append(evidence("of it the method's own", of_method, "%"))
        if waits:
            numbers.append(Evidence(metric="of it waiting for other ranks", value=100 * waits, unit="%"))
        frameworks = isinstance(whose, Framework)
        wanted = frameworks or _on_whole_batches(facts, phases)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.INFO if wanted else found.severity,
            summary=f"{percent_between(share)} of each step lies outside of loading, {_copying(facts)}forward, "
            f"backward and optimizer{_kind(computing, work, whose, busy=busy, robbed=run_delay.robbed(facts))}."
            + ("" if method is None else f" {method.says[:1].upper()}{method.says[1:]}.")
            + (" No loader was seen: making the batches is part of that." if batches and rest else "")
            + _in_transfer(moved, share.value)
            + (f" Of it {percent(waits)} is waiting for other ranks." if waits >= _WORTH_SAYING else "")
            + outside_of_all.says,
            scope=facts.label,
            evidence=tuple(numbers),
            remedies=(
                *(work.against_keeping if rest and work is not None else ()),
                *(_remedies(facts, work, whose, busy=busy, on_batches=not by_line) if rest else ()),
                *(() if method is None else method.remedies),
            ),
            recoverable=recoverable(
                left.reaching(left_at_most), self.family, realised=0.0 if batches or wanted or not rest else None
            ),
            confidence=confidence(
                Tier.SHARE_AND_CAUSE if busy else Tier.SHARE,
                sure=found.sure,
                coverage=facts.coverage,
                thin=facts.thin,
            ),
            claims={
                str(Phase.OTHER): max(0.0, (share.value - moved) * (1 - (of_method.value if rest else 0.0))),
                str(Phase.TRANSFER): moved,
            },
            lines=()
            if method is None or not rest
            else code_shares(facts, Phase.OTHER, seen_so=lambda path: not known(path))[:_MOST_LINES],
            symptom_of=(
                *("INP007", "XFR003", "XFR005", "HST002", "HST003", "HST005", "HST007"),
                *("STB002", "STB004", "STB006", "CMP021", "CMP054", "COM002", "COM012", "CPU001", "CPU003", "EXP009"),
            ),
        )


def _on_whole_batches(facts: TrialFacts, phases: tuple[Phase, ...]) -> bool:
    """Whether most of it is work on whole batches that nothing is known to make cheaper (INP007)."""
    if not ask(as_it_should_be, facts):
        return False
    outside = sum(float(facts.host_column(phase).sum()) for phase in phases)
    return float(prepared_ns(facts).sum()) >= outside / 2


def _of_all(method: MethodWork | None, share: float, moved: float) -> Interval:
    """The part of the time outside of the phases that is the method's; what was moved is none of it."""
    if method is None or not share > 0:
        return Interval(0.0, 0.0, 0.0, 0)
    return method.part.scaled(max(0.0, share - moved) / share)


def _waits_for_ranks(facts: TrialFacts, phases: tuple[Phase, ...]) -> float:
    """The part of the time outside of the phases in which the rank waits in collectives; 0 where nobody looked.

    Whose fault that is what all ranks wait tells (COM002, COM004, COM012); of a rank whose others were not recorded
    nobody knows.
    """
    if ask(RankFacts.of, facts.result) is None:
        return 0.0
    waits, outside = facts.table.get(f"collective_{Phase.OTHER}_ns"), sum(facts.host_column(phase) for phase in phases)
    if waits is None or facts.on_accelerator or not np.sum(outside) > 0:
        return 0.0
    return min(1.0, float(np.sum(waits) / np.sum(outside)))


def _and(part: Interval, another: float) -> Interval:
    """Both parts together, of which the second is known."""

    def both(end: float) -> float:
        return min(1.0, end + another)

    low, high = (None if end is None else both(end) for end in (part.low, part.high))
    return Interval(both(part.value), low, high, part.n)


def _outside(facts: TrialFacts) -> tuple[Phase, ...]:
    """What is outside of the phases that train; on a device, copying is one of these."""
    copies = facts.on_accelerator or facts.table.host_ns(Phase.TRANSFER) is None
    return (Phase.OTHER,) if copies else (Phase.OTHER, Phase.TRANSFER)


@dataclass(frozen=True)
class _Outside:
    """The share of the time outside of the phases as it was seen, and what of it is the loop's own: least and most."""

    seen: Interval
    own: Interval
    own_at_most: float

    @property
    def says(self) -> str:
        """What others make of it, where that is worth saying."""
        least, most = self.own.value, self.own_at_most
        if least >= (1 - _WORTH_SAYING) * self.seen.value:
            return ""
        would = percent(least) if most - least < _WORTH_SAYING * most else f"{percent(least)} to {percent(most)}"
        return f" Others had the cores meanwhile: without them {would} of a step would lie there."


def _outside_share(facts: TrialFacts, phases: tuple[Phase, ...]) -> _Outside:
    """How much of the step lies outside of the phases.

    Where the scheduler counted how long the loop's thread was ready and had no core, what others can have taken there
    is not the loop's. Else, where the thread surely did not run for part of forward, backward and optimizer, others had
    its processor outside of the phases as well: of single steps, long there, nobody can tell whose they are. What the
    loop itself does between its phases most steps show: that is the least that is its own.
    """
    share = facts.joint_share(*phases)
    left = ask(run_delay.outside_left, facts, share, phases)
    if left is not None and share.value > 0:
        least, most = (min(end, share.value) for end in left)
        return _Outside(share, share.scaled(least / share.value), most)
    off = ask(processor.off_processor_share, facts)
    if off is None or not off.surely_at_least(run_delay.ROBBED):
        return _Outside(share, share, share.value)
    other = np.sum([facts.host_column(phase) for phase in phases], axis=0)
    typical = np.minimum(other, 2 * float(np.median(other)))
    usual = facts.ratio(f"{Phase.OTHER}", np.maximum(0, typical), facts.column("wall_ns")).within(0.0, 1.0)
    return _Outside(share, usual, max(share.value, usual.value))


def _computing_part(facts: TrialFacts, phases: tuple[Phase, ...]) -> Interval:
    """How much of the time outside of the phases the loop's own thread surely computed."""
    outside: Float64 = np.sum([facts.host_column(phase) for phase in phases], axis=0)
    return processor.surely_computing(facts, outside)


def _copying(facts: TrialFacts) -> str:
    return "transfer, " if facts.on_accelerator else ""


def _in_transfer(moved: float, share: float) -> str:
    """Where most of it lies in a phase that should be empty."""
    if moved < share / 2:
        return ""
    return (
        f" Of that, {percent(moved)} lies in the transfer of batches: on the CPU there is nothing to copy, so that is "
        "work on them, such as converting, collating or encoding."
    )


def _kind(
    computing: Interval | None,
    work: Work | None,
    whose: Framework | OwnFunction | None,
    *,
    busy: bool,
    robbed: bool,
) -> str:
    if work is not None:
        return f"; {percent(work.part)} of that is {work.says} ({work.line.file}:{work.line.line})"
    if whose is not None:
        return f"; {whose.says}"
    if computing is None:
        return ""
    if busy:
        return ", nearly all of it computing: preparing batches, metrics, logging"
    if robbed:
        return "; whether it computes or waits cannot be told, for others had the processors"
    return f", {percent(computing.value)} of it surely computing, the rest perhaps waiting: saving, writing, sleeping"


def _makes_batches(facts: TrialFacts) -> bool:
    """Whether no loader was seen, so that making the batches is part of the time outside."""
    return facts.table.host_ns(Phase.DATA_WAIT) is None


def _remedies(
    facts: TrialFacts, work: Work | None, whose: Framework | OwnFunction | None, *, busy: bool, on_batches: bool
) -> tuple[Remedy, ...]:
    """What can be done about the time outside of the phases: of calls of the model alone where most of it is theirs."""
    asked = model_asked(facts)
    if asked is None or isinstance(whose, Framework) or not (work is None or work.kind.asks_a_model):
        return _by_the_work(facts, work, whose, busy=busy, on_batches=on_batches)
    if asked.part >= LEAST_PART:
        return (asked.remedy,)
    rest = () if asked.part < WORTH_SAYING else (asked.remedy_for_a_part,)
    return (*_by_the_work(facts, work, whose, busy=busy, on_batches=on_batches), *rest)


def _by_the_work(
    facts: TrialFacts, work: Work | None, whose: Framework | OwnFunction | None, *, busy: bool, on_batches: bool
) -> tuple[Remedy, ...]:
    """What can be done about most of it, by what it is: of workers only with a loader, or with batches to make."""
    if work is not None:
        return (work.kind.remedy,)
    if whose is not None:
        return whose.remedies
    where = Remedy(f"To see which function it is, mark the loop's parts, or record {PROFILER_WINDOW}.")
    log = Remedy("If it is logging, metrics or saving: less often, or in another thread.")
    if _makes_batches(facts) and not on_batches:
        ahead = "If it makes the batches: let a DataLoader's workers make the next ones meanwhile"
        return (where, Remedy(f"{ahead}, where these do not depend on this step."), log)
    loads = ask(facts.number, "num_workers") is not None
    places = (("the loader's workers",) if loads else ()) + (("onto the device",) if facts.on_accelerator else ())
    where_to = " into " + ", or ".join(places) if loads else " onto the device" if places else " out of the loop"
    if on_batches:
        return (Remedy(f"Move preparation of batches{where_to}."), where)
    prepare = Remedy(f"If it prepares batches: move that{where_to}.")
    return (prepare, log, where) if busy else (log, prepare, where)
