"""OPT007: an embedding table of which a step looks up few rows gets a gradient and an update for all of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts import Interval, NotApplicable, NotMeasured, TrialFacts, ask
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.gain import KAPPA_UNMEASURED, Tier, confidence, recoverable
from perf_diagnostics.diagnose.gradient_facts import OptimizerGradients, optimizers_in_turn, require_all_told
from perf_diagnostics.diagnose.rule import CHANGES_TRAINING, Answer, cleared, evidence, grade, limit
from perf_diagnostics.diagnose.update_facts import update_share
from perf_diagnostics.diagnose.wording import percent, percent_between
from perf_diagnostics.records import Phase

_TELLS = Remedy(
    "What the table's gradients cost altogether, a run with the table frozen tells: table.weight.requires_grad_(False)."
)


@dataclass(frozen=True)
class DenseEmbeddingGradients:
    """Few rows of an embedding table are looked up in a step, and all of them get a gradient and an update.

    What it measures:
        Of the largest dense gradient of an embedding table in one of the first steps of a watched loop: in how many of
        its rows it was not zero, and the part of the optimizer's numbers that the table is. The share of the step that
        the update takes, times that part, times the rows that were not touched, is for nothing; on a device the
        optimizer's phase stands for the update.

    Why it matters:
        The backward makes a tensor as large as the table and fills it with zeros, and the optimizer reads and writes
        all of it. With 400,000 rows of 32 numbers, of which a batch touched 2,000, a step took 63 ms with fused Adam
        (update 14, backward 40) and 8 ms with sparse gradients; with SGD 62 and 4 ms (torch 2.13, one core).

    What to try:
        ``torch.nn.Embedding(…, sparse=True)``, its table in an optimizer of its own that takes such gradients
        (SparseAdam, Adagrad, SGD); the fused optimizer, where that is not wanted.

    When it is wrong:
        One step was looked at; batches may touch other numbers of rows. What the backward loses is not measured: it is
        in the upper end of the gain alone. SparseAdam leaves rows alone that a batch does not touch, where Adam moves
        them by their momentum; weight decay and clipping by norm may refuse sparse gradients, and NCCL does not
        exchange them (gloo does).
    """

    code: ClassVar[str] = "OPT007"
    name: ClassVar[str] = "dense-embedding-gradients"
    family: ClassVar[Family] = Family.OPTIMIZER
    looks_at: ClassVar[Literal["trial"]] = "trial"

    info_share: float = field(
        default=0.05, metadata=limit("update of untouched rows over the step to mention", "as OPT001 above its floor")
    )
    warn_share: float = field(default=0.15, metadata=limit("… to warn from", "as OPT001 above its floor"))

    def check(self, facts: TrialFacts) -> Answer:
        known = facts.result.facts
        if "embedding_rows" not in known:
            if "sparse_gradients" not in known:
                require_all_told(facts.result, "embedding_rows")
                raise NotMeasured("embedding_rows", "nobody looked at the gradients of embedding tables")
            raise NotApplicable("embedding_rows", "no embedding table of a million numbers has a dense gradient")
        untouched, part = _untouched(facts), _part(facts)
        share = update_share(facts)
        lost = share.scaled(untouched * part)
        numbers = (
            evidence("update of untouched rows", lost, "%", limit=self.info_share),
            evidence("update", share, "%"),
            Evidence(metric="rows that a step did not touch", value=untouched * 100, unit="%"),
            Evidence(metric="the table, of what the optimizer updates", value=part * 100, unit="%"),
        )
        found = grade(lost, ((Severity.INFO, self.info_share), (Severity.WARNING, self.warn_share)))
        if found is None:
            return cleared(self, f"updating rows that were not looked up takes {percent_between(lost)}", *numbers)
        name = facts.word("embedding_gradient_of") or "an embedding table"
        touched, rows = (f"{facts.number(f'embedding_{what}'):,.0f}" for what in ("rows_touched", "rows"))
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=found.severity,
            summary=f"A step touched {touched} of {rows} rows of {name}, and all of them are updated: "
            f"{percent_between(lost)} of each step, and in the backward the zeros of a gradient as large as the table.",
            scope=facts.label,
            evidence=numbers,
            remedies=_remedies(facts, part),
            recoverable=recoverable(_with_backward(facts, lost), self.family, realised=KAPPA_UNMEASURED),
            confidence=confidence(Tier.SHARE_AND_CAUSE, sure=found.sure, coverage=facts.coverage, thin=facts.thin),
            claims={str(Phase.OPTIMIZER): lost.value},
        )


def _untouched(facts: TrialFacts) -> float:
    """The part of the table's rows that the step did not touch, 0…1."""
    rows, touched = facts.number("embedding_rows"), facts.number("embedding_rows_touched")
    if not rows > 0 or touched > rows:
        raise NotMeasured("embedding_rows", f"{touched:.0f} of {rows:.0f} rows cannot be")
    return 1 - touched / rows


