"""What a loop's products are computed in, by the types of its parameters and its autocast region."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from perf_diagnostics.integrations.model import describe

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("dtype", "autocast", "precision"),
    [
        (torch.float32, None, "float32"),
        (torch.float32, torch.bfloat16, "bfloat16"),
        (torch.float16, None, "float16"),
        (torch.float64, None, "float64"),
        (torch.float64, torch.bfloat16, "float64"),  # autocast leaves 64 bits alone
    ],
)
def test_precision(dtype: torch.dtype, autocast: torch.dtype | None, precision: str) -> None:
    model = torch.nn.Linear(2, 2).to(dtype)
    assert describe.precision_of(list(model.parameters()), CPU, autocast) == precision


@pytest.mark.parametrize(
    ("lie", "device"),
    [
        ({"cpu": 10, "cuda:1": 90}, "cuda:1"),
        ({"cpu": 90, "cuda:1": 10}, "cuda:1"),  # a large embedding is kept on the host
        ({"cuda:0": 40, "cuda:1": 60, "meta": 900}, "cuda:1"),  # most layers wait on a disk
        ({"cpu": 90, "meta": 10}, "cpu"),
        ({"meta": 10}, "meta"),
        ({}, "cpu"),
    ],
)
def test_a_training_runs_on_the_accelerator_that_has_most_of_its_parameters(lie: dict[str, int], device: str) -> None:
    parameters: list[Any] = [
        SimpleNamespace(device=torch.device(where), numel=lambda numbers=numbers: numbers)
        for where, numbers in lie.items()
    ]
    assert describe.device_of(parameters) == torch.device(device)


def test_the_autocast_region_really_leaves_64_bits_alone() -> None:
    model = torch.nn.Linear(2, 2).double()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert model(torch.ones(1, 2, dtype=torch.float64)).dtype is torch.float64


def test_one_parameter_of_64_bits_among_others_is_no_model_of_64_bits() -> None:
    parameters = [torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.zeros(2, dtype=torch.float64))]
    assert describe.precision_of(parameters, CPU, None) == "float32"


def test_without_parameters_it_is_torchs_default() -> None:
    assert describe.precision_of([], CPU, None) == "float32"


def test_a_device_whose_allocator_counts_nothing_is_described_without_its_peaks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As one that was plugged in (torch/csrc/cuda/CUDAPluggableAllocator.cpp)."""

    def refuse(_device: object) -> int:
        raise RuntimeError("CUDAPluggableAllocator does not yet support getDeviceStats.")

    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _device: SimpleNamespace(total_memory=2**30))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", refuse)
    parameters = [torch.nn.Parameter(torch.ones(3))]
    told = {one.name: one.value for one in describe.sizes(parameters, torch.device("cuda:0"))}
    assert (told["parameters"], told["device_memory_total"]) == (3, 2**30)
    assert not {"device_memory_peak_allocated", "device_memory_peak_reserved"} & set(told)


IDS, STATE = torch.zeros(35, 20, dtype=torch.long), torch.zeros(2, 20, 8)


@pytest.mark.parametrize(
    ("args", "kwargs", "samples"),
    [
        ((torch.zeros(12),), {}, None),  # features of one sample, or 12 numbers
        ((torch.zeros(12, dtype=torch.long),), {}, None),  # the tokens of one sequence, or 12 words
        ((torch.zeros(12, dtype=torch.long), torch.ones(12, dtype=torch.long)), {}, 12),  # users and items
        ((torch.zeros(12),), {"other": torch.ones(12)}, None),
        ((IDS,), {}, 35),
        ((IDS, STATE), {}, 20),  # time first: the state is of 20 samples
        ((IDS, (STATE, STATE)), {}, 20),
        ((IDS,), {"hidden": STATE}, 20),
        ((IDS.T, STATE), {}, 20),
        ((IDS, torch.zeros(35, 20, 8)), {}, 35),  # an encoder's output
        ((torch.zeros(20, 20), STATE), {}, 20),
        ((), {"input_ids": IDS, "mask": IDS}, 35),
        ((), {"x": IDS, "hidden": STATE}, 20),
    ],
)
def test_samples_of_a_call(args: tuple[torch.Tensor, ...], kwargs: dict[str, torch.Tensor], samples: int) -> None:
    assert describe.count_call(args, kwargs) == samples


IMAGES = [torch.zeros(3, 8 + n, 8) for n in range(5)]


