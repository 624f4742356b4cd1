"""A training on the CPU with two threads of torch's, whose forward waits for what its argument says, or for nothing.

Arguments: what forward does beside its products, and how many steps.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time

import torch

WHAT, STEPS = sys.argv[1], int(sys.argv[2])
WAIT_S = 0.006

torch.set_num_threads(2)
torch.manual_seed(0)
square = torch.randn(384, 384)
asked, done = threading.Event(), threading.Event()
ask, answer = os.pipe(), os.pipe()
calls = itertools.count()


def dawdles() -> None:
    """Another thread, which does what it is asked after a sleep."""
    while asked.wait():
        asked.clear()
        time.sleep(WAIT_S)
        done.set()


def computes() -> None:
    """Another thread of Python's that computes without end."""
    number = 0
    while True:
        number = (number * 31 + 7) % 1_000_003


def serves() -> None:
    """Another process, which answers what it is asked after a while."""
    if os.fork() == 0:
        os.close(ask[1])
        while os.read(ask[0], 1):
            time.sleep(WAIT_S)
            os.write(answer[1], b"x")
        os._exit(0)


def wait() -> None:
    """For a few milliseconds, in which the idle thread of the team spins on; or no wait at all."""
    if WHAT == "sleep":
        time.sleep(WAIT_S)
    elif WHAT == "lock":
        asked.set()
        done.wait()
        done.clear()
    elif WHAT == "service":
        os.write(ask[1], b"x")
        os.read(answer[0], 1)
    elif WHAT == "contended":
        if next(calls) == 4:  # in the second step: torch has imported what it needs by then
            threading.Thread(target=computes, daemon=True).start()
        sum(number % 7 for number in range(10_000))
    elif WHAT == "products":  # or the steps would be too short to be looked at
        for _ in range(4):
            square @ square


class Waiting(torch.nn.Module):
    """One product in two threads, which is enough for the second one to spin; the waits come after it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(384, 384)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.layer(x)
        for _ in range(4):
            wait()
        return x


if WHAT == "service":
    serves()
if WHAT == "lock":
    threading.Thread(target=dawdles, daemon=True).start()
model = Waiting()
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
data = torch.utils.data.TensorDataset(torch.randn(STEPS * 64, 384))
for (batch,) in torch.utils.data.DataLoader(data, batch_size=64):
    optimizer.zero_grad()
    loss = model(batch).square().mean()
    loss.backward()
    optimizer.step()
