"""A small real training step, of about half a millisecond on a CPU: it stands in for steps too long to take turns."""

from __future__ import annotations

from collections.abc import Iterator

import torch

#: Elements of each tensor (64 KiB). From twice as many on torch uses a second thread (``at::internal::GRAIN_SIZE`` is
#: 32768); waking threads on a busy machine scatters more than is measured, so the step stays in the calling thread.
ELEMENTS = 16_384

#: Products and sigmoids of a step's forward passes; with what backward keeps of them they fill a processor's
#: second-level cache, so that what measures finds its code and data where it does in a real step: not in the first.
LAYERS = 16

#: Batches there are: 4 MiB, so that the next one does not lie in the first-level cache either.
BATCHES = 64


class StandIn(torch.nn.Module):
    """The model of a stand-in training; its calls are the forward pass and give the loss.

    Nothing in it draws a random number, so that the random state around it stays what it is.

    Args:
        device: where the model lives. Batches are made on the host.
        layers: of a forward pass.
    """

    def __init__(self, device: torch.device, layers: int = LAYERS) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((ELEMENTS,), 0.5, dtype=torch.float32, device=device))
        self.layers = layers
        self._batches = torch.ones((BATCHES, ELEMENTS), dtype=torch.float32, device="cpu")

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        for _ in range(self.layers):
            batch = torch.sigmoid(batch * self.weight)
        return batch.sum()

    def batches(self) -> Iterator[torch.Tensor]:
        """Batches without end, each copied from the host's memory."""
        while True:
            for batch in self._batches:
                yield batch.clone()
