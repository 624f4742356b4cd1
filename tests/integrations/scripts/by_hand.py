"""Trains without an optimizer: first over a loader, with evaluations in between, then over a list of batches."""

import time

import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
x, y = torch.randn(240, 8), torch.randn(240, 1)
loader = DataLoader(TensorDataset(x, y), batch_size=8)


def train(batches):
    for x, y in batches:
        answers = model(x)
        time.sleep(0.003)
        loss = torch.nn.functional.mse_loss(answers, y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for p in model.parameters():
            p.data.add_(p.grad, alpha=-0.05)
        time.sleep(0.002)
        model.zero_grad()
    return loss.item()


for _ in range(2):
    print(train(loader))
    model.eval()
    with torch.no_grad():
        print(sum(torch.nn.functional.mse_loss(model(x), y).item() for x, y in loader))
    model.train()
print(train(list(zip(x.split(8), y.split(8), strict=True))[:20]))
