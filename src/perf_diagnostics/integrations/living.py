"""Finds the modules and optimizers that live in this process: one look through what the garbage collector knows."""

from __future__ import annotations

import gc
from dataclasses import dataclass

import torch

#: What torch.optim.Optimizer gives each of its own objects; a framework's wrapper around one has the class only.
_STEPS_ITSELF = "_optimizer_step_pre_hooks"


@dataclass(frozen=True)
class Living:
    """All modules, and all optimizers that step themselves, in the order in which they were made (roughly)."""

    modules: list[torch.nn.Module]
    optimizers: list[torch.optim.Optimizer]


def living() -> Living:
    """Look once through all objects that the garbage collector knows; takes some tens of milliseconds."""
    modules: list[torch.nn.Module] = []
    optimizers: list[torch.optim.Optimizer] = []
    for thing in gc.get_objects():
        kind = type(thing)  # asking a proxy for its class may import things, warn, or raise
        if issubclass(kind, torch.nn.Module):
            if "_parameters" in thing.__dict__:
                modules.append(thing)
        elif issubclass(kind, torch.optim.Optimizer) and _STEPS_ITSELF in thing.__dict__:
            optimizers.append(thing)
    return Living(modules, optimizers)
