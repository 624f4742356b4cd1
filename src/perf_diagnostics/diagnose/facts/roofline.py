"""How close a trial's arithmetic comes to what its device can do, and whether products or memory hold it (roofline).

After Williams, Waterman & Patterson, CACM 52(4), 2009: no step is shorter than its operations over the fastest
product, nor than its bytes over the fastest copy. Both ceilings were measured in the run; the maker's sheet stands
beside them. A share above 100 % means that a count, a clock or a name is wrong, and is never shown.
"""

from __future__ import annotations

from perf_diagnostics.diagnose.facts.facts import Interval, NotMeasured, TrialFacts, ask
from perf_diagnostics.diagnose.facts.power_facts import busy_share
from perf_diagnostics.diagnose.hardware.data_sheets import Peak, peak
from perf_diagnostics.diagnose.wording import percent
from perf_diagnostics.records import Phase

#: A measured ceiling is the best of a few products beside others' work; so much above it is still no contradiction.
CEILING_TOLERANCE = 0.10

#: The formats of 16 bits, and that of 64.
HALF = ("bfloat16", "float16")
DOUBLE = "float64"

#: Parameters in convolutions from which most of the operations are (ResNet-50: 92 % of the one, 99 % of the other).
_CONVOLVES = 0.5

#: What takes this part of a step sets its pace, and not the arithmetic.
PACE = {
    "the wait for data": 0.20,
    "copying to the device": 0.15,
    "work on batches in transfer": 0.15,
    "the optimizer": 0.30,
}
DRY = 0.50
EMPTY = 0.80
COMPUTING = 0.60
#: A device on which a kernel is resident for less than this part of its steps is not what sets their pace: a judgement.
#: An H200 was seen at 89 to 100 % under layers that kept it busy, and at 15 to 54 % where the host was late.
BUSY = 0.70


def model_flops(facts: TrialFacts) -> float:
    """Operations of a mean step that the model asks for: what is counted, less what checkpointing does twice."""
    again = ask(facts.number, "recomputed_flops_share") or 0.0
    return facts.quantity("flops_per_step") * (1 - again)


def sheet(facts: TrialFacts) -> Peak:
    """The sheet of the trial's device; NotMeasured for one that is not in the table, as every CPU."""
    name = facts.word("device_name")
    found = peak(name)
    if found is None:
        raise NotMeasured("peak", f"no data sheet figures are known for {name or 'the device'}")
    return found


def computes_in(facts: TrialFacts) -> str:
    """The format that the trial's products are computed in, which its precision alone does not say.

    A model whose own parameters have 16 bits computes in these without autocast, and one of 64 bits in float64 even
    with it, for autocast leaves that as it is. Float32 is TF32 on a device that has
    it where torch's matmul precision allows it, and in convolutions, for which cuDNN allows it unless told otherwise.
    """
    precision = str(facts.result.trial.settings.precision)
    types = facts.result.facts.get("parameter_types")
    only = str(types[0]) if isinstance(types, list) and len(types) == 1 else ""
    if precision in HALF and only != DOUBLE:
        return precision
    if only in (*HALF, DOUBLE):
        return only
    if precision == "float32" and _has_tf32(facts):
        convolves = (ask(facts.number, "convolution_parameter_share") or 0.0) >= _CONVOLVES
        return "tf32" if convolves or facts.word("matmul_precision") in ("high", "medium") else precision
    return precision


def sheet_flops(facts: TrialFacts) -> float:
    """The sheet's operations a second in the format that the trial computes in."""
    precision = computes_in(facts)
    found = sheet(facts).flops(precision)
    if found is None:
        raise NotMeasured("peak", f"the sheet of {facts.word('device_name')} has no figure for {precision}")
    return found


def copy_of_sheet(facts: TrialFacts) -> float:
    """The fastest copy measured in the run over the sheet's memory bandwidth, in 0…1."""
    return _of_sheet(facts, "memory_bandwidth", sheet(facts).bytes_per_s)


def product_of_sheet(facts: TrialFacts) -> float:
    """The fastest product measured in the run over the sheet's peak in the format it was timed in, in 0…1."""
    return _of_sheet(facts, "matmul_ceiling", sheet(facts).flops(timed_in(facts)))


def _of_sheet(facts: TrialFacts, ceiling: str, promised: float | None) -> float:
    """NotMeasured where the sheet has no such figure, and for more than its device can do."""
    if promised is None:
        raise NotMeasured("peak", f"the sheet of {facts.word('device_name')} has no figure to hold {ceiling} against")
    share = facts.quantity(ceiling) / promised
    if share > 1 + CEILING_TOLERANCE:
        raise NotMeasured(
            ceiling, f"{share:.2f} times the data sheet's figure: the clock or the device's name is wrong"
        )
    return min(share, 1.0)


def flops_per_s(facts: TrialFacts) -> Interval:
    """Operations a second over the whole step, recomputation included."""
    return _over_step(facts, facts.quantity("flops_per_step"))


def mfu(facts: TrialFacts) -> Interval:
    """Model flops utilisation: the model's own operations over the time, over the sheet's peak (Chowdhery, 2022)."""
    return _possible("mfu", _over_step(facts, model_flops(facts) / sheet_flops(facts)), 0.0, "the data sheet's peak")


