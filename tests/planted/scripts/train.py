"""A plain training script with one fault that its argument chooses; nothing in it knows of a profiler."""

import argparse
import gc
import random
import sys
import tempfile
import time
from collections import deque

import composed
import methods
import taught
import torch
from needless import MODELS
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    TensorDataset,
    get_worker_info,
)

FAULTS = (
    *("none", "sleeping-loader", "short-epochs", "collector", "stall", "save", "anomaly", "single-optimizer"),
    *("dense-table", "sparse-table", "waits", "asks-again", "one-by-one", "body-not-frozen"),
    *("text", "carried-state", "cut-state", "grows", "searching-sampler", "indexed-sampler"),
    *("kept-graph", "kept-numbers", "parsed-by-all", "parsed-in-turn"),
    *MODELS,
    *composed.MODELS,
    *methods.TRAININGS,
    *taught.TRAININGS,
)
given = argparse.ArgumentParser()
given.add_argument("--fault", choices=FAULTS, default="none")
given.add_argument("--steps", type=int, default=100)
given.add_argument("--seed", type=int, default=0)
args = given.parse_args()

torch.manual_seed(args.seed)
random.seed(args.seed)
torch.set_num_threads(1)
BATCH = 64
if args.fault == "collector":
    gc.unfreeze()  # torch is part of the heap, whoever has imported it

trainings = methods.TRAININGS | taught.TRAININGS
if args.fault in trainings:
    trainings[args.fault](args.steps)
    sys.exit()


class Vectors(Dataset):
    def __init__(self, rows):
        self.rows = torch.randn(rows, 256)
        self.labels = torch.randint(10, (rows,))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        if args.fault == "sleeping-loader":
            time.sleep(0.0005)
        return self.rows[index], self.labels[index]


def layers(width, depth):
    parts = []
    for inputs in [256, *[width] * (depth - 1)]:
        parts += [torch.nn.Linear(inputs, width), torch.nn.ReLU()]
    return torch.nn.Sequential(*parts, torch.nn.Linear(width, 10))


class Table(torch.nn.Module):
    """200,000 rows of which a batch looks up 64, before a few layers."""

    def __init__(self):
        super().__init__()
        self.rows = torch.nn.Embedding(200_000, 16, sparse=args.fault == "sparse-table")
        wide = [torch.nn.Linear(512, 512), torch.nn.ReLU()]
        self.top = torch.nn.Sequential(torch.nn.Linear(16, 512), torch.nn.ReLU(), *wide, torch.nn.Linear(512, 10))

    def forward(self, x):
        return self.top(self.rows((x[:, 0].abs() * 30_000).long()))


class Lines(IterableDataset):
    """Lines of text that the loader's workers share."""

    def __init__(self):
        self.lines = [" ".join(str(random.gauss(0, 1)) for _ in range(640)) for _ in range(512)]

    def parse(self, number):
        row = [float(part) for part in self.lines[number % 512].split()]
        mean = sum(row) / len(row)
        spread = sum((one - mean) ** 2 for one in row) ** 0.5
        return torch.tensor([(one - mean) / spread for one in row[:256]]), number % 10


class ParsedByAll(Lines):
    def parsed(self):
        for number in range(args.steps * BATCH):
            yield number, self.parse(number)

    def __iter__(self):
        worker = get_worker_info()
        for number, sample in self.parsed():
            if number % worker.num_workers != worker.id:
                continue
            yield sample


class ParsedInTurn(Lines):
    def __iter__(self):
        worker = get_worker_info()
        for number in range(worker.id, args.steps * BATCH, worker.num_workers):
            yield self.parse(number)


class Asks(torch.nn.Sequential):
    """Layers that ask a service first, which answers after 20 ms."""

    def forward(self, x):
        time.sleep(0.02)
        return super().forward(x)


class Balanced:
    """Batches of all classes alike; what samples a class has is looked up, or looked for through all labels."""

    def __init__(self, labels):
        self.labels = labels.tolist()
        self.members = {one: [i for i, y in enumerate(self.labels) if y == one] for one in range(10)}

    def __len__(self):
        return 4096 // BATCH

    def __iter__(self):
        for _ in range(len(self)):
            batch = []
            for place in range(BATCH):
                members = self.members[place % 10]
                if args.fault == "searching-sampler":
                    members = [i for i, y in enumerate(self.labels) if y == place % 10]
                batch.append(random.choice(members))
            yield batch


short = args.fault == "short-epochs"
rows = Vectors(10 * BATCH if short else 4096)
if args.fault.endswith("-sampler"):
    loader = DataLoader(rows, batch_sampler=Balanced(rows.labels))
elif args.fault.startswith("parsed-"):
    loader = DataLoader(ParsedByAll() if args.fault == "parsed-by-all" else ParsedInTurn(), BATCH, num_workers=2)
elif args.fault in MODELS or args.fault in composed.MODELS or args.fault.endswith("-table"):
    # Steps are short: batches are cut out whole.
    whole = TensorDataset(rows.rows, rows.labels)
    loader = DataLoader(whole, batch_size=None, sampler=BatchSampler(RandomSampler(whole), BATCH, drop_last=False))
else:
    loader = DataLoader(rows, BATCH, shuffle=True, num_workers=int(short))
many = args.fault == "single-optimizer"
tabled = args.fault.endswith("-table")
model = Table() if tabled else layers(24, 80) if many else layers(512, 3)
if args.fault == "waits":
    model = Asks(*model)
if args.fault in MODELS:
    model = MODELS[args.fault]()
if args.fault in composed.MODELS:
    model = composed.MODELS[args.fault]()
optimizer = (
    torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
    if many
    else torch.optim.SGD(
        model[-1].parameters() if args.fault == "body-not-frozen" else model.parameters(),
        lr=0.01,
        momentum=0.0 if tabled else 0.9,
    )
)
heap = [[number] for number in range(400_000)] if args.fault == "collector" else []
if args.fault == "anomaly":
    torch.autograd.set_detect_anomaly(True)

step, outputs, recent = 0, [], deque(maxlen=16)
while step < args.steps:
    for x, y in loader:
        step += 1
        out = model(x)
        for _ in range(5 if args.fault.endswith("-state") else 0):
            torch.nn.functional.cross_entropy(out, y).backward(retain_graph=args.fault == "carried-state")
            out = model(x + (out.mean() if args.fault == "carried-state" else out.detach().mean()))
        if args.fault == "text":
            messages = [f"{x} {out}" for _ in range(3)]
        loss = torch.nn.functional.cross_entropy(out, y)
        if args.fault == "one-by-one":
            out.square().mean().backward(retain_graph=True)
        if args.fault in ("kept-graph", "kept-numbers"):
            features = model[0](x)
            recent.append(features if args.fault == "kept-graph" else features.detach())
            loss = loss + torch.stack(tuple(recent)).mean(0).square().mean()
        loss.backward(retain_graph=args.fault == "kept-graph")
        optimizer.step()
        model.zero_grad()
        if args.fault == "asks-again":
            right = (model(x).argmax(dim=1) == y).sum()
        if args.fault == "grows":
            outputs.extend(out.flatten().tolist())
            middle = sorted(outputs)[len(outputs) // 2]
        if args.fault == "collector" and step % 3 == 0:
            gc.collect()
        if args.fault == "stall" and step % 40 == 0:
            time.sleep(0.2)
        if args.fault == "save" and step % 20 == 0:
            with tempfile.TemporaryFile() as file:
                torch.save(model.state_dict(), file)
            time.sleep(0.08)
        if step == args.steps:
            break
