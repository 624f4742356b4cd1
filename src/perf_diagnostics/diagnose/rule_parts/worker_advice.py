"""Advice about loader workers, as far as the data set can be shared among them and the loader keeps them."""

from __future__ import annotations

from perf_diagnostics.diagnose.facts.facts import TrialFacts
from perf_diagnostics.diagnose.finding import Remedy
from perf_diagnostics.diagnose.loaders.loading_cost import made_anew
from perf_diagnostics.diagnose.loaders.waits_timed import draws_first
from perf_diagnostics.diagnose.wording import counted

#: What torch's documentation of IterableDataset says: each worker has a copy of the data set, and iterates over it.
_ONLY_IF = (
    "workers help only if its __iter__ splits it by torch.utils.data.get_worker_info(); else every worker delivers the "
    "whole stream."
)
WHOLE_STREAM = f"The data set is a stream: {_ONLY_IF}"

#: The same where it is not known what the data set is.
IF_STREAM = f"If the data set is a stream (IterableDataset), {_ONLY_IF}"

BUILD_ONCE = "Build the DataLoader once, outside of the loop over the epochs"

#: What indexes whole batches needs no workers, and hands nothing over.
WHOLE_BATCHES = Remedy(
    "Take whole batches at once: a data set with __getitems__(indices) that returns the batch as tensors (of tensors "
    "in memory: tuple(t[indices] for t in self.tensors)), and a collate_fn that returns what it is given. A DataLoader "
    "otherwise fetches and stacks sample by sample."
)

#: Where each step makes an iterator, takes a batch and drops the rest.
ONE_ITERATOR = Remedy(
    "Make the loader's iterator once and take all of its batches: for batch in loader; or batches = iter(loader) "
    "before the loop, next(batches) in it, and a new one when it is through."
)

#: What waits needs no process: a thread waits as well, and hands over by reference.
IN_A_THREAD = Remedy("Or fetch one batch ahead in a thread: what waits for disk or network leaves Python to the loop.")

LONGER = Remedy("Make passes longer, or let the sampler go on for several of them.")


def streams_whole(facts: TrialFacts) -> bool:
    """Whether the data set is a stream that no worker is seen to take a part of."""
    return facts.result.facts.get("splits_stream") is False


def more_workers(facts: TrialFacts, workers: int, now: str = "") -> Remedy:
    """Load with so many; a change of settings only where nothing but settings has to change.

    Args:
        facts: the trial.
        workers: to load with.
        now: what is said of how many there are now and would keep up, such as `` (now none)``.
    """
    stay = "stays" if workers == 1 else "stay"
    says = f"Load with {counted(workers, 'worker')} that {stay} alive{now}"
    if streams_whole(facts):
        return Remedy(f"{says}, only if they share the data. {WHOLE_STREAM}")
    if made_anew(facts):
        return Remedy(f"{BUILD_ONCE}; then {says[0].lower()}{says[1:]}: those of a new one are new, too.")
    return Remedy(f"{says}.", {"num_workers": workers, "persistent_workers": True})


def begins_cheaper(facts: TrialFacts) -> tuple[Remedy, ...]:
    """Where each pass begins with a long wait, and no workers are started: longer passes, and a cheaper begin."""
    if made_anew(facts):
        return (Remedy(f"{BUILD_ONCE}: each pass makes one now, with its sampler and what reads the data."), LONGER)
    drawn = draws_first(facts)
    if drawn is not None:
        says = (
            f"Make {drawn.who} cheaper: most of the wait for the first batch of a pass is drawing which samples it has."
        )
        return (Remedy(says), LONGER)
    return (LONGER, Remedy("Look for expensive work in the dataset's __iter__ and in the sampler."))


def keep_workers(facts: TrialFacts) -> Remedy:
    """Where they are started anew for each pass: what keeps them."""
    if made_anew(facts):
        return Remedy(
            f"{BUILD_ONCE}, with persistent_workers=True: each pass has a new one now, and starts its workers, however "
            "it is set."
        )
    return Remedy("Keep the loader's workers from pass to pass.", {"persistent_workers": True})