@pytest.mark.parametrize(
    ("batch", "samples"),
    [
        ((tuple(IMAGES), tuple({"boxes": torch.zeros(n, 4)} for n in range(5))), 5),  # a detector's
        ([IMAGES, [torch.zeros(n, 4) for n in range(5)]], 5),
        ({"images": IMAGES, "masks": [torch.zeros(1, 8, 8)] * 5}, 5),
        ((IMAGES, torch.zeros(5)), 5),
        ((IMAGES, ["a cat"] * 5), 5),
        (((torch.zeros(12, 4), torch.zeros(12, 6)), torch.zeros(12)), 12),  # two inputs with a row a sample
        (((torch.zeros(12, 4), torch.zeros(12, 6)), (torch.zeros(12), torch.zeros(12))), 12),
        (((torch.zeros(2, 4), torch.zeros(2, 6)), torch.zeros(2)), 2),
        (((torch.zeros(12, 4), torch.zeros(2, 12, 6)), torch.zeros(12)), 12),  # and a recurrent state
        (((torch.zeros(12, 4), torch.zeros(12, 6)),), 12),
    ],
)
def test_a_list_with_a_tensor_for_each_sample_is_as_many_as_it_is_long(batch: object, samples: int) -> None:
    count = describe.count_batch(batch)
    assert count is not None
    assert count.samples == samples


def test_a_call_with_an_image_for_each_sample() -> None:
    assert describe.count_call((IMAGES, [{"boxes": torch.zeros(1, 4)}] * 5), {}) == 5


class Graphs:
    """As a batch of PyTorch Geometric: everything it holds is behind properties."""

    def __init__(self, **said: object) -> None:
        self._store = said

    def __getattr__(self, name: str) -> object:
        try:
            return self.__dict__["_store"][name]
        except KeyError:
            raise AttributeError(name) from None


class Unsure:
    """Cannot say how many graphs it has, and has three labels."""

    def __init__(self) -> None:
        self.comment, self.y = "three", torch.zeros(3)

    @property
    def num_graphs(self) -> int:
        raise ValueError("Can not infer the number of graphs")


@pytest.mark.parametrize(
    ("batch", "samples"),
    [
        (Graphs(x=torch.zeros(60, 4), num_graphs=20), 20),
        (Graphs(x=torch.zeros(60, 4), batch_size=8), 8),  # the seeds that neighbours were drawn for
        (Graphs(batch_size=torch.Size([5, 7])), 5),
        (Graphs(x=torch.zeros(60, 4)), None),
        (Unsure(), 3),
        (SimpleNamespace(name="a", images=torch.zeros(6, 3), labels=torch.zeros(6)), 6),
        (object(), None),
    ],
)
def test_a_batch_that_is_an_object_is_counted_by_what_it_says_or_holds(batch: object, samples: int | None) -> None:
    count = describe.count_batch(batch)
    assert (None if count is None else count.samples) == samples


def sample(n: int) -> SimpleNamespace:
    """One graph, as it is before graphs are joined."""
    return SimpleNamespace(x=torch.zeros(n + 2, 4), y=torch.zeros(1))


VIEW = {"x": torch.zeros(16, 4), "y": torch.zeros(16)}


@pytest.mark.parametrize(
    ("batch", "samples"),
    [
        ([object() for _ in range(7)], 7),  # sentences
        ([sample(n) for n in range(5)], 5),
        (([sample(n) for n in range(5)], torch.zeros(5)), 5),
        ([{"image": torch.zeros(3, 8 + n, 8), "file": f"{n}.png"} for n in range(5)], 5),
        # the parts of one batch
        ([Graphs(num_graphs=20), Graphs(num_graphs=20), Graphs(num_graphs=20)], 20),
        ([SimpleNamespace(x=torch.zeros(16, 4)), SimpleNamespace(x=torch.zeros(16, 4))], 16),
        ((VIEW, VIEW, VIEW), 16),
        ([VIEW, VIEW, VIEW], 16),
        ([SimpleNamespace(x=torch.zeros(16, 4)), torch.zeros(16), torch.zeros(16)], 16),
        ([np.zeros((16, 4)), np.zeros(16), np.zeros(16)], None),
    ],
)
def test_a_list_with_an_object_for_each_sample_is_as_many_as_it_is_long(batch: object, samples: int | None) -> None:
    count = describe.count_batch(batch)
    assert (None if count is None else count.samples) == samples


def test_of_several_optimizers_the_others_are_named() -> None:
    model = torch.nn.Linear(2, 2)
    several = [kind(model.parameters(), lr=0.1) for kind in (torch.optim.Adam, torch.optim.LBFGS, torch.optim.LBFGS)]
    told = describe.facts_of([model], several, torch.device("cpu"), checkpoints=False)
    assert told["optimizer"] == "Adam" and told["other_optimizers"] == ["LBFGS"]
    alone = describe.facts_of([model], several[:1], torch.device("cpu"), checkpoints=False)
    assert "other_optimizers" not in alone
