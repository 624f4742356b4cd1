"""CMP023: matrix products with an operand that is nearly all zeros: most of what they compute is nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.code.code_words import at_line
from perf_diagnostics.diagnose.code.passing_looks import TimeAt, time_at
from perf_diagnostics.diagnose.facts.facts import Interval, TrialFacts, ask
from perf_diagnostics.diagnose.facts.operator_facts import claims_of, share_of_step
from perf_diagnostics.diagnose.facts.product_facts import (
    ZeroProduct,
    operators_of,
    share_of_operations,
    zero_products,
)
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.rule_parts.one_step import in_one_step, with_what_goes_beside
from perf_diagnostics.diagnose.rule_parts.zeros import zeros_in_words
from perf_diagnostics.diagnose.wording import and_more_lines, percent, percent_between
from perf_diagnostics.records import Phase

#: What gathering a row of the other operand for one number takes on a CPU, over what the dense product takes for that
#: number: whatever the row's length, and what is shared among the numbers of the row.
_A_ROW, _A_CALL = 12.0, 8000.0

_LOOK_UP = Remedy(
    "If its rows are one-hot: do not make them. nn.Embedding(classes, width)(ids), or weight.T[ids] for a Linear's "
    "weight, picks the rows that such a product adds to zeros; its result is the same."
)
ONE_HOT_ROWS = Remedy(
    "Its rows are one-hot, with one number other than zero each: pick rows instead. nn.Embedding(classes, "
    "width)(ids), or weight.T[ids] for a Linear's weight, gives the same; where that number is not 1, multiply by it."
)
_BAG = Remedy(
    "If a row lists which of many things a sample has (tags, words, items): keep their numbers, and add up their rows "
    "with nn.EmbeddingBag(things, width, mode='sum')."
)
_GATHER = Remedy(
    "If it is a graph's adjacency, or routes rows to places: keep the pairs of indices, and add up rows "
    "(index_select and index_add, or scatter), or keep the matrix as torch.sparse CSR, which multiplies what is there."
)
_ATTENTION = Remedy(
    "If it holds attention's weights, of which a mask leaves few: torch.nn.attention.flex_attention skips blocks that "
    "the mask empties."
)
_TIME = Remedy("What its products take, --deep shows operator by operator; or time a step without them.")

_NOT_TIMED = "how long they take was not measured"


@dataclass(frozen=True)
class ProductsWithZeros:
    """Matrix products have an operand that is nearly all zeros, so that most of what they compute is nothing.

    What it measures:
        In a step of a loop or trial, which is none of those that count: the operations of all products, convolutions
        and attention that have a formula (torch.utils.flop_counter), and of how many zeros the operands of mm, addmm,
        bmm and baddbmm in forward and loss were: by 2,048 numbers drawn at random, and where these are nearly all
        zeros by counting up to four million, with the most that one of 128 rows has. What backward computes with the
        same operand counts with it. Parameters are not looked at, and what is nothing but zeros does not count. How
        long these products take is seen in that step as well, on the CPU, with what made their operand of tensors of
        its size (zeros, the ones in them, a cast), and by the looks at the lines that ask for them. In a trace with
        sizes: rows that ``one_hot`` makes and the next products multiply, by what both take.

    Why it matters:
        A dense product multiplies zeros like other numbers. One-hot rows of 6,000 classes times a weight are a look-up
        of one row each, and took 41 % of a small language model's step; the dense adjacency of 48 graphs of 24 nodes,
        two of a thousand of which were ones, took 60 % (torch 2.13, one core).

    What to try:
        Look rows up (nn.Embedding, indexing) instead of multiplying one-hot rows; gather and add up the rows of
        neighbours (index_add, scatter), or torch.sparse, instead of a dense adjacency.

    When it is wrong:
        One step was looked at; what is sparse in it may fill later. Weights that were pruned on purpose are zeros, too:
        their product costs as much as before pruning, and looking up rows is no help. Sparse products of torch pay off
        from about 99 % zeros on, on GPUs later; looking up and adding up rows pays off from 95 to 99 % on, by the
        length of a row, which is estimated on a CPU. A share of operations is no share of time: on a device, without
        looks at the lines, the time is not known, and a line may do other things as well.
        Compiled models and recurrent layers in one kernel are not looked at.
    """

    code: ClassVar[str] = "CMP023"
    name: ClassVar[str] = "products-with-zeros"
    family: ClassVar[Family] = Family.COMPUTE
    looks_at: ClassVar[Literal["trial"]] = "trial"

    least_zeros: float = field(
        default=0.95,
        metadata=limit("part of an operand that is zeros", "ReLU outputs have 50 to 90 %; a judgement"),
    )
    info_share: float = field(
        default=0.10, metadata=limit("share of a step's operations in such products to mention", "judgement")
    )
    warn_share: float = field(
        default=0.10, metadata=limit("share of the step that is saved to warn from", "as HST006; a judgement")
    )

    least_saved: float = field(
        default=0.20, metadata=limit("part of a product that gathering rows saves on a CPU", "judgement")
    )

    def check(self, facts: TrialFacts) -> Answer:
        zeros = [one for one in zero_products(facts) if one.zeros >= self.least_zeros]
        products = [one for one in zeros if facts.on_accelerator or 1 - _left(one) >= self.least_saved]
        operations = share_of_operations(products)
        numbers = [
            Evidence(
                metric="products with an operand of zeros, of all operations",
                value=operations * 100,
                unit="%",
                limit=self.info_share * 100,
            )
        ]
        if zeros and not products:
            says = "gathering rows would take about as long as the products with zeros"
            return cleared(self, says, Evidence(metric="zeros in the operand", value=zeros[0].zeros * 100, unit="%"))
        took = _took(facts, products) if products else None
        # Making them may take longer than multiplying them does.
        timed = took is not None and took.operators is not None and took.operators.value >= self.warn_share
        if not products or (operations < self.info_share and not timed):
            return cleared(self, "no operand that is nearly all zeros takes a considerable part", *numbers)
        first = products[0]
        numbers.append(Evidence(metric="zeros in the operand", value=first.zeros * 100, unit="%"))
        saved = None if took is None or not took.is_known else _saved(facts, products, took.share)
        graded = None if saved is None else grade(saved, ((Severity.WARNING, self.warn_share),))
        if took is not None:
            numbers += took.evidence(self.warn_share)
        sure = graded is not None and graded.sure
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.INFO if graded is None else graded.severity,
            summary=_summary(products, operations, took),
            scope=facts.label,
            evidence=tuple(numbers),
            remedies=_remedies(first, timed=took is not None and took.is_known),
            recoverable=None
            if took is None or saved is None
            else recoverable(_won(facts, products, saved, by_lines=took.operators is None), self.family),
            confidence=confidence(
                Tier.SHARE_AND_CAUSE if sure else Tier.SHARE, sure=True, coverage=facts.coverage, thin=facts.thin
            ),
            claims={} if took is None else took.phases,
        )


@dataclass(frozen=True)
class _Took:
    """What of a step goes into the products: by the looks at their lines, and by one step's operators."""

    lines: TimeAt | None
    operators: Interval | None
    phases: Mapping[str, float]

    @property
    def is_known(self) -> bool:
        """Whether anything of it was seen."""
        return self.operators is not None or (self.lines is not None and self.lines.looks > 0)

    @property
    def share(self) -> Interval:
        """That of the operators where they were timed: other products may stand in the same line."""
        if self.operators is not None:
            return self.operators
        assert self.lines is not None
        return self.lines.share

    def evidence(self, limit: float) -> list[Evidence]:
        found = []
        if self.lines is not None:
            found.append(evidence("the lines of these products", self.lines.share, "%", limit=limit))
        if self.operators is not None:
            found.append(in_one_step("these products, and making their operand", self.operators, limit=limit))
        return found


