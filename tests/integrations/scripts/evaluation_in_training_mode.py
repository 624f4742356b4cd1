"""Like evaluation.py, by somebody who forgot model.eval() and turns gradients off inside the loop only."""

import torch
from common import Net, PausedSGD, border, fingerprint, loader, measured, write_ledger

torch.manual_seed(1)
batches, held_out = loader(0.0005, rows=128), loader(0.004, rows=16, phase="other")
model = Net(0.003, 0.004)
optimizer = PausedSGD(model.parameters(), lr=0.01)
with measured(model, optimizer):
    for number, (x, y) in enumerate(batches, 1):
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
        border()
        optimizer.zero_grad()
        if number % 10 == 0:
            for held_x, _ in held_out:
                with torch.no_grad():
                    model(held_x)
fingerprint(model)
write_ledger()
