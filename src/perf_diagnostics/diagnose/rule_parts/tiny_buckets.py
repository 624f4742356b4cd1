"""Gradients that leave in many tiny buckets, each of which is an exchange with a latency of its own."""

from __future__ import annotations

from perf_diagnostics.diagnose.facts.facts import TrialFacts, ask
from perf_diagnostics.diagnose.finding import Remedy

#: DistributedDataParallel's first bucket, made small so that the exchange begins early (``kDefaultFirstBucketBytes`` in
#: torch/csrc/distributed/c10d/reducer.hpp); all that follow hold 25 MiB if nothing else is said.
_FIRST_BUCKET_BYTES = 2**20

#: In so many buckets all but a quarter of equal ones can leave early. A judgement.
ENOUGH_BUCKETS = 4


def larger_buckets(facts: TrialFacts) -> Remedy | None:
    """What to try where more buckets than enough all hold less than DDP's first one; else None.

    Sixty of 70 kB in place of two made a step of 34 ms one of 94 (two ranks under gloo, torch 2.13).
    """
    count, size = ask(facts.number, "ddp_buckets"), ask(facts.number, "ddp_largest_bucket_bytes")
    if count is None or size is None or count <= ENOUGH_BUCKETS or size >= _FIRST_BUCKET_BYTES:
        return None
    return Remedy(
        f"Make the buckets larger (leave bucket_cap_mb out: it is 25 by default). Gradients leave in {count:.0f} of at "
        f"most {size / 1e3:.3g} kB, and each is an exchange that costs a latency and the processor's time."
    )
