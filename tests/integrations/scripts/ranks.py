"""Two processes of one training on the CPU; rank 1 waits for its data, always or now and then, or is slow in backward,
or each has the longer batch in turn; or four batches are accumulated, and gradients exchanged after each or the last.

RANK and WORLD_SIZE come from the environment, as torchrun sets them. Arguments: the store's file, what is planted, how
many steps.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time

import torch
import torch.distributed as dist

STORE, PLANTED, STEPS = sys.argv[1], sys.argv[2], int(sys.argv[3])
RANK, DOSE_S = int(os.environ["RANK"]), 0.03


def waits(step: int) -> float:
    if PLANTED == "late":
        return DOSE_S if RANK == 1 else 0.0
    if PLANTED == "in-turn":
        return DOSE_S if step % 2 == RANK else 0.0
    if PLANTED == "now-and-then":
        return 5 * DOSE_S if RANK == 1 and step % 10 == 9 else 0.0
    return 0.0


def batches():
    for step in range(STEPS):
        time.sleep(0.01 + waits(step))
        yield torch.randn(4 if PLANTED != "in-turn" or step % 2 != RANK else 12, 16)


class Loader(torch.utils.data.IterableDataset):
    def __iter__(self):
        return batches()


def slow(gradient):
    """Backward waits here, before the first gradient that is exchanged."""
    time.sleep(DOSE_S)
    return gradient


torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=f"file://{STORE}", rank=RANK, world_size=int(os.environ["WORLD_SIZE"]))
MICRO = 4 if PLANTED.startswith("exchanges") else 1
layers = torch.nn.Sequential(torch.nn.Linear(16, 1024), torch.nn.Linear(1024, 1024)) if MICRO > 1 else None
model = torch.nn.parallel.DistributedDataParallel(layers or torch.nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for number, batch in enumerate(torch.utils.data.DataLoader(Loader(), batch_size=None)):
    last = (number + 1) % MICRO == 0
    with contextlib.nullcontext() if last or PLANTED == "exchanges-all" else model.no_sync():
        output = model(batch)
        if PLANTED == "slow-backward" and RANK == 1:
            output.register_hook(slow)
        output.square().mean().backward()
    if last:
        optimizer.step()
        optimizer.zero_grad()
dist.destroy_process_group()
print(f"rank {RANK} ends", flush=True)
