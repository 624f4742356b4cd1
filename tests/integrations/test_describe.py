"""What a loop's products are computed in, by the types of its parameters and its autocast region."""

from __future__ import annotations

from types import SimpleNamespace

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
