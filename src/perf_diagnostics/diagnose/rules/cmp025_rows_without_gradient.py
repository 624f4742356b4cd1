"""CMP025: many of the rows that products compute got no gradient: the loss made no use of what came out for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.code.code_words import at_line
from perf_diagnostics.diagnose.facts.facts import Interval, TrialFacts, ask
from perf_diagnostics.diagnose.facts.operator_facts import operators_at
from perf_diagnostics.diagnose.facts.padding_facts import padding as padding_of
from perf_diagnostics.diagnose.facts.product_facts import IdleRows, rows_without_gradient, share_of_operations
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.wording import and_more_lines, percent
from perf_diagnostics.records import Phase

#: Of the trace rule, too.
SELECT = Remedy(
    "If the loss leaves these rows out (labels of -100, a mask, padding): select the other rows before the layer, as "
    "in head(hidden[labels != -100]), and compute the loss of those. Its value and gradients are the same."
)
_PADDING = Remedy(
    "If they are padding up to a fixed length: pad each batch to its own longest sample only, and let batches hold "
    "samples of similar length."
)
_ROUTE = Remedy(
    "If what comes out is multiplied by a mask of zeros and ones (experts, branches, tasks): give each part its own "
    "rows only (index_select), and put what it says back in its places (index_add, index_copy)."
)
_NOTHING = Remedy(
    "No row has a gradient there, so nothing before that line learns from this loss: look for ReLUs without a living "
    "unit, a saturated output, a factor of zero. If it is meant so, compute that part under torch.no_grad()."
)
_DEAD = Remedy(
    "If nothing leaves them out: units that are 0 for nearly every sample (dead ReLUs, a saturated output) pass no "
    "gradient on, and little is learnt of these samples: a lower learning rate, another initialisation."
)
_LAST = Remedy(
    "If only one position is used (the first token, the last step): take it before the layers that treat each position "
    "by itself; a last attention block needs only its query."
)
_HINGE = Remedy(
    "If the loss decides it (a margin that is kept, a clipped ratio): forward has to be computed, but backward only "
    "for the rows that have a loss."
)

#: Less padding than this is none to speak of.
_NO_PADDING = 0.05

#: Up to so many rows a sample with a gradient, each sample uses one of its own; they are counted in random rows.
_ONE_EACH = 1.5

#: Of operations for nothing it is only backward's that a fix surely saves: a loss may have to see a row first. What is
#: computed beside products (activations, softmax) goes with them, and may take longer than they do.
_MORE_THAN_PRODUCTS = 1.2


#: From here on the part is told by what is left, all rows having been looked at: 128 drawn ones do not tell so much.
_NEARLY_ALL = 0.995

#: Where at least this part of such rows comes by way of a choice of the largest, this is why: a judgement.
_CHOSEN = 0.5

#: Rows of all layers of a model are at least this part of its operations, as a part of theirs.
_IN_ALL_LAYERS = 0.5


@dataclass(frozen=True)
class RowsWithoutGradient:
    """Many rows of the products got no gradient, so that the loss made no use of what was computed for them.

    What it measures:
        In a step of a loop or trial, which is none of those that count: for each matrix product and convolution of
        the models' forward the gradient that backward multiplies with its weight or input, and how many of its rows
        (tokens, samples, positions) are nothing but zeros, by 128 rows drawn at random, some of them looked at whole.
        The product's operations in forward and backward count by that part. A warning is given where backward's part of
        them surely takes a sizeable share of the step and the rows are no whole samples (positions, tokens): samples
        that are learnt already, or of which a teacher is not sure, get no gradient either. Where a library's model uses
        one position a sample, as classifiers do with their first token, or predicts some positions after its last
        layer, that is how it is built, and is an info.

    Why it matters:
        A row without a gradient cost as much as the others. A head over a vocabulary for all positions, of which one
        in seven is predicted, and six experts that each compute all tokens, took 59 % and 69 % of a step for nothing
        (torch 2.13, one core).

    What to try:
        Select the rows that count before the layer that treats each row by itself; give experts and branches their own
        rows only; pad less.

    When it is wrong:
        What comes out may be used without a gradient: a metric over all positions, statistics of a batch norm, a memory
        bank. A loss with a margin has to see a row to know that it counts for nothing: of whole samples that cannot be
        told apart, and is an info. Layers that mix rows (attention, batch norm, recurrent ones) need rows that get no
        gradient themselves: only what is said of the products holds. Stochastic depth leaves rows out on purpose. A
        share of operations is not quite a share of time. One step was looked at; compiled models and recurrent layers
        in one kernel are not.
    """

    code: ClassVar[str] = "CMP025"
    name: ClassVar[str] = "rows-without-gradient"
    family: ClassVar[Family] = Family.COMPUTE
    looks_at: ClassVar[Literal["trial"]] = "trial"

    least_rows: float = field(
        default=0.5,
        metadata=limit(
            "part of a line's rows without a gradient", "stochastic depth leaves out 10 to 30 %; a judgement"
        ),
    )
    info_share: float = field(
        default=0.10, metadata=limit("share of a step's operations for such rows to mention", "judgement")
    )

    warn_share: float = field(
        default=0.10,
        metadata=limit("share of the step that backward computes for such rows to warn from", "as CMP029; a judgement"),
    )
    most_views: int = field(
        default=4, metadata=limit("rows a sample that the loss may choose among as samples", "judgement: views, pairs")
    )

    def check(self, facts: TrialFacts) -> Answer:
        idle = [one for one in rows_without_gradient(facts) if one.rows >= self.least_rows]
        if ask(operators_at, facts, "zero_factors"):
            idle = [one for one in idle if one.rows < 1]  # CMP037 tells what is multiplied by 0
        chosen = [one for one in idle if one.chosen >= _CHOSEN]
        idle = [one for one in idle if one.chosen < _CHOSEN]
        operations = share_of_operations(idle)
        numbers = [
            Evidence(
                metric="operations for rows without a gradient, of all",
                value=operations * 100,
                unit="%",
                limit=self.info_share * 100,
            )
        ]
        if not idle or operations < self.info_share:
            but = " but for those of which a maximum chooses others, as it can when it has seen them" if chosen else ""
            return cleared(self, f"no considerable part of the products is for rows without a gradient{but}", *numbers)
        first = idle[0]
        numbers.append(Evidence(metric="rows without a gradient there", value=first.rows * 100, unit="%"))
        padding = ask(padding_of, facts)
        if padding is not None:
            numbers.append(Evidence(metric="padding among the tokens", value=padding.value * 100, unit="%"))
            if all(one.rows <= padding.value + self.info_share for one in idle):
                return cleared(self, "the rows without a gradient are as many as padding is (CMP004)", *numbers)
        samples = max((one.shape[0] for one in idle if one.shape), default=0) <= self.most_views * facts.batch_size
        lost = _lost(facts, idle, samples=samples)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=self._severity(lost, bound=samples or _as_built(idle, facts.batch_size)),
            summary=_summary(idle, operations),
            scope=facts.label,
            evidence=tuple(numbers),
            remedies=(
                *_remedies(first, facts.batch_size, padded=padding is None or padding.value >= _NO_PADDING),
                *((_DEAD,) if samples and first.rows < 1 else ()),
            ),
            recoverable=None if lost is None else recoverable(lost, self.family),
            confidence=confidence(Tier.SHARE, sure=True, coverage=facts.coverage, thin=facts.thin),
            symptom_of=("CMP048",),  # which knows that a choice leaves them out
        )

    def _severity(self, lost: Interval | None, *, bound: bool) -> Severity:
        """A warning where a good part is surely won, and the user could leave the rows out before they are computed."""
        sure = lost is not None and lost.surely_at_least(self.warn_share) and not bound
        return Severity.WARNING if sure else Severity.INFO


def _remedies(first: IdleRows, samples: int, *, padded: bool) -> tuple[Remedy, ...]:
    """What to try; first what the number of rows speaks for, and nothing against padding where there is none."""
    if first.rows == 1:
        return (_NOTHING,)
    others = (SELECT, *((_PADDING,) if padded else ()), _ROUTE)
    return (_LAST, *others, _HINGE) if _one_each(first, samples) else (*others, _LAST, _HINGE)


def _one_each(rows: IdleRows, samples: int) -> bool:
    """Whether each sample uses one of its rows."""
    count = rows.shape[0] if rows.shape else 0
    return count * (1 - rows.rows) <= _ONE_EACH * samples < count


def _as_built(idle: Sequence[IdleRows], samples: int) -> bool:
    """Whether most of it is a library's model that uses one position of each sample, or some after its last layer.

    What is padded is so in all layers, and takes as much of the operations as of the rows.
    """
    operations = share_of_operations(idle)
    last = operations < _IN_ALL_LAYERS * idle[0].rows
    built = sum(one.whole for one in idle if one.library and (last or _one_each(one, samples)))
    return built > operations / 2


def _lost(facts: TrialFacts, idle: Sequence[IdleRows], *, samples: bool) -> Interval | None:
    """The share of the step for such rows, where operations take as long as others of their phase do.

    Of whole samples none of it is sure: which of them get no gradient may not be known before they were computed.
    """
    forward, backward = ask(facts.share, Phase.FORWARD), ask(facts.share, Phase.BACKWARD)
    if forward is None or backward is None:
        return None
    ahead = forward.value * min(1.0, sum(one.forward for one in idle))
    back = backward.value * min(1.0, sum(one.backward for one in idle))
    most = min(forward.value + backward.value, _MORE_THAN_PRODUCTS * (ahead + back))
    return Interval(back, 0.0, most, 1) if samples else Interval(ahead + back, back, most, 1)


def _summary(idle: Sequence[IdleRows], operations: float) -> str:
    first = idle[0]
    more = and_more_lines(len(idle))
    rows = f"{percent(first.rows)} of {f'{first.shape[0]:,}' if first.shape else 'the'} rows"
    few = round((1 - first.rows) * first.shape[0]) if first.shape else 0
    if few and first.rows >= _NEARLY_ALL:
        rows = f"all but {few:,} of {first.shape[0]:,} rows"
    return (
        f"{percent(operations)} of a step's operations are for rows whose result the loss made no use of: "
        f"{rows} got no gradient{at_line(first.place, with_text=True)}{more}."
    )
