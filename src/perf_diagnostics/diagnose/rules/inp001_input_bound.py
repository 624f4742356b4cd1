"""INP001: the training waits for its next batch, with the workers it would take and whether they can help."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.code.code_shares import code_shares
from perf_diagnostics.diagnose.code.worker_lines import worker_library, worker_shares
from perf_diagnostics.diagnose.code_share import CodeShare
from perf_diagnostics.diagnose.facts import processor, run_delay
from perf_diagnostics.diagnose.facts.facts import Interval, TrialFacts, ask
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity, Share
from perf_diagnostics.diagnose.loaders.loading import Loading
from perf_diagnostics.diagnose.loaders.loading_cost import computing_share_of, core_bound_s, loading_of
from perf_diagnostics.diagnose.loaders.preparation import AT_ONCE_S
from perf_diagnostics.diagnose.rule import Answer, Grade, cleared, evidence, grade, limit
from perf_diagnostics.diagnose.rule_parts.advice import cheaper_batches
from perf_diagnostics.diagnose.rule_parts.collector_pauses import in_the_wait
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.rule_parts.worker_advice import (
    IN_A_THREAD,
    ONE_ITERATOR,
    WHOLE_BATCHES,
    begins_cheaper,
    keep_workers,
    more_workers,
    streams_whole,
)
from perf_diagnostics.diagnose.statistics.intervals import mean_interval
from perf_diagnostics.diagnose.wording import duration, percent, percent_between
from perf_diagnostics.records import Phase


@dataclass(frozen=True)
class InputBound:
    """The training waits for its next batch.

    What it measures:
        The share of a step in which nothing but the wait for data goes on: on the CPU the time inside
        ``next(batches)``, on a device the stream's idle time inside it. Beside it, how much of the time of loading is
        computing, in the loop's own thread or in the workers (from 70 % on, loading is computing; up to 40 % it is
        waiting for disk, network or locks), and how many workers would keep up (INP003). Where for at least half of its
        wait for workers the loop takes over what they made (INP008), more of them are no advice; nor are they where for
        most of it the workers are started anew for a pass over the data (INP005).

    Why it matters:
        No faster model, device or precision helps while the data does not arrive.

    What to try:
        Waiting: more workers, prefetching, caching, larger shards; waiting workers need no core of their own.
        Computing: workers only as far as free cores go; beyond that cheaper decoding, preprocessing once and
        storing the result, or decoding on the device. Without workers they are advised only where a step is shorter
        even if each batch costs it the most that handing one over was measured to cost; else whole batches at once,
        where the loop was seen to collect them sample by sample. A data set that is a stream has to be split among
        workers by its own ``__iter__``: else each of them delivers all of it.

    When it is wrong:
        The first epoch of a cold cache waits for a disk that later epochs do not touch. Where the CPU time of running
        workers was not measured, or they had to wait for a core, waiting and computing cannot be told apart. On a CPU,
        workers take cores from the training: what is sure of the gain is capped by what all cores together can do with
        batches that cost what they do. What of a wait is left without the time for which others had the cores decides
        how much it matters, where the scheduler's count of that time is known; else a wait for workers whose own
        computing would keep up is only mentioned. So is, below the critical share, loading in the loop that takes no
        more for a sample than a bare loader may, where workers would not surely make it any shorter.
    """

    code: ClassVar[str] = "INP001"
    name: ClassVar[str] = "input-bound"
    family: ClassVar[Family] = Family.INPUT
    looks_at: ClassVar[Literal["trial"]] = "trial"

    info_share: float = field(
        default=0.05, metadata=limit("exposed wait over the step to mention", "TensorBoard and XProf advise from 5 %")
    )
    warn_share: float = field(default=0.10, metadata=limit("… to warn from", "TraceML warns from 10 %"))
    critical_share: float = field(
        default=0.20, metadata=limit("… that is critical", "XProf and TraceML call 20 % high")
    )
    sample_s: float = field(
        default=AT_ONCE_S,
        metadata=limit(
            "time a sample, in s, below which loading without workers that may win nothing is only mentioned",
            "rows of a tensor, fetched and stacked one by one: 8 µs each, 12 % of a step of 5 ms; as INP007",
        ),
    )
    computing_share: float = field(
        default=0.7, metadata=limit("CPU time over the wait from which loading is computing", "pilot: 0.98 to 1.0")
    )
    waiting_share: float = field(
        default=0.4, metadata=limit("CPU time over the wait up to which loading is waiting", "pilot: 0.27")
    )
    workers_per_core: float = field(
        default=4.0, metadata=limit("most workers to propose for each core while they only wait", "judgement")
    )

    def check(self, facts: TrialFacts) -> Answer:
        share = facts.exposed_data_wait_share
        levels = (
            (Severity.INFO, self.info_share),
            (Severity.WARNING, self.warn_share),
            (Severity.CRITICAL, self.critical_share),
        )
        found = grade(share, levels)
        if found is None:
            number = evidence("exposed data wait", share, "%", limit=self.info_share)
            return cleared(self, f"the wait for data takes {percent_between(share)} of a step", number)
        loading = loading_of(facts, share, computing_share=self.computing_share, waiting_share=self.waiting_share)
        tier = Tier.SHARE if loading.kind == "unknown" else Tier.SHARE_AND_CAUSE
        own, left, says = _without_others(facts, share)
        # A wait that was for cores, and others had them, is only mentioned.
        mentioned = Grade(Severity.INFO, self.info_share, sure=False)
        found = mentioned if own is share and says else grade(own, levels) or mentioned
        if found.severity is Severity.WARNING and self._is_cheap(facts, loading):
            found = Grade(Severity.INFO, self.info_share, sure=found.sure)
        workers = self._workers(facts, left, loading)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=found.severity,
            summary=_summary(share, loading) + _in_a_library(facts, loading) + says,
            scope=facts.label,
            evidence=(
                evidence("exposed data wait", share, "%", limit=found.limit),
                *_numbers(facts, loading, computing_share=self.computing_share),
            ),
            remedies=_remedies(facts, loading, workers),
            recoverable=_gain(facts, left, loading),
            confidence=confidence(tier, sure=found.sure, coverage=facts.coverage, thin=facts.thin),
            claims={str(Phase.DATA_WAIT): share.value},
            lines=_drawn_at(facts, share, loading) or _loaded_at(facts, share, loading),
            symptom_of=("INP004", "INP005", "INP008", "INP009", "CPU001", "CPU003", "MEM006"),
        )

    def _is_cheap(self, facts: TrialFacts, loading: Loading) -> bool:
        """Whether the loop's own loading takes what a bare loader does, and workers would not surely do it sooner."""
        known = loading.workers or loading.draws or loading.each or loading.starts
        if known or loading.kind == "waiting" or facts.on_accelerator or (loading.workers_pay and loading.workers_win):
            return False
        samples = ask(mean_interval, facts.column("samples"))
        return samples is not None and samples.value > 0 and loading.work_s < samples.value * self.sample_s

    def _workers(self, facts: TrialFacts, left: Interval, loading: Loading) -> int | None:
        """How many workers to load with; None where more of them will win nothing, or nobody knows that they may."""
        workers = loading.proposed(ask(facts.number, "cpu_count"), self.workers_per_core)
        if not loading.more_may_help or loading.workers is None or workers <= loading.workers:
            return None
        return workers if _gain(facts, left, loading).high >= _NOTHING else None


