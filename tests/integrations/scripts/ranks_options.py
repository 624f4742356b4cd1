"""A training of several processes whose DistributedDataParallel is made with the options that an argument names.

python ranks_options.py STORE OPTIONS HEADS, with torchrun's variables set: OPTIONS are JSON, of two heads the first is
used in all steps ("one") or each in turn ("turns"). The model has 4.2 million parameters, 17 MB, a third of them in
the heads.
"""

from __future__ import annotations

import json
import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


class Heads(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Sequential(*(torch.nn.Linear(840, 840) for _ in range(4)))
        self.heads = torch.nn.ModuleList(torch.nn.Linear(840, 840) for _ in range(2))
        self.step = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.step += 1
        head = self.heads[self.step % 2 if sys.argv[3] == "turns" else 0]
        return head(self.body(x))  # type: ignore[no-any-return]


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=RANK, world_size=SIZE)
    model = DistributedDataParallel(Heads(), **json.loads(sys.argv[2]))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(12):
        model(torch.randn(4, 840)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()
    print(f"rank {RANK} ends")


if __name__ == "__main__":
    main()
