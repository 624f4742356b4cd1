"""Which of an accelerator's models and optimizers are those of the training that begins."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from perf_diagnostics.measure.model_scan import parameters_of


def without_left_over(
    models: Sequence[torch.nn.Module], optimizers: Sequence[torch.optim.Optimizer]
) -> tuple[list[torch.nn.Module], list[torch.optim.Optimizer]]:
    """What was prepared, without what an earlier training has left there: a notebook's cell that is run once more.

    An optimizer makes its state in its first step. Where one has none, those that have one belong to a training before
    this one, and so do the models that they alone train; where all have one, or none (plain SGD keeps none), nobody can
    tell. Of the optimizers that are left out one may step after all: then it is learned.
    """
    new = [optimizer for optimizer in optimizers if not optimizer.state]
    if not new or len(new) == len(optimizers):
        return list(models), list(optimizers)
    trained = {id(parameter) for parameter in parameters_of((), new)}
    before = {id(p) for p in parameters_of((), [one for one in optimizers if one.state])} - trained
    kept = [model for model in models if not any(id(parameter) in before for parameter in model.parameters())]
    return (kept, new) if kept else (list(models), list(optimizers))
