"""The answer that the rules on precision share: would products in a faster format make this trial faster."""

from __future__ import annotations

from perf_diagnostics.diagnose.facts import roofline
from perf_diagnostics.diagnose.facts.facts import TrialFacts, ask
from perf_diagnostics.diagnose.finding import Evidence, Finding, Remedy, Severity
from perf_diagnostics.diagnose.hardware.sixteen_bits import EITHER, half_format
from perf_diagnostics.diagnose.rule import CHANGES_TRAINING, Answer, Named, cleared, evidence
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.wording import percent, significant
from perf_diagnostics.records import Phase


def in_16_bits(facts: TrialFacts, *, because: str = "") -> tuple[Remedy, ...]:
    """Training in 16 bits, in the format that the device has units for; none where it already does or has
    64 bits, which autocast leaves alone, or on a CPU.

    Args:
        facts: the trial.
        because: what is added to the advice, such as ``, which halves the bytes``.
    """
    if not facts.on_accelerator or roofline.computes_in(facts) in (*roofline.HALF, roofline.DOUBLE):
        return ()
    name = half_format(facts.result)
    if name is None:
        return (Remedy(f"Train {EITHER}{because}. {CHANGES_TRAINING}"),)
    return (Remedy(f"Train in {name}{because}. {CHANGES_TRAINING}", {"precision": name}),)


def without_scaler(facts: TrialFacts) -> tuple[Remedy, ...]:
    """From float16 to bfloat16, which needs no scaler; none on a device without units for it."""
    if half_format(facts.result) != "bfloat16":
        return ()
    return (Remedy(f"Train in bfloat16, which needs no scaler. {CHANGES_TRAINING}", {"precision": "bfloat16"}),)


def faster_products(
    rule: Named,
    facts: TrialFacts,
    faster: float,
    *,
    least_speedup: float,
    product_share: float,
    remedy: Remedy,
    what: str,
    waste: str,
) -> Answer:
    """The answer about computing products in another format that the sheet calls ``faster`` times as fast."""
    computing = roofline.computing(facts)
    products = ask(facts.quantity, "flops_matmul_share")
    numbers = [
        evidence("forward and backward", computing, "%", limit=roofline.COMPUTING),
        Evidence(
            metric=f"{what}, times as fast", value=faster, limit=least_speedup, source=roofline.sheet(facts).source
        ),
    ]
    if products is not None:
        numbers.append(Evidence(metric="products, of all operations", value=products * 100, unit="%"))
    if faster < least_speedup:
        return cleared(rule, f"by its sheet this device does {what} {significant(faster, 2)} times as fast", *numbers)
    held = roofline.held_back_by(facts)
    if held is not None:
        return cleared(rule, f"{waste} will not help: {held} sets the pace", *numbers)
    if products is not None and products < product_share:
        return cleared(rule, f"products are {percent(products)} of the operations", *numbers)
    return Finding(
        code=rule.code,
        name=rule.name,
        family=rule.family,
        severity=Severity.WARNING if computing.surely_at_least(roofline.COMPUTING) else Severity.INFO,
        summary=f"Forward and backward take {percent(computing.value)} of the step, in "
        f"{_words(facts)}; by its sheet this device does {what} {significant(faster, 2)} times "
        "as fast.",
        scope=facts.label,
        evidence=tuple(numbers),
        remedies=(remedy,),
        recoverable=recoverable(computing.scaled(1 - 1 / faster), rule.family),
        confidence=confidence(
            Tier.SHARE,
            sure=computing.surely_at_least(roofline.COMPUTING),
            coverage=facts.coverage,
            thin=facts.thin,
        ),
        claims={str(phase): facts.share(phase).value for phase in (Phase.FORWARD, Phase.BACKWARD)},
    )


def _words(facts: TrialFacts) -> str:
    """The precision of the trial, and what its products are really computed in where that is something else."""
    precision, really = str(facts.result.trial.settings.precision), roofline.computes_in(facts)
    return precision if really == precision else f"{precision} ({really} products)"
