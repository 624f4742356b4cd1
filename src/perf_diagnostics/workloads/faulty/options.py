"""What can be planted: the options of the workload ``faulty``."""

from __future__ import annotations

from dataclasses import dataclass, fields

from perf_diagnostics.workloads.mlp import MlpOptions
from perf_diagnostics.workloads.options import option


@dataclass(frozen=True)
class FaultyOptions(MlpOptions):
    """The options of ``faulty``: those of ``mlp``, and the faults. Several faults may be planted together.

    Batches are counted from 1 in the order their loss is asked for, so ``crash_after=3`` trains three batches and
    fails in the fourth's forward pass.
    """

    # in the loader
    sleep_per_item_ms: float | None = option(None, "the loader sleeps this long over each sample", least=0)
    burn_per_item_ms: float | None = option(None, "the loader computes this long over each sample", least=0)
    slow_worker_ms: float | None = option(None, "the first loader worker sleeps this long over each sample", least=0)
    length_cycle: int | None = option(
        None, "samples are sequences, as long as 1 to this many vectors, another length each batch", least=1
    )
    # in the loop, outside of every phase
    preprocess_ms: float | None = option(None, "the loop computes this long on each batch it was given", least=0)
    stall_every: int | None = option(None, "the loop sleeps for stall_ms every so many batches", least=1)
    stall_ms: float | None = option(None, "how long a stall takes (default: 100)", least=0)
    save_every: int | None = option(None, "the loop writes the model to disk every so many batches", least=1)
    save_ms: float | None = option(None, "how much longer than its writing each save takes: a slow disk", least=0)
    fsync_kb: float | None = option(None, "the loop writes so much to disk after each batch, and waits for it", least=0)
    drift_ms: float | None = option(None, "the loop sleeps this much longer with each batch", least=0)
    fresh_mb: float | None = option(None, "the loop fills so much new memory for each batch, and drops it", least=0)
    # of Python's memory
    collect_every: int | None = option(None, "the garbage collector runs every so many batches", least=1)
    heap_objects: int | None = option(None, "containers that are always there to be looked through", least=0)
    kept_objects: int | None = option(None, "containers made for each batch, and kept", least=0)
    leak_kb: float | None = option(None, "memory kept for each batch, with the graph of its loss", least=0)
    # of the training
    anomaly_mode: bool | None = option(None, "autograd's anomaly detection is on, for the whole process")
    checkpoint_segments: int | None = option(
        None, "the forward pass is run again in the backward pass, in so many parts", least=1
    )
    learning_rate: float | None = option(None, "the optimizer's learning rate", least=0)
    # endings
    nan_after: int | None = option(None, "the loss is NaN after this many batches", least=0)
    crash_after: int | None = option(None, "a RuntimeError is raised after this many batches", least=0)
    exit_after: int | None = option(None, "the process kills itself with SIGKILL after this many batches", least=0)
    hang_after: int | None = option(None, "the forward pass never returns after this many batches", least=0)
    oom_above: int | None = option(None, "batches of more samples than this raise torch.OutOfMemoryError", least=0)


def fault_names() -> tuple[str, ...]:
    """The options that plant something, in the order in which they are declared."""
    base = {field.name for field in fields(MlpOptions)}
    return tuple(field.name for field in fields(FaultyOptions) if field.name not in base)
