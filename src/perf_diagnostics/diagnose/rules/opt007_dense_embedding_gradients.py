"""OPT007: an embedding table of which a step looks up few rows gets a gradient and an update for all of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts.facts import Interval, NotApplicable, NotMeasured, TrialFacts, ask
from perf_diagnostics.diagnose.facts.gradient_facts import OptimizerGradients, optimizers_in_turn, require_all_told
from perf_diagnostics.diagnose.facts.update_facts import update_share
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import CHANGES_TRAINING, Answer, cleared, evidence, grade, limit
from perf_diagnostics.diagnose.rule_parts.gain import KAPPA_UNMEASURED, Tier, confidence, recoverable
from perf_diagnostics.diagnose.wording import percent, percent_between
from perf_diagnostics.records import Phase

#: A number that an optimizer of another kind updates may take as much longer at most: AdamW one by one took 95 ms where
#: a fused one took 10 (OPT001's pilot).
_DEARER_KIND = 10.0

_TELLS = Remedy(
    "What the table's gradients cost altogether, a run with the table frozen tells: table.weight.requires_grad_(False)."
)


@dataclass(frozen=True)
class DenseEmbeddingGradients:
    """Few rows of an embedding table are looked up in a step, and all of them get a gradient and an update.

    What it measures:
        Of the dense gradients of embedding tables in one of the first steps of a loop or trial: in how many of their
        rows they were not zero, and the part of the optimizer's numbers that the tables are. Tables of which at least
        half of the rows were left alone are taken together, from 131,072 numbers on. The share of the step that the
        update takes, times that part, times the rows that were not touched, is for nothing; on a device the optimizer's
        phase stands for the update. In a profiler window or trace of a device: its time on the zeros, and, by the
        numbers that an update moves for each of these, on their update; of the rows that were not looked up, where the
        trace tells sizes. Of the CPU: the time of the operators that make such gradients, and at most the update's.

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
            raise NotApplicable("embedding_rows", "no embedding tables of 131,072 numbers or more have dense gradients")
        tables = _Tables.of(facts)
        part = _part(facts, tables)
        share = update_share(facts)
        lost = share.scaled(tables.untouched * part)
        numbers = (
            evidence("update of untouched rows", lost, "%", limit=self.info_share),
            evidence("update", share, "%"),
            Evidence(metric="rows that a step did not touch", value=tables.untouched * 100, unit="%"),
            Evidence(
                metric="the table, of what the optimizer updates"
                if tables.count == 1
                else "these tables, of what the optimizer updates",
                value=part * 100,
                unit="%",
            ),
        )
        found = grade(lost, ((Severity.INFO, self.info_share), (Severity.WARNING, self.warn_share)))
        if found is None:
            says = f"updating rows that were not looked up takes {percent_between(lost)} of a step"
            return cleared(self, says, *numbers)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=found.severity,
            summary=f"{tables.touched_in_words}, and all of them are updated: {percent_between(lost)} of each step, "
            f"and in the backward the zeros of {tables.gradients_in_words}.",
            scope=facts.label,
            evidence=numbers,
            remedies=_remedies(facts, part, tables),
            recoverable=recoverable(_with_backward(facts, lost), self.family, realised=KAPPA_UNMEASURED),
            confidence=confidence(Tier.SHARE_AND_CAUSE, sure=found.sure, coverage=facts.coverage, thin=facts.thin),
            claims={str(Phase.OPTIMIZER): lost.value},
        )


@dataclass(frozen=True)
class _Tables:
    """The tables that are told: the ``largest`` by its name, ``touched`` of its ``rows``, and those beside it.

    ``numbers`` are those of all their gradients; ``untouched`` is the part of these in rows that were left alone, 0…1.
    """

    largest: str
    rows: float
    touched: float
    count: int
    numbers: float
    untouched: float

    @classmethod
    def of(cls, facts: TrialFacts) -> _Tables:
        rows, touched = facts.number("embedding_rows"), facts.number("embedding_rows_touched")
        if not rows > 0 or touched > rows:
            raise NotMeasured("embedding_rows", f"{touched:.0f} of {rows:.0f} rows cannot be")
        name = facts.word("embedding_gradient_of") or "an embedding table"
        count = int(ask(facts.number, "embedding_tables") or 1)
        if count == 1:
            return cls(name, rows, touched, 1, facts.number("embedding_gradient_numbers"), 1 - touched / rows)
        numbers, untouched = (facts.number(f"embedding_tables_{what}") for what in ("numbers", "untouched"))
        if not 0 <= untouched <= numbers:
            raise NotMeasured("embedding_tables", f"{untouched:.0f} of {numbers:.0f} numbers cannot be left alone")
        return cls(name, rows, touched, count, numbers, untouched / numbers if numbers else 0.0)

    @property
    def touched_in_words(self) -> str:
        touched = f"{self.touched:,.0f} of {self.rows:,.0f}"
        if self.count == 1:
            return f"A step touched {touched} rows of {self.largest}"
        left = f"Of {self.count} embedding tables a step left {percent(self.untouched)} of the rows alone"
        return f"{left} (of {self.largest}, the largest, it touched {touched})"

    @property
    def gradients_in_words(self) -> str:
        return "a gradient as large as the table" if self.count == 1 else "gradients as large as the tables"


def _part(facts: TrialFacts, tables: _Tables) -> float:
    """The part of the numbers that the optimizer updates which is the tables, 0…1; those with sparse gradients are few.

    Where several take turns, what each of them updates counts as often as it steps in a step of the loop, and where one
    is of another kind than the tables' as much more as its numbers may take longer at most.

    Raises:
        NotMeasured: the tables are larger than all that is updated, so that no optimizer holds them.
    """
    held = facts.number("gradients_used")
    dense = held - (ask(facts.number, "sparse_gradients") or 0.0)
    several = optimizers_in_turn(facts.result)
    turns = 1
    if several:
        holder = _holder(facts)
        turns, most = holder.turns, holder.used - holder.sparse
        dense = float(
            sum(
                (one.used - one.sparse) * one.turns * (1.0 if one.kind == holder.kind else _DEARER_KIND)
                for one in several
            )
        )
    else:
        most = int(dense)
    if tables.numbers > most:
        raise NotMeasured("embedding_gradient_numbers", "no optimizer holds the table that the gradient is of (CMP017)")
    return tables.numbers * turns / dense


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


def takes_sparse(kind: str, tables: str) -> str:
    """What updates from sparse gradients where an optimizer of that class does now."""
    if kind in ("SGD", "Adagrad"):
        return f"{kind} takes such gradients as they are"
    return f"torch.optim.SparseAdam for {tables}, today's optimizer for the rest"


def _remedies(facts: TrialFacts, part: float, tables: _Tables) -> tuple[Remedy, ...]:
    kind, implementation = facts.word("optimizer") or "", facts.word("optimizer_implementation")
    if optimizers_in_turn(facts.result):
        kind, implementation = _holder(facts).kind, _holder(facts).implementation
    names = tables.largest if tables.count == 1 else f"{tables.largest} and the other tables that are hardly touched"
    how = takes_sparse(kind, "the table" if tables.count == 1 else "the tables")
    found = [Remedy(f"Make {names} with sparse=True: {how}. {CHANGES_TRAINING}"), _TELLS]
    if kind in ("Adam", "AdamW") and implementation != "fused":
        found.append(
            Remedy(
                f"Or update {percent(part)} of the numbers at less cost: the fused implementation.",
                {"optimizer_implementation": "fused"},
            )
        )
    return tuple(found)
