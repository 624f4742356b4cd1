"""The whole model is never called, only its parts are; and there is no loader."""

import torch
from common import Net, PausedSGD, border, fingerprint, measured, pause, write_ledger

torch.manual_seed(1)


class Whole(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.parts = torch.nn.ModuleDict({"body": Net(0.004, 0.003, outputs=8), "head": Net(0.002)})

    def forward(self, x):
        return self.parts["head"](self.parts["body"](x))


model = Whole()
optimizer = PausedSGD(model.parameters(), lr=0.01)
with measured(model, optimizer):
    for _ in range(24):
        x, y = torch.randn(4, 8), torch.randn(4, 1)
        pause("other", 0.003)
        torch.nn.functional.mse_loss(model.parts["head"](model.parts["body"](x)), y).backward()
        optimizer.step()
        border()
        optimizer.zero_grad()
fingerprint(model)
write_ledger()
