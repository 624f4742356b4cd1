"""Advice that several rules give, as far as it can still be followed in the trial it is about."""

from __future__ import annotations

from perf_diagnostics.diagnose.facts.facts import TrialFacts
from perf_diagnostics.diagnose.finding import Remedy
from perf_diagnostics.diagnose.rule import CHANGES_TRAINING

#: How a profiler window comes about, in a sweep and in a loop of one's own.
PROFILER_WINDOW = (
    "a profiler window (`sweep --deep`; of a script of your own `perf-diagnostics run --deep`, or `deep=True` where it "
    "is attached)"
)

#: Of what ranks on a CPU wait for each other, where :func:`.processor.ranks_lack_cores`.
RANKS_MAY_WAIT_FOR_CORES = (
    " Something waited for a processor much of the time, so the ranks may wait for cores instead."
)

#: Of a loop whose passes need each other.
WHOLE_SEQUENCE = Remedy(
    "If it is a plain recurrence, call torch.nn.LSTM, torch.nn.GRU or torch.nn.RNN once on the whole sequence. Of any "
    "other, take out of the loop what does not need the pass before (the inputs' projections of all steps are one "
    "product), and scan in fewer, larger passes where the maths allows it (cumsum, cumprod, an associative scan)."
)


def less_memory(facts: TrialFacts) -> tuple[Remedy, ...]:
    """Half the batch, and activations that are computed again: less of the memory that the training takes."""
    settings, found = facts.result.trial.settings, []
    if settings.batch_size > 1:
        change = {"batch_size": settings.batch_size // 2, "accumulation_steps": 2 * (settings.accumulation_steps or 1)}
        says = "Half the batch, accumulated twice: about the same optimisation in less memory."
        found.append(Remedy(f"{says} {CHANGES_TRAINING}", change))
    if not settings.gradient_checkpointing:
        says = "Checkpoint activations; that costs about a quarter more time."
        found.append(Remedy(says, {"gradient_checkpointing": True}))
    return tuple(found)


def less_host_memory(facts: TrialFacts) -> tuple[Remedy, ...]:
    """Fewer batches that wait on the host: those are its memory where the training's own lies on a device."""
    recorded, found = facts.result.facts, []
    workers, depth = recorded.get("num_workers"), recorded.get("prefetch_factor")
    if isinstance(workers, int) and workers > 1:
        found.append(Remedy(f"Load with half the workers (now {workers}).", {"num_workers": workers // 2}))
    if isinstance(depth, int) and depth > 1:
        found.append(Remedy(f"Fetch fewer batches ahead (now {depth} a worker).", {"prefetch_factor": depth // 2}))
    return (*found, Remedy("Keep less of the data in memory; read it from files in pieces."))


#: Storing what was drawn at random would draw it once for all passes.
_CHEAPER = "Make a batch cheaper: store what preprocessing makes the same of a sample each time"


def cheaper_batches(facts: TrialFacts) -> Remedy:
    """Less work for each batch; what a device could do of it only where there is one."""
    if facts.on_accelerator:
        return Remedy(f"{_CHEAPER}, decode less, or decode on the device.")
    return Remedy(f"{_CHEAPER}, or decode less.")


def similar_lengths(facts: TrialFacts) -> tuple[Remedy, ...]:
    """Batches of samples of similar length; nothing where all are equally long, or sorted into such batches already.

    What a setting can try it does only in workloads that know the lengths of their samples.
    """
    if facts.result.trial.settings.length_bucketing:
        return ()
    says = "Batch samples of similar length together, or pad them to few different lengths."
    return (Remedy(says, {"length_bucketing": True} if facts.lengths_differ else {}),)
