"""6·N·tokens where most parameters are frozen: N is not what is trained, which made it 124 times too low elsewhere."""

from __future__ import annotations

import torch
from torch import nn

from perf_diagnostics.trials.count.count_work import count_work
from perf_diagnostics.trials.count.counts import six_n_disagrees
from perf_diagnostics.workloads.workload import BatchCount, Training

TOKENS, WIDTH, WORDS, RANK = 20, 32, 50, 2


class Adapted(nn.Module):
    """A table that is trained, a frozen layer with a trained adapter of low rank beside it, and frozen scores."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(WORDS, WIDTH)
        self.body = nn.Linear(WIDTH, WIDTH, bias=False).requires_grad_(requires_grad=False)
        self.down = nn.Linear(WIDTH, RANK, bias=False)
        self.up = nn.Linear(RANK, WIDTH, bias=False)
        self.scores = nn.Linear(WIDTH, WORDS, bias=False).requires_grad_(requires_grad=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.table(tokens)
        found: torch.Tensor = self.scores(self.body(hidden) + self.up(self.down(hidden)))
        return found


def test_frozen_parameters_keep_their_forward_and_the_gradient_of_their_inputs() -> None:
    model = Adapted()
    training = Training(
        model=model,
        optimizer=torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1),
        batches=[torch.ones(2, TOKENS // 2, dtype=torch.long)],
        loss_of=lambda made, batch: made(batch).sum(),
        count=lambda batch: BatchCount(batch.shape[0], batch.numel(), 0),
    )
    work = count_work(training, "float32")
    frozen, adapter = WIDTH * WIDTH + WIDTH * WORDS, 2 * WIDTH * RANK
    by_hand = TOKENS * (4 * frozen + 6 * adapter)
    assert work.six_n_flops == by_hand * work.batches
    assert work.flops == work.six_n_flops  # what torch's operators say
    assert by_hand / (6 * adapter * TOKENS) > 14  # what counting trained parameters only would leave out
    assert six_n_disagrees(work) == ""
