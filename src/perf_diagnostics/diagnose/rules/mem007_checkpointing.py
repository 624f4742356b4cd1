"""MEM007: activation checkpointing is on where memory is free, or off where it would pay."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts import roofline
from perf_diagnostics.diagnose.facts.facts import Group, Interval, NotMeasured, Point, TrialFacts, ask
from perf_diagnostics.diagnose.facts.memory_facts import fullness
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity, Share
from perf_diagnostics.diagnose.rule import CHANGES_TRAINING, Answer, cleared, evidence, grade, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.statistics.scaling import fit_cost
from perf_diagnostics.diagnose.wording import percent, percent_between
from perf_diagnostics.records import Phase


@dataclass(frozen=True)
class Checkpointing:
    """Activation checkpointing does not pay, or would.

    What it measures:
        Where activations are computed again: how much of the memory is in use all the same, and the share of the step
        that the second computing takes. Where they are not and memory is full: whether a batch of twice the size, by
        the fixed cost a step in the sweep, would win more than checkpointing costs.

    Why it matters:
        Checkpointing buys memory with time, typically 20 to 25 % of it. That pays only where the memory is put to use:
        by a batch that is enough faster, or that would not fit at all.

    What to try:
        On, with room: switch it off, or checkpoint fewer blocks. Off, without room: switch it on and double the batch,
        and measure both.

    When it is wrong:
        The larger batch was not run: its throughput is read off the line through the smaller ones. The price is taken
        from published trainings. Unless the step's operations were counted, what is computed again is known only to lie
        between a quarter of forward and backward and all of forward.
    """

    code: ClassVar[str] = "MEM007"
    name: ClassVar[str] = "checkpointing"
    family: ClassVar[Family] = Family.MEMORY
    looks_at: ClassVar[Literal["group"]] = "group"

    room: float = field(
        default=0.60, metadata=limit("memory in use up to which it can be spared", "the catalogue's 60 %")
    )
    full: float = field(default=0.90, metadata=limit("memory in use from which more is wanted", "MEM001's warning"))
    price: float = field(
        default=0.22, metadata=limit("throughput that checkpointing costs", "Machine Learning Engineering: 20 to 25 %")
    )
    warn_share: float = field(
        default=0.05, metadata=limit("recomputing over the step to warn from, where memory is free", "judgement")
    )
    least_gain: float = field(default=0.05, metadata=limit("throughput it has to win to be advised", "judgement"))

    def check(self, group: Group) -> Answer:
        point = group.recommended
        used = point.largest(_fullness)
        if used is None:
            raise NotMeasured("memory", "how much of the memory is in use was not measured")
        return self._on(group, point, used) if _is_on(group, point) else self._off(group, used)

    def _on(self, group: Group, point: Point, used: float) -> Answer:
        memory = Evidence(metric="memory in use", value=100 * used, unit="%", limit=100 * self.room)
        if used > self.room:
            return cleared(self, f"activations are computed again, and {percent(used)} of the memory is in use", memory)
        again = point.pooled(_recomputing)
        counted = all(ask(trial.number, "recomputed_flops_share") is not None for trial in point.trials)
        level = grade(again, ((Severity.WARNING, self.warn_share),))
        number = evidence("computing again", again, "%", limit=self.warn_share)
        if level is None:
            return cleared(self, f"computing again takes {percent(again.value)} of a step", memory, number)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=level.severity if counted or level.sure else Severity.INFO,
            summary=f"Activations are computed a second time, {percent_between(again)} of a step, "
            f"while only {percent(used)} of the memory is in use.",
            scope=group.label,
            evidence=(number, memory),
            remedies=(Remedy("Keep the activations: there is room for them.", {"gradient_checkpointing": False}),),
            recoverable=recoverable(again, Family.COMPUTE),
            confidence=confidence(
                Tier.SHARE if counted else Tier.SWITCH, sure=level.sure, thin=any(t.thin for t in point.trials)
            ),
            batch_sizes=(point.batch_size,),
        )

    def _off(self, group: Group, used: float) -> Answer:
        last = group.points[-1]
        fill = last.largest(_fullness)
        used = used if fill is None else fill
        memory = Evidence(metric="memory in use", value=100 * used, unit="%", limit=100 * self.full)
        if used < self.full:
            return cleared(self, f"nothing is computed again, and {percent(used)} of the memory is in use", memory)
        cost = fit_cost([p.samples_per_step for p in group.points], [p.step_time_s.value for p in group.points])
        samples = last.samples_per_step
        now = samples / (cost.overhead_s.value + samples * cost.per_sample_s.value)
        twice = 2 * samples / (cost.overhead_s.value + 2 * samples * cost.per_sample_s.value)
        gain = twice * (1 - self.price) / now - 1
        numbers = (
            memory,
            Evidence(metric="throughput at twice the batch, checkpointed", value=100 * gain, unit="%", limit=5.0),
        )
        if gain < self.least_gain:
            won = percent(max(0.0, twice / now - 1))
            says = f"twice the batch would win {won}, and checkpointing costs {percent(self.price)}"
            return cleared(self, says, *numbers)
        saved = 1 - 1 / (1 + gain)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.INFO,
            summary=f"{percent(used)} of the memory is in use at batch {last.batch_size}, and a step has a fixed cost: "
            f"checkpointed at twice the batch, throughput would be {percent(gain)} higher.",
            scope=group.label,
            evidence=numbers,
            remedies=(
                Remedy(
                    f"Checkpoint activations and double the batch. {CHANGES_TRAINING}",
                    {"gradient_checkpointing": True, "batch_size": 2 * last.batch_size},
                ),
            ),
            recoverable=Share(saved / 2, 0.0, saved),
            confidence=confidence(Tier.SHARE, sure=False, thin=any(trial.thin for trial in last.trials)),
            batch_sizes=(last.batch_size,),
        )


def _is_on(group: Group, point: Point) -> bool:
    chosen = group.settings.get("gradient_checkpointing")
    if isinstance(chosen, bool):
        return chosen
    known = [trial.result.facts for trial in point.trials]
    if any(facts.get("gradient_checkpointing") is True for facts in known):
        return True
    counted = [ask(trial.number, "recomputed_flops_share") for trial in point.trials]
    if any(share is not None for share in counted):
        return any(share is not None and share >= LEAST_AGAIN for share in counted)
    if not any("matmul_precision" in facts for facts in known):
        raise NotMeasured("gradient_checkpointing", "nobody looked whether activations are computed again")
    if any("gradient_checkpointing" in facts and facts["gradient_checkpointing"] is None for facts in known):
        raise NotMeasured(
            "gradient_checkpointing", "parts of the model are compiled, where computing activations again is not seen"
        )
    return False


#: Operations done again below this share are none that checkpointing would make.
LEAST_AGAIN = 0.02

#: Forward over forward, twice that backward, and forward again.
_UNCOUNTED = 0.25


def _recomputing(trial: TrialFacts) -> Interval:
    """The share of the step in which activations are computed again.

    Where operations were counted, that part of forward and backward. Else it lies between a quarter of these, which it
    is where backward computes twice what forward does, and all that forward took, which is what is done again: on a
    CPU, where a backward may take no longer than a forward, a quarter is too little (GPT-2 with 4 blocks, 2 cores: a
    quarter was 24 %, forward 32 %, and without checkpointing a step's CPU time was 29 % less). It lies in backward, and
    is no longer than that.
    """
    counted = ask(trial.number, "recomputed_flops_share")
    both = roofline.computing(trial)
    if counted is not None:
        return both.scaled(counted)
    quarter = both.scaled(_UNCOUNTED)
    passes = ask(trial.share, Phase.FORWARD), ask(trial.share, Phase.BACKWARD)
    again = min((one for one in passes if one is not None), key=lambda one: one.value, default=quarter)
    less, more = sorted((quarter, again), key=lambda one: one.value)
    if again is less:  # no longer than the first time
        more = less
    low, high = less.value if less.low is None else less.low, more.value if more.high is None else more.high
    return Interval((less.value + more.value) / 2, low, high, both.n)


def _fullness(trial: TrialFacts) -> float:
    found = fullness(trial)
    if found is None:
        raise NotMeasured("memory", "how much of the memory is in use was not measured")
    return found
