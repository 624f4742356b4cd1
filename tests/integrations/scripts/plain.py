"""The plain loop: each part sleeps for a known time, the loss is outside of the model, gradients are clipped."""

import sys
import time

import torch
from common import Net, Noise, SlowBackward
from torch.utils.data import DataLoader

torch.manual_seed(0)
loader = DataLoader(Noise(64, seconds=0.001), batch_size=4, shuffle=True)
model = Net(seconds=0.006)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
print(type(iter(loader)).__name__, sys.argv[1:], __name__, __file__.rpartition("/")[2])
step = 0
for epoch in range(2):
    for x, y in loader:  # 4 ms
        loss = torch.nn.functional.mse_loss(SlowBackward.apply(model(x), 0.008), y)  # 6 ms, backward 8 ms
        time.sleep(0.002)  # more of the loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        time.sleep(0.003)  # more clipping
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.005)  # other
        step += 1
        print(step, f"{loss.item():.9f}")
print(torch.rand(1).item(), sum(p.double().sum().item() for p in model.parameters()))
