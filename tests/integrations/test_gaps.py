"""What a training of the user's own does not record is said, with the reason."""

from __future__ import annotations

from pathlib import Path

import torch

from perf_diagnostics.integrations import attach
from perf_diagnostics.records import TrialResult


class Bag(torch.nn.Module):
    """The mean of its tokens' vectors."""

    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(10, 4)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        mean: torch.Tensor = self.words(input_ids).mean()
        return mean


def trained(model: torch.nn.Module, batches: list[object], folder: Path) -> TrialResult:
    """A few steps over these batches, watched."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = torch.utils.data.DataLoader(batches, batch_size=None)  # type: ignore[arg-type]
    with attach(model, optimizer, loader, results_dir=folder) as watched:
        for batch in loader:
            loss = model(batch["input_ids"]) if isinstance(batch, dict) else model(batch).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    assert watched.run is not None
    return watched.run.results[0]


def test_each_signal_that_is_absent_has_its_reason(tmp_path: Path) -> None:
    result = trained(torch.nn.Linear(4, 1), [torch.ones(2, 4)] * 10, tmp_path)
    for signal in ("padding_tokens", "tokens", "flops_per_step", "energy_cpu"):
        gap = result.gap(signal)
        assert gap is not None and gap.why, signal
        assert signal not in result.steps[0].columns and result.value(signal) is None


def test_what_was_recorded_has_no_gap(tmp_path: Path) -> None:
    # Two sentences of three tokens, one of which is padding: 1 of 6.
    batch = {"input_ids": torch.ones(2, 3, dtype=torch.long), "attention_mask": torch.tensor([[1, 1, 1], [1, 1, 0]])}
    result = trained(Bag(), [batch] * 10, tmp_path)
    assert result.steps[0].columns["padding_tokens"].tolist() == [1] * 10
    assert result.gap("padding_tokens") is None and result.gap("tokens") is None