def _part(facts: TrialFacts) -> float:
    """The part of the numbers that the optimizer updates which is the table, 0…1; those with sparse gradients are few.

    Where several of one kind take turns, what each of them updates counts as often as it steps in a step of the loop.

    Raises:
        NotMeasured: the table is larger than all that is updated, so that no optimizer holds it; or optimizers of
            several kinds take turns, whose updates of a number do not take the same time.
    """
    table, held = facts.number("embedding_gradient_numbers"), facts.number("gradients_used")
    dense = held - (ask(facts.number, "sparse_gradients") or 0.0)
    several = optimizers_in_turn(facts.result)
    turns = 1
    if several:
        if len({one.kind for one in several if one.used > one.sparse}) > 1:
            raise NotMeasured("embedding_gradient_numbers", "optimizers of several kinds share the update's time")
        holder = _holder(facts)
        turns, most = holder.turns, holder.used - holder.sparse
        dense = float(sum((one.used - one.sparse) * one.turns for one in several))
    else:
        most = int(dense)
    if table > most:
        raise NotMeasured("embedding_gradient_numbers", "no optimizer holds the table that the gradient is of (CMP017)")
    return table * turns / dense


def _holder(facts: TrialFacts) -> OptimizerGradients:
    """The one of several optimizers after whose steps the table's gradient was seen."""
    place = ask(facts.number, "embedding_gradient_optimizer")
    for one in optimizers_in_turn(facts.result):
        if one.place == place:
            return one
    raise NotMeasured("embedding_gradient_numbers", "which of the optimizers holds the table was not recorded")


def _with_backward(facts: TrialFacts, lost: Interval) -> Interval:
    """With an upper end that holds all of the backward: what of it makes the table's zeros is not known."""
    backward = ask(facts.share, Phase.BACKWARD)
    most = lost.value if lost.high is None else lost.high
    return lost if backward is None else lost.reaching(min(1.0, most + backward.value))


def _remedies(facts: TrialFacts, part: float) -> tuple[Remedy, ...]:
    kind, implementation = facts.word("optimizer") or "", facts.word("optimizer_implementation")
    if optimizers_in_turn(facts.result):
        kind, implementation = _holder(facts).kind, _holder(facts).implementation
    name = facts.word("embedding_gradient_of") or "the table"
    takes = {"SGD": "SGD takes such gradients as they are", "Adagrad": "Adagrad takes such gradients as they are"}
    how = takes.get(kind, "torch.optim.SparseAdam for the table, today's optimizer for the rest")
    found = [Remedy(f"Make {name} with sparse=True: {how}. {CHANGES_TRAINING}"), _TELLS]
    if kind in ("Adam", "AdamW") and implementation != "fused":
        found.append(
            Remedy(
                f"Or update {percent(part)} of the numbers less dearly: the fused implementation.",
                {"optimizer_implementation": "fused"},
            )
        )
    return tuple(found)