#: A gain of less than this share of a step is none.
_NOTHING = 0.005


def _remedies(facts: TrialFacts, loading: Loading, workers: int | None) -> tuple[Remedy, ...]:
    """What to try; ``workers`` is how many to load with, where that may win anything."""
    if loading.each:
        return (ONE_ITERATOR, *((WHOLE_BATCHES,) if loading.gathers else ()))
    if loading.starts:
        return (keep_workers(facts),) if loading.anew else begins_cheaper(facts)
    if loading.draws is not None:
        return (loading.draws.remedy,)
    besides = (loading.parts.remedy,) if loading.parts is not None and loading.parts.worth_saying else ()
    first = (keep_workers(facts),) if loading.starts_too else ()
    return (*first, *_of_making(facts, loading, workers), *besides)


def _of_making(facts: TrialFacts, loading: Loading, workers: int | None) -> tuple[Remedy, ...]:
    """The same for what is no drawing of indices: samples that are fetched, collated and handed over."""
    if not loading.workers_pay:
        return (WHOLE_BATCHES,)
    if loading.hands_over or (loading.rushed and not loading.cores_lacking):
        others = _without_workers(facts)
        return (loading.batch.fewer, others) if loading.batch.many else (others, WHOLE_BATCHES)
    if loading.sooner_alone:
        return (_without_workers(facts, _ALONE),)
    less = _LESS_WAITING if loading.kind == "waiting" else cheaper_batches(facts)
    if loading.gathers:
        less = WHOLE_BATCHES
    if workers is None:
        return (less, IN_A_THREAD) if loading.kind == "waiting" and not loading.workers else (less,)
    known = (f"now {loading.workers or 'none'}", loading.beside_needed(workers))
    more = more_workers(facts, workers, f" ({'; '.join(word for word in known if word)})")
    return (less, more) if streams_whole(facts) else (more, less)


_THEIRS = (
    " Others had the cores meanwhile, and for a batch the workers compute less than the loop does for a step: they may "
    "have waited for a core. Run it again on an idle machine."
)

