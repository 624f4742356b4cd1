"""The workload ``mlp``: a multi-layer perceptron on synthetic vectors held in memory, for runs of seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional
from torch.utils.data import TensorDataset

from perf_diagnostics.records import Json, Settings
from perf_diagnostics.workloads.loaders import check_batch, check_workers, loader_facts, random_numbers, shuffled_loader
from perf_diagnostics.workloads.optimizers import make_optimizer, optimizer_facts
from perf_diagnostics.workloads.options import option, options_from, refuse_settings
from perf_diagnostics.workloads.workload import BatchCount, Training

Pair = Sequence[torch.Tensor]


@dataclass(frozen=True)
class MlpOptions:
    """The options of ``mlp``."""

    width: int = option(512, "units of each hidden layer", least=1)
    depth: int = option(4, "hidden layers", least=1)
    features: int = option(256, "numbers in one sample", least=1)
    classes: int = option(10, "classes to tell apart", least=2)
    samples: int = option(4096, "samples of one epoch", least=1)
    optimizer: str = option("sgd", "sgd (momentum 0.9) or adamw", among=("sgd", "adamw"))


class Mlp:
    """A multi-layer perceptron; see :class:`MlpOptions`."""

    name = "mlp"
    says = "a multi-layer perceptron on synthetic vectors held in memory; seconds long"
    options = MlpOptions

    def check_options(self, options: Mapping[str, Json]) -> None:
        """See :class:`perf_diagnostics.workloads.beforehand.Foresighted`."""
        options_from(MlpOptions, options, workload=self.name)

    def check_settings(self, settings: Settings, options: Mapping[str, Json]) -> None:
        """See :class:`perf_diagnostics.workloads.beforehand.Foresighted`."""
        check_mlp_settings(settings, options_from(MlpOptions, options, workload=self.name), name=self.name)

    def build(self, settings: Settings, *, options: Mapping[str, Json], seed: int) -> Training:
        """See :meth:`perf_diagnostics.workloads.Workload.build`."""
        return mlp_training(settings, options_from(MlpOptions, options, workload=self.name), seed=seed, name=self.name)


def check_mlp_settings(settings: Settings, chosen: MlpOptions, *, name: str) -> None:
    """Refuse, in the name of the workload ``name``, what an mlp cannot honour.

    Raises:
        InvalidSettings: Such a setting.
    """
    vectors = "its samples are vectors, not sequences"
    refuse_settings(settings, ("sequence_length", "length_bucketing"), workload=name, why=vectors)
    refuse_settings(
        settings, ("gradient_checkpointing",), workload=name, why="its few activations are not worth recomputing"
    )
    check_workers(settings)
    check_batch(settings, chosen.samples)


def mlp_training(settings: Settings, chosen: MlpOptions, *, seed: int, name: str) -> Training:
    """The parts of an mlp, refusing in the name of the workload ``name`` what an mlp cannot honour."""
    check_mlp_settings(settings, chosen, name=name)
    device = torch.device(settings.device)
    torch.manual_seed(seed)
    model = _perceptron(chosen).to(device).train()
    if chosen.optimizer == "sgd":
        optimizer = make_optimizer(torch.optim.SGD, model.parameters(), settings, lr=0.01, momentum=0.9)
    else:
        optimizer = make_optimizer(torch.optim.AdamW, model.parameters(), settings, lr=1e-3)
    loader = shuffled_loader(_vectors(chosen, seed), settings, device=device, seed=seed)
    return Training(
        model=model,
        optimizer=optimizer,
        batches=loader,
        loss_of=loss_of,
        count=count,
        facts={
            "model": f"mlp, {chosen.depth} x {chosen.width}",
            "dataset": f"synthetic vectors, {chosen.samples:,} samples",
            **optimizer_facts(optimizer),
            **loader_facts(loader),
        },
    )


def loss_of(model: torch.nn.Module, batch: Pair) -> torch.Tensor:
    """Cross entropy of the classes."""
    vectors, classes = batch
    return functional.cross_entropy(model(vectors), classes)


def count(batch: Pair) -> BatchCount:
    """The rows of a batch; vectors have no tokens."""
    return BatchCount(samples=batch[0].shape[0])


def _perceptron(chosen: MlpOptions) -> torch.nn.Module:
    layers: list[torch.nn.Module] = []
    for inputs in [chosen.features, *[chosen.width] * (chosen.depth - 1)]:
        layers += [torch.nn.Linear(inputs, chosen.width), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(chosen.width, chosen.classes))


def _vectors(chosen: MlpOptions, seed: int) -> TensorDataset:
    """Normal vectors; a sample's class is the direction, out of ``classes`` random ones, it points into the most."""
    numbers = random_numbers(seed, "vectors")
    vectors = torch.from_numpy(numbers.standard_normal((chosen.samples, chosen.features), dtype="float32"))
    directions = torch.from_numpy(numbers.standard_normal((chosen.features, chosen.classes), dtype="float32"))
    return TensorDataset(vectors, (vectors @ directions).argmax(dim=1))
