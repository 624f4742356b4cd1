"""What is recorded of a workload as it was built: its facts, and the size of its model."""

from __future__ import annotations

import os

import torch

from perf_diagnostics.measure.boards.devices import model_of
from perf_diagnostics.measure.code.user_hooks import user_hooks
from perf_diagnostics.measure.host import memory
from perf_diagnostics.measure.model_scan import scan
from perf_diagnostics.records import Settings
from perf_diagnostics.trials.notes import Notes
from perf_diagnostics.workloads.workload import Training


def describe(training: Training, settings: Settings, device: torch.device, notes: Notes) -> None:
    """Plain values about the workload as it was built, and the size of its model."""
    parameters = [p for group in training.optimizer.param_groups for p in group["params"]]
    seen = {id(p): p for p in (*training.model.parameters(), *parameters)}.values()
    notes.quantity("parameters", sum(p.numel() for p in seen), "1", "model.parameters()")
    notes.quantity("trainable_parameters", sum(p.numel() for p in seen if p.requires_grad), "1", "model.parameters()")
    notes.quantity("parameter_bytes", sum(p.numel() * p.element_size() for p in seen), "bytes", "model.parameters()")
    notes.quantity("host_memory_total", memory.memory_limit_bytes(), "bytes", "MemTotal and cgroup limits")
    cpu_count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    notes.facts |= {
        "threads": torch.get_num_threads(),
        "cpu_count": cpu_count,
        "accumulation_steps": settings.accumulation_steps or 1,
        "zero_grad_to_none": True,  # so the loop clears gradients
        "device_name": model_of(device),
        **training.facts,
    }
    with notes.observations.guard("model_scan"):
        notes.facts |= scan(training.model, training.optimizer)
    with notes.observations.guard("user_hooks"):
        notes.facts["user_hooks"] = user_hooks([training.model])
    if device.type == "cuda":
        total = torch.cuda.get_device_properties(device).total_memory
        notes.quantity("device_memory_total", total, "bytes", "torch.cuda.get_device_properties")
