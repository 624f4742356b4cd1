"""A list of modules, which cannot be called itself, beside one that is called; and there is no loader."""

import torch
from common import Net, PausedSGD, border, fingerprint, measured, pause, write_ledger

torch.manual_seed(1)

body = torch.nn.ModuleList([Net(0.003, 0.002, outputs=8), Net(0.002, 0.002, outputs=8)])
head = Net(0.002)
optimizer = PausedSGD([*body.parameters(), *head.parameters()], lr=0.01)
with measured([body, head], optimizer):
    for _ in range(24):
        x, y = torch.randn(4, 8), torch.randn(4, 1)
        pause("other", 0.003)
        for part in body:
            x = part(x)
        torch.nn.functional.mse_loss(head(x), y).backward()
        optimizer.step()
        border()
        optimizer.zero_grad()
fingerprint(torch.nn.ModuleList([body, head]))
write_ledger()