#: From this part of a wait on that may have been for a core, it is said.
_WORTH_SAYING = 0.1


def _without_others(facts: TrialFacts, share: Interval) -> tuple[Interval, Interval, str]:
    """What would surely be left of the wait if no core had been lacking, all that may be left, and what to say of it.

    Where the scheduler's count is not known, the wait as it is, and whether it may have been for cores of others.
    """
    left = ask(run_delay.wait_left, facts, share)
    if left is None or not share.value > 0:
        return share, share, _THEIRS if left is None and ask(processor.workers_lack_cores, facts) else ""
    least, most = left
    part, largest = (min(1.0, end / share.value) for end in left)
    surely, low, high = share.scaled(part), *(share.value if end is None else end for end in (share.low, share.high))
    perhaps = Interval(share.value * (part + largest) / 2, low * part, high * largest, share.n)
    if part > 1 - _WORTH_SAYING:
        return surely, perhaps, ""
    known = most - least < _WORTH_SAYING
    says = f"about {percent(least)}" if known else f"between {percent(least)} and {percent(most)}"
    return surely, perhaps, f" With a core always free, {says} of a step would be waiting for data."


_LESS_WAITING = Remedy("Wait less for each batch: cache the data nearby, read larger pieces.")

_HANDING_OVER = "Try without workers: handing batches over may take longer than making them."
_ALONE = (
    "Try no workers, or fewer: for a batch they compute less time than the loop waits for a core. If they wait for "
    "disk or network besides, keep some."
)


def _without_workers(facts: TrialFacts, says: str = _HANDING_OVER) -> Remedy:
    """Switches that only workers know have to go with them."""
    settings = facts.result.trial.settings
    useless = [name for name in ("prefetch_factor", "persistent_workers") if getattr(settings, name) is not None]
    return Remedy(says, {"num_workers": 0, **dict.fromkeys(useless)})


def _gain(facts: TrialFacts, share: Interval, loading: Loading) -> Share:
    """What could be won: a cheaper batch may win all of the wait, and workers are advised only where cores bear them.

    Where loading computes, or may, no more is sure than what its work of today allows on the cores there are.
    """
    if loading.kind == "waiting" or (loading.starts and not loading.each):
        return recoverable(share, Family.INPUT)
    part = _needs_no_cores(loading)
    if part is not None:
        low, high = share.value if share.low is None else share.low, share.value if share.high is None else share.high
        # The thousands of objects that are gathered for a batch call the collector, whose pauses are no part of a wait.
        besides = in_the_wait(facts) if loading.gathers else 0.0
        sure = Interval(part.value * share.value, (part.low or 0.0) * low, min(1.0, high + besides), share.n)
        return recoverable(sure, Family.INPUT)
    return recoverable(share, Family.INPUT, cautious_floor=loading.left(core_bound_s(facts, loading)))


def _needs_no_cores(loading: Loading) -> Interval | None:
    """The part of the wait that goes away with one iterator, a cheaper sampler or whole batches; of the rest nothing is
    sure. None where that is no large part, or not known."""
    if loading.looks is not None and loading.each:
        return loading.looks.begins
    if loading.draws is not None:
        return loading.draws.draws
    return loading.looks.gathers if loading.looks is not None and loading.gathers else None


def _drawn_at(facts: TrialFacts, share: Interval, loading: Loading) -> tuple[CodeShare, ...]:
    """The sampler, where drawing is most of the wait, unless looks saw most of that in lines of it.

    A look may see plain Python only when it gives its lock away, in the data set that comes next.
    """
    draws = loading.draws
    if draws is None or draws.place is None or loading.each or loading.starts:
        return ()
    part, place = draws.draws.scaled(share.value), draws.place
    in_sampler = [
        one.share.value
        for one in code_shares(facts, Phase.DATA_WAIT)
        if any(at.file == place.file and at.function.startswith(place.function) for at in (one.place, *one.callers))
    ]
    if sum(in_sampler) >= part.value / 2:
        return ()
    return (
        CodeShare(
            place=place,
            callers=(),
            called="",
            phase=str(Phase.DATA_WAIT),
            share=part,
            looks=0,
            of_phase=draws.draws.value,
        ),
    )


def _loaded_at(facts: TrialFacts, share: Interval, loading: Loading) -> tuple[CodeShare, ...]:
    """The lines at which workers make the batches that the loop waits for; none where these were there in time."""
    return worker_shares(facts, share.value) if _made_late(loading) else ()


def _in_a_library(facts: TrialFacts, loading: Loading) -> str:
    """The library's function in which they do, where most of it is in no line of the user's own."""
    found = worker_library(facts) if _made_late(loading) else None
    return "" if found is None else f" For {percent(found[1])} of it the workers are in {found[0]}."


