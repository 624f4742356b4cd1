"""An optimizer that has stepped before the training begins, and a penalty on gradients in each step's loss."""

import torch
from common import Net, PausedSGD, border, fingerprint, loader, measured, pause, write_ledger

torch.manual_seed(1)
batches = loader(0.001)
model = Net(0.004)
optimizer = PausedSGD(model.parameters(), lr=0.01)
with measured(model, optimizer, batches):
    optimizer.step()  # as some do for a scheduler's sake
    border()
    for x, y in batches:
        x.requires_grad_()
        loss = torch.nn.functional.mse_loss(model(x), y)
        pause("forward", 0.002)
        (slope,) = torch.autograd.grad(loss, x, create_graph=True)
        (loss + slope.square().sum()).backward()
        optimizer.step()
        border()
        optimizer.zero_grad()
        pause("other", 0.004)
fingerprint(model)
write_ledger()
