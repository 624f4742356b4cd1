"""EXP005: the loss became NaN or infinite, so what was timed is not the training that is meant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts.facts import NotMeasured, SweepFacts
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared
from perf_diagnostics.diagnose.wording import counted, listing
from perf_diagnostics.records import Outcome


@dataclass(frozen=True)
class NonFiniteLoss:
    """The loss became NaN or infinite.

    What it measures:
        Trials that ended because of a non-finite loss, and infinite losses among the steps of completed ones. The
        loss is read between blocks of steps, never inside one.

    Why it matters:
        Arithmetic on NaN and infinity takes other paths: in a planted fault the optimizer's share rose from 32 to
        43 %. The trials concerned are left out of all other rules.

    What to try:
        A lower learning rate, gradient clipping, bfloat16 instead of float16, or a look at the data.

    When it is wrong:
        A loss that is meant to be infinite at times (a masked term) is reported too.
    """

    code: ClassVar[str] = "EXP005"
    name: ClassVar[str] = "non-finite-loss"
    family: ClassVar[Family] = Family.EXPERIMENT
    looks_at: ClassVar[Literal["run"]] = "run"

    def check(self, facts: SweepFacts) -> Answer:
        ended = [result.trial.label for result in facts.run.results if result.outcome is Outcome.NAN_LOSS]
        read, unread = _infinite_losses(facts)
        infinite = [label for label, count in read if count]
        if not ended and not infinite:
            if not read:
                raise unread or NotMeasured("loss", "no trial completed")
            return cleared(self, f"the loss stayed finite in {counted(len(read), 'trial')}")
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.CRITICAL,
            summary=f"The loss became NaN or infinite in {listing(ended + infinite)}: what was timed there is not the "
            "training that is meant, so nothing is concluded from it.",
            scope=listing(ended + infinite),
            evidence=(
                Evidence(
                    metric="trials ended by a non-finite loss", value=len(ended), limit=0, n=len(facts.run.results)
                ),
                Evidence(metric="completed trials with an infinite loss", value=len(infinite), limit=0, n=len(read)),
            ),
            remedies=(Remedy("Lower the learning rate, clip gradients, or look for broken samples."),),
            confidence=1.0,
        )


def _infinite_losses(facts: SweepFacts) -> tuple[list[tuple[str, int]], NotMeasured | None]:
    """How many losses were infinite, by trial that read its loss, and why the last of the others did not."""
    read: list[tuple[str, int]] = []
    unread: NotMeasured | None = None
    for trial in facts.trials:
        try:
            read.append((trial.label, trial.infinite_losses))
        except NotMeasured as missing:
            unread = missing
    return read, unread
