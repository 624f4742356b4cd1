"""An optimizer's state that was made on one device meets parameters on another one, and has to be where these are."""

from __future__ import annotations

import torch

from perf_diagnostics.records import Settings
from perf_diagnostics.workloads.training_of_parts import training_of


def test_moments_made_elsewhere_are_brought_to_their_parameters() -> None:
    """As after a pass on the CPU, with the model on a GPU now: parameters are moved in place, and moments are not."""
    model = torch.nn.Linear(8, 2, device="meta")
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    for parameter in model.parameters():
        optimizer.state[parameter] = {
            "step": torch.tensor(3.0),
            "exp_avg": torch.zeros(parameter.shape),
            "exp_avg_sq": torch.zeros(parameter.shape),
        }
    settings = Settings(batch_size=4, device="meta")
    batches = [(torch.ones(4, 8), torch.zeros(4, dtype=torch.long))]
    training = training_of(model, optimizer, batches, torch.nn.CrossEntropyLoss(), settings=settings)
    states = list(training.optimizer.state.items())
    assert len(states) == 2
    for parameter, state in states:
        assert parameter.device.type == "meta"
        assert state["exp_avg"].device == state["exp_avg_sq"].device == parameter.device
        assert state["step"].device.type == "cpu" and state["step"].item() == 3  # torch counts steps on the host
