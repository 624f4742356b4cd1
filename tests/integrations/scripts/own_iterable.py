"""A loader of the user's own class."""

import torch
from common import Net, PausedSGD, border, fingerprint, measured, pause, write_ledger


class Rows:
    def __iter__(self):
        for _ in range(24):
            pause("data_wait", 0.005)
            yield {"x": torch.randn(4, 8), "y": torch.randn(4, 1)}


torch.manual_seed(1)
batches = Rows()
model = Net(0.004)
optimizer = PausedSGD(model.parameters(), lr=0.01)
with measured(model, optimizer, batches):
    for batch in batches:
        torch.nn.functional.mse_loss(model(batch["x"]), batch["y"]).backward()
        optimizer.step()
        border()
        optimizer.zero_grad()
fingerprint(model)
write_ledger()
