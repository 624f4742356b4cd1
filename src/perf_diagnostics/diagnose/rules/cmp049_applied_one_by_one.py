"""CMP049: a layer is applied several times in a step, one after the other, where one call for all of them does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.code.code_words import at_line
from perf_diagnostics.diagnose.facts.facts import NotMeasured, TrialFacts
from perf_diagnostics.diagnose.facts.operator_facts import OperatorsAt, operators_at
from perf_diagnostics.diagnose.finding import Cleared, Evidence, Family, Remedy
from perf_diagnostics.diagnose.rule import Answer, cleared, limit
from perf_diagnostics.diagnose.rule_parts.one_step import Told, answer
from perf_diagnostics.diagnose.wording import and_more_lines, counted

_AFTER = Remedy(
    "Collect in the loop what the layer is given, and apply it once behind: features.append(h) for each pass, then "
    "self.out(torch.stack(features, 1)). What the loop does not make can be done before it: the embedding of all "
    "words, or an encoder that sees all frames as one batch, encoder(frames.flatten(0, 1)). Dropout draws other "
    "numbers then, and a batch norm takes its statistics over all of them."
)
_BEFORE = Remedy(
    "Apply what reads the input alone to the whole sequence before the loop, which then has the rest to do: torch's "
    "nn.GRU and nn.LSTM are so inside; in a cell of your own, gates = self.of_input(x) once, and gates[:, t] for each "
    "step."
)


@dataclass(frozen=True)
class AppliedOneByOne:
    """A layer is applied several times in a step, one after the other, though no call needs another one.

    What it measures:
        In a step of a loop or trial, which is none of those that count: linear layers, convolutions and embeddings
        whose weight is used four times or more for one backward, on inputs of one shape. By the operators between them
        it is seen which of these calls need what another one gave; what Python reads, numbers as well as how many there
        are, counts as needed by all that comes after. Once the step is over, one call of as many rows as need nothing
        of each other is tried beside single ones, on tensors of the same shapes: the parts of their time that it saves
        count, in forward and in backward. On the CPU.

    Why it matters:
        Each call reads the whole weight, however few rows it has, and in backward makes a gradient as large as the
        weight, which is added to the others. A translator that projected on 8,000 words inside of its decoder's loop
        took 101 ms a step, and 76 with one projection behind it (torch 2.13, two cores).

    What to try:
        One call for all: behind the loop, or before it.

    When it is wrong:
        Where the rows of all calls at once, or what is made of them, do not fit into memory: then some calls at a time
        save most of it (calls inside of an activation checkpoint are left out). What one call is given may be made by
        layers that a batch norm ties to their rows. One step was looked at: a decoder that was given the right words
        in it may be given its own in another one, and those need each other. A loop that reads a loss for each sample
        (``loss.item()``) looks as if all that follows needed it, and is not told. Compiled models are not looked at.
        On a device nothing is tried.
    """

    code: ClassVar[str] = "CMP049"
    name: ClassVar[str] = "applied-one-by-one"
    family: ClassVar[Family] = Family.COMPUTE
    looks_at: ClassVar[Literal["trial"]] = "trial"

    info_share: float = field(default=0.05, metadata=limit("share of the step to mention", "judgement"))
    warn_share: float = field(default=0.10, metadata=limit("share of the step to warn from", "as HST006; a judgement"))

    def check(self, facts: TrialFacts) -> Answer:
        found = operators_at(facts, "applied_one_by_one")
        lines = [one for one in found if "untried" not in one.more]
        said = self._of(facts, lines)
        untried = next((one for one in found if "untried" in one.more), None)
        if untried is not None and isinstance(said, Cleared):
            place, why = at_line(untried.place, with_text=False), untried.more["untried"]
            raise NotMeasured("applied_one_by_one", f"calls of one weight{place}: {why}")
        return said

    def _of(self, facts: TrialFacts, lines: Sequence[OperatorsAt]) -> Answer:
        """What is said of the lines whose calls were tried."""
        if not lines:
            return cleared(self, "no layer is applied one by one where one call for all takes less")
        first = lines[0]
        together, rows, weights = (first.number(name) or 0.0 for name in ("together", "rows", "weights"))
        beside = bool(first.more.get("beside_needing"))
        size = " x ".join(f"{one:,}" for one in first.shape)
        layers = f"{weights:,.0f} layers" if weights > 1 else f"the layer of {size} weights"
        needs = "no call needs another one" if together >= first.calls else f"{together:,.0f} at a time need no other"
        if beside:
            needs += " for what this layer is given, though others at this line need each other"
        told = Told(
            subject="what layers take that are applied one by one",
            metric="layers applied one by one",
            what=f"applying {layers}{at_line(first.place, with_text=True)} in {counted(first.calls, 'call')} of "
            f"{counted(int(rows), 'row')}, beyond what one call for all of them takes ({needs})"
            f"{and_more_lines(len(lines))}",
            evidence=(
                Evidence(metric="calls of the same weight", value=first.calls),
                Evidence(metric="calls that need nothing of each other", value=together),
                Evidence(metric="rows of a call", value=rows),
            ),
            remedies=(_BEFORE,) if beside else (_AFTER,),
            needless=1.0,
        )
        return answer(self, facts, lines, told, levels=(self.info_share, self.warn_share))
