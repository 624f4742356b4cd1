"""A notebook's calls on a pretended T4, as a program of its own; prints what came of them as one line of JSON."""

import json

import torch._dynamo  # asks which functions a CUDA build has, before there is one
from torch.utils.data import DataLoader, TensorDataset

import tests.trials.pretended_board
from perf_diagnostics import PerformanceDiagnostics
from perf_diagnostics.measure.boards.devices import list_devices


def main() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
    data = TensorDataset(torch.randn(96, 8), torch.randint(0, 3, (96,)))
    loader = DataLoader(data, batch_size=8, shuffle=True)
    state = torch.cuda.get_rng_state()
    profiler = PerformanceDiagnostics(model, torch.nn.CrossEntropyLoss(), torch.optim.Adam(model.parameters()))
    profiler.run_diagnostics(loader, batch_sizes=[8], num_iterations=6)
    (row,) = profiler.get_results().to_dict("records")
    told = {
        "devices": [(device.name, device.model, device.uuid, device.usable) for device in list_devices()],
        "device": row["device"],
        "outcome": row["outcome"],
        "reason": row["reason"],
        "steps": row["steps"],
        "peak_gpu_memory": row["peak_gpu_memory"],
        "model_on": str(next(model.parameters()).device),
        "random_state_kept": bool(torch.equal(state, torch.cuda.get_rng_state())),
    }
    print(json.dumps(told))


if __name__ == "__main__":
    assert tests.trials.pretended_board
    main()