def _took(facts: TrialFacts, products: Sequence[ZeroProduct]) -> _Took | None:
    lines = ask(time_at, facts, lambda line: any(one.is_at(line) for one in products))
    at = ask(lambda: operators_of(facts, products, making=True))
    operators = None if at is None else ask(share_of_step, facts, at)
    if at is None or operators is None:
        return None if lines is None else _Took(lines, None, lines.phases)
    if any(one.most_in_a_row != 1 for one in products):
        # Rows that are not one-hot may be made of what is needed anyway.
        alone = ask(lambda: share_of_step(facts, operators_of(facts, products, making=False)))
        operators = dataclasses.replace(operators, low=None if alone is None else alone.low)
    return _Took(lines, operators, claims_of(facts, at))


def _left(product: ZeroProduct, factor: float = 1.0) -> float:
    """The part of a dense product's time on a CPU that gathering the rows for what is not zero takes, 0…1.

    Fitted to embedding_bag with its backward beside the dense product, of 256 rows (torch 2.13, two cores with
    AVX-512):

    ============================  ==========================================================
    rows of 1,536 numbers, 512    0.09 at 0.2 % that is not zero, 0.19 at 0.8, 0.44 at 3.1, 0.68 at 4.7, 0.94 at 9.4
    rows of 1,000 numbers, 1,000  0.53 at 2.4 %, 0.86 at 4.8
    rows of 256 numbers, 4,096    0.39 at 0.6 %, 0.57 at 1.2
    rows of 64 numbers, 2,048     0.43 at 0.4 %, 0.95 at 0.8
    ============================  ==========================================================
    """
    return min(1.0, factor * (1 - product.zeros) * (_A_ROW + _A_CALL / product.columns))


