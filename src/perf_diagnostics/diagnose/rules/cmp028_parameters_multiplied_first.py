"""CMP028: parameters are multiplied with each other before the batch is, though the other order takes less."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.code.code_words import at_line
from perf_diagnostics.diagnose.facts.dataflow_facts import DenseParameters, dense_products
from perf_diagnostics.diagnose.facts.facts import TrialFacts
from perf_diagnostics.diagnose.finding import Family, Remedy
from perf_diagnostics.diagnose.rule import Answer, limit
from perf_diagnostics.diagnose.rule_parts.needless_work import and_more, answer, of_the_step
from perf_diagnostics.diagnose.wording import counted

#: The first two are of the trace rule, too.
ORDER = Remedy(
    "Multiply the batch with one factor after the other: (x @ A.T) @ B.T in place of x @ (B @ A).T; beside a weight, "
    "base(x) + scale * (x @ A.T) @ B.T in place of a merged weight. It is the same but for rounding."
)
MERGE = Remedy("If these factors are not trained: multiply them once, before the training, and keep the product.")
_ROWS = Remedy("If rows of the product are looked up: look up the rows of its first factor, and multiply those.")


@dataclass(frozen=True)
class ParametersMultipliedFirst:
    """Parameters are multiplied with each other, and then with the batch, which takes more than the other order.

    What it measures:
        In a step of a loop or trial, which is none of those that count: products of parameters of which the result,
        or its sum with or multiple by other parameters, is only multiplied with the batch, or looked up. The operations
        of both orders follow from the shapes; the seconds of the product, of what is done with it, and of the gradients
        through it were measured, on the CPU. What the other order takes is worked out from the speed of the batch's own
        products, halved, three times where there are gradients. It is told only if it takes less both ways.

    Why it matters:
        The product has as many numbers as a whole weight, whatever its inner size, and so has its gradient. LoRA's
        weight merged in each forward (768 by 1,536, rank 8) took 58 % of a step of 32 rows (torch 2.13, one core).

    What to try:
        Multiply the batch with one factor after the other; keep the product where its factors are not trained.

    When it is wrong:
        With many rows in a batch the merged weight takes less: it is not told then, but a larger batch may change it.
        What normalises a weight (weight and spectral norm, DoRA) needs it whole, and is left alone. The result may
        differ in its last digits. One step was looked at; compiled models are not.
    """

    code: ClassVar[str] = "CMP028"
    name: ClassVar[str] = "parameters-multiplied-first"
    family: ClassVar[Family] = Family.COMPUTE
    looks_at: ClassVar[Literal["trial"]] = "trial"

    info_share: float = field(default=0.05, metadata=limit("share of the step to mention", "judgement"))
    warn_share: float = field(default=0.10, metadata=limit("share of the step to warn from", "as HST006; a judgement"))

    def check(self, facts: TrialFacts) -> Answer:
        found = dense_products(facts)
        return answer(
            self,
            facts,
            found,
            _summary(found) if found else "",
            (ORDER, MERGE, _ROWS),
            metric="multiplying parameters first",
            levels=(self.info_share, self.warn_share),
            clear="no parameters are multiplied with each other where the other order would take considerably less",
        )


def _summary(found: tuple[DenseParameters, ...]) -> str:
    first = found[0]
    sizes = f"{first.rows:,}×{first.inner:,} and {first.inner:,}×{first.columns:,} for {first.batch_rows:,} rows"
    return (
        f"{of_the_step(found)} would go if the batch were multiplied with one parameter "
        f"after the other, and not with their product ({sizes}, {counted(first.uses, 'time')} a step)"
        f"{at_line(first.place, with_text=True)}{and_more(found)}."
    )