def ceiling_share(facts: TrialFacts) -> Interval:
    """All operations, recomputed ones included, over the fastest matrix product measured in the run."""
    share = _over_step(facts, facts.quantity("flops_per_step") / fastest_product(facts))
    return _possible("hfu", share, CEILING_TOLERANCE, "the fastest product measured in this run")


def bandwidth_share(facts: TrialFacts) -> Interval:
    """The operators' traffic over the fastest copy measured in the run; above 1 caches serve a part of it."""
    if facts.result.trial.settings.compile_mode is not None or facts.result.facts.get("compiled") is True:
        raise NotMeasured("traffic_bytes_per_step", "the model is compiled: fused operators move less than was counted")
    return _over_step(facts, facts.quantity("traffic_bytes_per_step") / facts.quantity("memory_bandwidth"))


def intensity(facts: TrialFacts) -> float:
    """Operations for each byte that the operators read or write."""
    traffic = facts.quantity("traffic_bytes_per_step")
    if not traffic > 0:
        raise NotMeasured("traffic_bytes_per_step", f"{traffic:g} bytes a step: nothing was moved, or counted")
    return facts.quantity("flops_per_step") / traffic


def ridge(facts: TrialFacts) -> float:
    """The intensity under which memory, and over which products are the lower of the two measured ceilings."""
    return fastest_product(facts) / facts.quantity("memory_bandwidth")


def fastest_product(facts: TrialFacts) -> float:
    """Operations a second of the fastest product measured in the run.

    It is one of the trial's precision. NotMeasured where the model computes in another format: in that of its own
    parameters, or, in convolutions, in TF32 beside products in float32.
    """
    ceiling, computes, timed = facts.quantity("matmul_ceiling"), computes_in(facts), timed_in(facts)
    if computes != timed:
        why = f"the model computes in {computes}, and the products that were timed did in {timed}"
        raise NotMeasured("matmul_ceiling", why)
    return ceiling


def timed_in(facts: TrialFacts) -> str:
    """The format of the timed products: the trial's precision, or TF32 where torch may put it in float32's place."""
    precision = str(facts.result.trial.settings.precision)
    allowed = precision == "float32" and facts.word("matmul_precision") in ("high", "medium")
    return "tf32" if allowed and _has_tf32(facts) else precision


def _has_tf32(facts: TrialFacts) -> bool:
    known = peak(facts.word("device_name"))
    return known is not None and known.tf32 is not None


def computing(facts: TrialFacts) -> Interval:
    """The share of forward and backward in the step."""
    return facts.joint_share(Phase.FORWARD, Phase.BACKWARD)


def paced_by_host(facts: TrialFacts) -> bool:
    """The device ran dry in most steps, and its queue was empty at nearly all borders, where these were looked at.

    Running dry alone does not say it: a loop that waits for the device once a step (``loss.item()``) finds the step
    before done whenever it ends one, however full the queue was in between. Nor does a queue with something in it at
    some borders say the contrary: an optimizer's one long kernel is under way at those that follow it. Where the driver
    says that no kernel was resident for a good part of the steps (:func:`rests`), running dry is enough.
    """
    empty = ask(lambda: facts.queue_empty_rate)
    return facts.starved_share.value >= DRY and (empty is None or empty.value >= EMPTY or rests(facts))


def rests(facts: TrialFacts) -> bool:
    """Whether the driver's samples show, beyond their scatter, that the device often had nothing to do."""
    busy = ask(busy_share, facts)
    return busy is not None and busy.surely_below(BUSY)


def held_back_by(facts: TrialFacts) -> str | None:
    """What sets the pace instead of the arithmetic, in words with its share; None if nothing else was seen to.

    On a device that is also its host (:func:`paced_by_host`).
    """
    if facts.on_accelerator and paced_by_host(facts):
        return f"the host (the device ran dry in {percent(facts.starved_share.value)} of the steps)"
    waits = ask(lambda: facts.exposed_data_wait_share)
    moving = "copying to the device" if facts.on_accelerator else "work on batches in transfer"
    shares = {
        "the wait for data": waits,
        moving: ask(lambda: facts.share(Phase.TRANSFER)),
        "the optimizer": ask(lambda: facts.optimizer_share),
    }
    known = {name: share.value for name, share in shares.items() if share is not None and share.value >= PACE[name]}
    if known:
        name = max(known, key=lambda one: known[one])
        return f"{name} ({percent(known[name])} of the step)"
    share = computing(facts)
    if share.value < COMPUTING:
        return f"what is not forward or backward ({percent(1 - share.value)} of the step)"
    return None


def _over_step(facts: TrialFacts, amount: float) -> Interval:
    """An amount a step over the mean time of a step; the ends change places."""
    time = facts.step_time_s
    low = None if time.high is None else amount / time.high
    high = None if time.low is None or time.low <= 0 else amount / time.low
    return Interval(amount / time.value, low, high, time.n)


def _possible(signal: str, share: Interval, tolerance: float, what: str) -> Interval:
    if share.value > 1 + tolerance:
        raise NotMeasured(
            signal,
            f"the counted operations would need {share.value:.2f} times {what}: the count, the clock or the device's "
            "name is wrong",
        )
    return share.within(0.0, 1.0)