def _saved(facts: TrialFacts, products: Sequence[ZeroProduct], took: Interval) -> Interval:
    """What gathering would save of that; its ends allow for twice and for half of what it takes."""
    if facts.on_accelerator:
        return took
    whole = sum(one.whole for one in products)
    value, low, high = (
        1 - sum(one.whole * _left(one, factor) for one in products) / whole if whole > 0 else 0.0
        for factor in (1.0, 2.0, 0.5)
    )
    least = took.value if took.low is None else took.low
    most = took.value if took.high is None else took.high
    return Interval(took.value * value, least * low, most * high, took.n)


def _summary(products: Sequence[ZeroProduct], operations: float, took: _Took | None) -> str:
    first = products[0]
    size = "×".join(str(size) for size in first.shape)
    more = and_more_lines(len(products))
    known = took is not None and took.is_known
    time = _NOT_TIMED
    if took is not None and known:
        what = "these lines" if took.operators is None else "with the making of it and backward they"
        time = f"{what} take {percent_between(took.share)} of each step"
    return (
        f"{percent(operations)} of a step's operations are matrix products with an operand that is nearly all zeros: "
        # Its text only where the looks do not show the line beside it.
        f"{zeros_in_words(first.zeros)} of its {size} numbers{at_line(first.place, with_text=not known)}{more}; {time}."
    )


def _remedies(first: ZeroProduct, *, timed: bool) -> tuple[Remedy, ...]:
    attention = (_ATTENTION,) if first.operation in ("bmm", "baddbmm") else ()
    return (*_usual(first), *attention, *(() if timed else (_TIME,)))


def _usual(first: ZeroProduct) -> tuple[Remedy, ...]:
    """What to do instead of the product, the likeliest first."""
    if first.most_in_a_row == 1:
        return (ONE_HOT_ROWS,)
    # Between things of one kind, as the nodes of a graph are; classes are seldom as many as rows.
    square = len(first.shape) > 1 and first.shape[-1] == first.shape[-2]
    other = _LOOK_UP if first.most_in_a_row is None else _BAG
    return (_GATHER, other) if square else (other, _GATHER)


def _won(facts: TrialFacts, products: Sequence[ZeroProduct], saved: Interval, *, by_lines: bool) -> Interval:
    """What is saved, with what goes with operators in others' time; by lines alone with an upper end that holds their
    part of backward's operations as a part of its time.
    """
    if not by_lines:
        return with_what_goes_beside(facts, saved)
    backward = ask(facts.share, Phase.BACKWARD)
    most = saved.value if saved.high is None else saved.high
    there = 0.0 if backward is None else backward.value * min(1.0, sum(one.backward for one in products))
    return saved.reaching(min(1.0, most + there))
