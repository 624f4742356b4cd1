"""Two processes of one training on the CPU; rank 1 waits for its data, or is slow in backward, or each has the longer
batch in turn.

RANK and WORLD_SIZE come from the environment, as torchrun sets them. Arguments: the store's file, what is planted, how
many steps.
"""

from __future__ import annotations

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
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for batch in torch.utils.data.DataLoader(Loader(), batch_size=None):
    optimizer.zero_grad()
    output = model(batch)
    if PLANTED == "slow-backward" and RANK == 1:
        output.register_hook(slow)
    output.square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
print(f"rank {RANK} ends", flush=True)
