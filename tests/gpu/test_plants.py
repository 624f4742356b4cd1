"""Known faults in real trainings on a real device, as scripts under the command: ``pytest -m gpu``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tests.gpu import ON_A_GPU
from tests.planted.bench import Workbench
from tests.planted.on_a_gpu import PLANTS
from tests.planted.plant import Plant
from tests.planted.test_plants import check
from tests.planted.warm import WarmStart

pytestmark = [
    *ON_A_GPU,
    pytest.mark.skipif(
        torch.cuda.is_available() and torch.cuda.get_device_capability(0) < (8, 0),
        reason="they compute in bfloat16, for which this board has no units",
    ),
]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workbench]:
    bench = Workbench(tmp_path_factory.mktemp("on a gpu"), start=WarmStart(PYTORCH_NVML_BASED_CUDA_CHECK="1"))
    yield bench
    bench.close()


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.name)
def test_a_plant_on_a_gpu(plant: Plant, bench: Workbench) -> None:
    check(plant, bench)
