"""The plain loop, with a loss outside of the model, clipped gradients and a pause between the steps."""

import sys

import torch
from common import Net, PausedSGD, border, fingerprint, loader, measured, pause, write_ledger

torch.manual_seed(1)
batches = loader(0.001)
model = Net(0.006, 0.008)
optimizer = PausedSGD(model.parameters(), lr=0.01)
print(type(iter(batches)).__name__, sys.argv[1:], __name__, __file__.rpartition("/")[2], __package__, __spec__)
with measured(model, optimizer, batches):
    for x, y in batches:
        out = model(x)
        pause("forward", 0.002)  # the loss
        loss = torch.nn.functional.mse_loss(out, y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        pause("optimizer", 0.003)  # the clipping
        optimizer.step()
        border()
        optimizer.zero_grad()
        print(f"{loss.item():.9f}")
        pause("other", 0.005)
fingerprint(model)
write_ledger()
