"""When two trials are the same configuration at different batch sizes."""

from __future__ import annotations

import dataclasses

from perf_diagnostics.records import Length, Trial


def but_batch(trial: Trial) -> Trial:
    """The same configuration at batch size 1 in the first block, to compare what differs in nothing else.

    A sentinel is a short trial of such a configuration: what ran out of memory in it would do so again.
    """
    settings = trial.settings.replace(batch_size=1)
    return dataclasses.replace(trial, settings=settings, length=Length(), repeat=0, role="")
