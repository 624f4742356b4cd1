"""What the pretended devices of the other tests stand in for, on real ones: ``pytest tests/gpu -m gpu``.

They take about seven minutes on one CUDA device that nobody else uses, five of them the planted faults, and need what
the other tests need (no network, no data); those that compile need a C compiler beside Triton, one needs two devices.
On a machine that reads no power, has no compiler, or shares its GPU by MIG, the tests that ask for it are skipped with
that reason. Where a library warns while it is imported, ``-W default`` keeps pytest from taking that for an error.
"""

from __future__ import annotations

import pytest
import torch

#: For ``pytestmark`` of each module here. What torch and Triton advise on a GPU (TF32 that is not used, a context that
#: a thread of autograd has to make current) is no fault of ours, and would end a training if it were raised in it.
ON_A_GPU = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device"),
    pytest.mark.filterwarnings("default"),
]