def _made_late(loading: Loading) -> bool:
    """Whether workers make the batches that the loop waits for too slowly."""
    in_time = loading.starts or loading.draws or loading.lay_ready or loading.hands_over or loading.rushed
    return bool(loading.workers) and not in_time


def _numbers(facts: TrialFacts, loading: Loading, *, computing_share: float) -> tuple[Evidence, ...]:
    wait = ask(lambda: facts.host_time_s(Phase.DATA_WAIT).scaled(1e3))
    # With workers the loop's own thread only unpacks what they made, which says nothing about the loading.
    own = ask(lambda: facts.data_wait_cpu_share) if loading.workers is None else None
    cpu = own or ask(computing_share_of, facts)
    cores = loading.free_cores if loading.kind == "computing" else None
    found = []
    if loading.looks is not None:
        found.append(evidence("gathering sample by sample within the wait", loading.looks.gathers, "%"))
    if loading.parts is not None and not loading.each:
        found += loading.parts.evidence
    if not (loading.may_idle or loading.rushed or loading.each or loading.draws):  # else they may keep up
        found.append(Evidence(metric="workers that would keep up", value=loading.needed, limit=cores))
    if loading.workers and loading.computes_s is not None:
        found.append(Evidence(metric="workers' CPU time a step", value=loading.computes_s * 1e3, unit="ms"))
    if wait is not None:
        found.insert(0, evidence("wait for data a step", wait, "ms"))
    if cpu is not None:
        found.insert(
            1,
            evidence(
                f"computing within the {'workers' if loading.workers else 'wait'}", cpu, "%", limit=computing_share
            ),
        )
    if loading.workers is not None:
        found.append(Evidence(metric="workers", value=loading.workers))
    if loading.free_cores is not None:
        found.append(Evidence(metric="free cores", value=loading.free_cores))
    return tuple(found)


#: What is said where that is no small part of the wait, and not most of it.
_STARTS = "starting the loader's workers, anew for each pass over the data"


def _takes_over(loading: Loading) -> str:
    """What the loop does where most of its wait is taking over."""
    if loading.parts is None or loading.parts.takes_over is None:
        return "the loop itself computes: it takes over what its workers made"
    pieces = f", {loading.batch.tensors:.0f} tensors one by one" if loading.batch.many else ""
    return f"a batch is there, and the loop takes it over from its worker{pieces}"


_TELLS = ", and a run without workers would tell"


def _summary(share: Interval, loading: Loading) -> str:
    says = f"The training waits for data {percent_between(share)} of each step."
    takes = loading.takes
    if loading.each:
        return f"{says} Nearly each step begins a pass over the data anew, with an iterator and its sampler's order."
    if loading.starts:
        return f"{says} For most of that {loading.start}."
    if loading.draws is not None:
        return f"{says} {loading.draws.says} Workers do not do that for the loop."
    if loading.parts is not None and loading.parts.worth_saying:
        says = f"{says} {loading.parts.says}"
    if not loading.workers_pay:
        return (
            f"{says} {takes}; taking one over from a worker costs the loop about {duration(loading.batch.least_s)}, "
            "so workers will not fix it."
        )
    gathers = " For most of it the loader fetches and stacks sample by sample." if loading.gathers else ""
    without = f" {percent(loading.delayed or 0.0)} without a core;" if loading.lacked_cores else ""
    rest = "of the rest " if without else ""
    how = {
        "computing": f"{takes},{without} nearly all {rest or 'of it '}computing.",
        "waiting": f"{takes},{without} most {rest or 'of it '}waiting for disk, network or locks.",
        "mixed": f"{takes},{without} part {rest}computing and part waiting.",
        "unknown": f"{takes}; whether it computes or waits was not measured{_TELLS if loading.workers else ''}.",
    }[loading.kind]
    if loading.starts_too:
        says = f"{says} {percent(loading.starts_share)} of that is {_STARTS}."
    if loading.hands_over:
        return f"{says} For most of {'the rest' if loading.starts_too else 'that'} {_takes_over(loading)}."
    if loading.lay_ready:
        how += " For most of the wait a batch lay ready, and the loop had no core to take it."
    if loading.rushed and not loading.lay_ready:
        how += " They come so close together that handing them over may be what takes the time."
    if loading.cores_lacking:
        how += f" {loading.cores_left}: more workers will not fix it."
    elif loading.cores_short and loading.workers_win:
        how += f" {loading.cores_left}: workers alone will not keep up."
    elif not loading.workers_win:
        costs = loading.batch.costs(loading.free_cores)
        how += f" Having one made by a worker costs the loop {costs}: workers may win nothing."
    return f"{says} {how}{gathers}"
