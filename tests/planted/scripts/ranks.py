"""A plain training of several processes under torchrun's variables, with one fault that its argument chooses.

Nothing in it knows of a profiler. The model is a layer that is applied many times: much to compute, little to send.
"""

import argparse
import contextlib
import gc
import os
import threading
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset

FAULTS = (
    "none",
    "light",
    "heavy",
    "late-rank",
    "late-now-and-then",
    "late-in-backward",
    "late-for-buffers",
    "buffers",
    "reduces-one-by-one",
    "reduces-at-once",
    "uneven-in-turn",
    "uneven-together",
    "syncs-all",
    "syncs-last",
    "slow-network",
    "threads",
    "collects",
    "uneven-passes",
    "even-passes",
)
given = argparse.ArgumentParser()
given.add_argument("--fault", choices=FAULTS, default="none")
given.add_argument("--steps", type=int, default=40)
given.add_argument("--seed", type=int, default=0)
args = given.parse_args()

RANK = int(os.environ["RANK"])
LAYERS = {
    "light": 4,
    "late-rank": 4,
    "late-now-and-then": 4,
    "late-in-backward": 4,
    "late-for-buffers": 4,
    "buffers": 4,
    "reduces-one-by-one": 4,
    "reduces-at-once": 4,
    "heavy": 96,
    "slow-network": 96,
}.get(args.fault, 24)
ACCUMULATED = 4 if args.fault.startswith("syncs") else 1
#: Four passes, of which the second rank has the fewer batches; else one.
A_PASS = args.steps * ACCUMULATED
if args.fault.endswith("passes"):
    A_PASS = args.steps // 4 // (2 if args.fault.startswith("uneven") and RANK == 1 else 1)
torch.manual_seed(args.seed)
torch.set_num_threads(16 if args.fault == "threads" else 1)
if args.fault == "collects":
    gc.unfreeze()  # torch is part of the heap, whoever has imported it


def rows(batch):
    """Samples in a batch: alike, or four times as many in every second one, on the ranks in turn or on both at once."""
    usual = 64 if ACCUMULATED > 1 else 128
    large = {"uneven-in-turn": batch % 2 == RANK, "uneven-together": batch % 2 == 0}
    return 4 * usual if large.get(args.fault, False) else usual


class Batches(IterableDataset):
    def __iter__(self):
        for batch in range(A_PASS):
            if args.fault == "late-for-buffers" and RANK == 1:
                time.sleep(0.04)
            yield torch.randn(rows(batch), 256)


class Applied(torch.nn.Module):
    """One layer, applied again and again: 20 ms of work, a quarter of a megabyte of gradients.

    Light, a sixth of that, where the fault is a sleep: ranks that share two processors with others are late at random.
    Heavy, four times that, where the exchange is looked at: of 20 ms, gloo's few between two processes that compute
    are a seventh, and no fault is planted there.
    Where batches are uneven, as often again before, as a frozen encoder would be: work that backward has no part in.
    """

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(256, 256)
        self.norm = torch.nn.BatchNorm1d(256) if args.fault.endswith("buffers") else torch.nn.Identity()

    def forward(self, x):
        with torch.no_grad():
            for _ in range(24 if args.fault.startswith("uneven") else 0):
                x = torch.tanh(self.layer(x))
        for _ in range(LAYERS):
            x = torch.tanh(self.layer(x))
        return self.norm(x)


def reduced(loss):
    """Sixty metrics, averaged over the ranks: one after another, or as one tensor."""
    metrics = loss.detach() * torch.arange(60)
    for each in metrics.split(60 if args.fault == "reduces-at-once" else 1):
        dist.all_reduce(each)
    return (metrics / dist.get_world_size()).tolist()


def large():
    """17 MB of gradients."""
    return torch.nn.Sequential(torch.nn.Linear(256, 2048), torch.nn.Tanh(), torch.nn.Linear(2048, 1792))


def slow_network(_state, bucket):
    """The average over the ranks, that takes 80 ms longer to arrive; nobody computes meanwhile."""
    work = dist.all_reduce(bucket.buffer().div_(dist.get_world_size()), async_op=True)
    arrived = torch.futures.Future()

    def wait():
        work.wait()
        time.sleep(0.08)
        arrived.set_result(bucket.buffer())

    threading.Thread(target=wait).start()
    return arrived


def late(gradient):
    """40 ms before the first gradient of a layer."""
    time.sleep(0.04)
    return gradient


dist.init_process_group("gloo")
model = DistributedDataParallel(large() if ACCUMULATED > 1 else Applied())
if args.fault == "slow-network":
    model.register_comm_hook(None, slow_network)
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
heap = [[number] for number in range(200_000)] if args.fault == "collects" else []
if args.fault == "collects":
    gc.disable()

data = DataLoader(Batches(), batch_size=None)
for _ in range(4 if args.fault.endswith("passes") else 1):
    with model.join() if args.fault.endswith("passes") else contextlib.nullcontext():
        for number, batch in enumerate(data):
            last = (number + 1) % ACCUMULATED == 0
            with contextlib.nullcontext() if last or args.fault == "syncs-all" else model.no_sync():
                loss = model(batch).square().mean()
                if args.fault == "late-rank" and RANK == 1:
                    time.sleep(0.04)
                if args.fault == "late-now-and-then" and RANK == 1 and number % 8 == 7:
                    time.sleep(0.25)
                if args.fault == "late-in-backward" and RANK == 1:
                    loss.register_hook(late)
                loss.backward()
            if last:
                optimizer.step()
                optimizer.zero_grad()
            if args.fault.startswith("reduces"):
                reduced(loss)
            if args.fault == "collects" and (number + 2 * RANK) % 4 == 0:
                gc.collect()
dist.destroy_process_group()
