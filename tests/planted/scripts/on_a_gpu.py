"""A plain training script for a GPU with one fault that its argument chooses; nothing in it knows of a profiler.

Sizes are such that the device sets the pace of the healthy ones on a data center's GPU: steps of 3 to 30 ms.
"""

import argparse
import math
import subprocess
import sys
import time

import torch
import torch.utils.checkpoint
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

given = argparse.ArgumentParser()
given.add_argument("--fault", default="none")
given.add_argument("--steps", type=int, default=100)
given.add_argument("--seed", type=int, default=0)
given.add_argument("--device", default="cuda")
given.add_argument("--small", action="store_true", help="a rehearsal: a sixteenth of each size")
args = given.parse_args()
device = torch.device(args.device)
torch.manual_seed(args.seed)


def size(number):
    return max(2, number // 16) if args.small else number


class Layers(nn.Module):
    """Wide linear layers; after each of them something may be done with what it gave."""

    def __init__(self, depth, width, then=None):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        for layer in self.layers:  # so that the gradients of the first ones do not vanish in 16 bits
            nn.init.kaiming_normal_(layer.weight)
        self.then = then

    def forward(self, x):
        for layer in self.layers:
            x = functional.relu(layer(x))
            if self.then is not None:
                x = self.then(x)
        return x


def train(model, batches, loss_of, optimizer=None, after=None, before=None):
    """``before`` is done with each batch, ``after`` with the loss before the update."""
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), lr=1e-5, fused=device.type == "cuda")
    step = 0
    while step < args.steps:
        for batch in batches:
            step += 1
            loss = loss_of(model, batch if before is None else before(batch))
            loss.backward()
            if after is not None:
                after(loss)
            optimizer.step()
            optimizer.zero_grad()
            if step == args.steps:
                break


def squared(model, x):
    return model(x).float().square().mean()


def resident(rows, width, dtype=torch.bfloat16, batches=4):
    return [torch.randn(rows, width, device=device, dtype=dtype) for _ in range(batches)]


ROWS, WIDTH, DEPTH = size(8192), size(2048), 24


def wide(then=None, dtype=torch.bfloat16, depth=DEPTH):
    return Layers(depth, WIDTH, then).to(device, dtype)


def healthy():
    train(wide(), resident(ROWS, WIDTH), squared)


def reads_at_the_end():
    """One read a step, for which a deep queue does not run empty for long."""
    losses = []
    train(wide(), resident(ROWS, WIDTH), squared, after=lambda loss: losses.append(loss.item()))


def reads_each_layer():
    means = []

    def look(x):
        means.append(x.mean().item())
        return x

    train(wide(look), resident(ROWS, WIDTH), squared)


def reads_gradients():
    model = wide()
    norms = []
    train(
        model,
        resident(ROWS, WIDTH),
        squared,
        after=lambda loss: norms.append({name: p.grad.norm().item() for name, p in model.named_parameters()}),
    )


def synchronizes():
    def wait(x):
        torch.cuda.synchronize()
        return x

    train(wide(wait), resident(ROWS, WIDTH), squared)


def masks(by_index):
    def drop(x):
        kept = x > 0.01
        if by_index:
            out = x.clone()
            out[kept] = x[kept] * 0.5
            return out
        return torch.where(kept, x * 0.5, x)

    class Masked(Layers):
        def forward(self, x):
            for layer in self.layers:
                x = drop(functional.relu(layer(x)))
            return x

    train(Masked(DEPTH, WIDTH).to(device, torch.bfloat16), resident(ROWS // 2, WIDTH), squared)


def round_trip(away):
    """What is normalised on the host, by numpy, between two layers."""

    def scale(x):
        if not away:
            return x / (1e-3 + x.detach().float().std()).to(x.dtype)
        return x / float(1e-3 + x.detach().float().cpu().numpy().std())

    train(wide(scale, depth=6), resident(ROWS, WIDTH), squared)


def copies(pinned):
    rows, width = size(32768), size(1024)

    class Widened(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(width, WIDTH)
            self.rest = Layers(12, WIDTH)

        def forward(self, x):
            return self.rest(self.first(x))

    batches = [torch.randn(rows, width) for _ in range(4)]
    if pinned:
        batches = [batch.pin_memory() for batch in batches]
    train(
        Widened().to(device, torch.bfloat16),
        batches,
        squared,
        before=lambda x: x.to(device, non_blocking=True).to(torch.bfloat16),
    )


def small_pageable_batch():
    """1 MB of targets from ordinary memory beside batches that lie on the device: not worth a word."""
    targets = torch.randn(ROWS, 64)

    def loss_of(model, batch):
        x, y = batch
        return functional.mse_loss(model(x)[:, :64].float(), y)

    train(wide(), resident(ROWS, WIDTH), loss_of, before=lambda x: (x, targets.to(device)))


def scalars(one_by_one):
    values = [float(n) for n in range(500)]

    def before(x):
        if one_by_one:
            scale = torch.stack([torch.tensor(value).to(device) for value in values])
        else:
            scale = torch.tensor(values).to(device)
        return x, scale

    def loss_of(model, batch):
        x, scale = batch
        return (model(x)[:, :500].float() * scale[: x.shape[1]]).square().mean()

    train(wide(), resident(ROWS // 2, WIDTH), loss_of, before=before)


def products(precision):
    if precision == "tf32":
        torch.set_float32_matmul_precision("high")
    dtype = torch.bfloat16 if precision == "bfloat16" else torch.float64 if precision == "float64" else torch.float32
    train(wide(dtype=dtype), resident(ROWS // 4, WIDTH, dtype), squared)


class Blocks(nn.Module):
    """Transformer blocks with attention of one's own."""

    def __init__(self, depth, width, heads, by_hand):
        super().__init__()
        self.heads, self.by_hand = heads, by_hand
        self.parts = nn.ModuleList(
            nn.ModuleList([nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)])
            for _ in range(depth)
        )
        self.feeds = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
            for _ in range(depth)
        )

    def forward(self, x):
        for (norm, project, out), feed in zip(self.parts, self.feeds, strict=True):
            batch, length, width = x.shape
            q, k, v = (
                part.view(batch, length, self.heads, -1).transpose(1, 2) for part in project(norm(x)).chunk(3, dim=-1)
            )
            if self.by_hand:
                scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
                mixed = torch.softmax(scores, dim=-1) @ v
            else:
                mixed = functional.scaled_dot_product_attention(q, k, v)
            x = x + out(mixed.transpose(1, 2).reshape(batch, length, width))
            x = x + feed(x)
        return x


def attention(by_hand):
    model = Blocks(4, size(1024), 16, by_hand).to(device, torch.bfloat16)
    batches = [torch.randn(2, size(4096), size(1024), device=device, dtype=torch.bfloat16) for _ in range(2)]
    train(model, batches, squared)


def tiny_steps(graphed):
    """A batch of one through small layers, each a kernel of some microseconds."""
    model = Blocks(6, 128, 4, False).to(device)
    x = [torch.randn(1, 32, 128, device=device) for _ in range(4)]
    call = torch.cuda.make_graphed_callables(model, (x[0].clone(),)) if graphed else model
    train(call, x, squared, optimizer=torch.optim.AdamW(model.parameters(), lr=1e-5, fused=device.type == "cuda"))


def odd_sizes(odd):
    width, words = (size(1023), size(50257)) if odd else (size(1024), size(50304))

    class Language(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = Layers(4, width), nn.Linear(width, words, bias=False)

        def forward(self, x):
            return self.head(self.body(x))

    targets = torch.randint(words, (size(8192),), device=device)
    train(
        Language().to(device, torch.bfloat16),
        resident(size(8192), width),
        lambda model, x: functional.cross_entropy(model(x), targets),
    )


def empties_cache(does):
    train(
        wide(),
        resident(ROWS, WIDTH),
        squared,
        after=(lambda loss: torch.cuda.empty_cache()) if does else None,
    )


def nearly_full(does):
    """Batches of many lengths on a device of which most is taken."""
    if does:
        free, _ = torch.cuda.mem_get_info()
        ballast = torch.empty(free - 4 * 2**30, dtype=torch.uint8, device=device)  # noqa: F841 - it is there
    torch.manual_seed(1)
    lengths = torch.randint(size(2048), size(32768), (64,)).tolist()
    whole = torch.randn(size(32768), WIDTH, device=device, dtype=torch.bfloat16)
    train(wide(depth=8), [whole[:length] for length in lengths], squared)


def many_parameters(**how):
    model = nn.Sequential(*(nn.Linear(size(256), size(256)) for _ in range(150))).to(device, torch.bfloat16)
    x = [torch.randn(size(262144), size(256), device=device, dtype=torch.bfloat16)]
    train(model, x, squared, optimizer=torch.optim.AdamW(model.parameters(), lr=1e-5, **how))


def checkpointed(does):
    class Kept(Layers):
        def forward(self, x):
            if does:
                return torch.utils.checkpoint.checkpoint_sequential(
                    nn.Sequential(*self.layers), 6, x, use_reentrant=False
                )
            return nn.Sequential(*self.layers)(x)

    train(Kept(DEPTH, WIDTH).to(device, torch.bfloat16), resident(ROWS, WIDTH), squared)


class Samples(Dataset):
    def __init__(self, sleep_s):
        self.rows, self.sleep_s = torch.randn(4096, WIDTH), sleep_s

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        if self.sleep_s:
            time.sleep(self.sleep_s)
        return self.rows[index]


def loader(workers, sleep_s=0.0002, batch=64):
    repeat = ROWS // batch  # a batch is made larger on the device, so that the device has something to do

    def before(x):
        x = x.to(device, non_blocking=True).to(torch.bfloat16)
        return x.repeat(repeat, 1)

    kept = {"persistent_workers": True, "prefetch_factor": 4} if workers else {}
    batches = DataLoader(
        Samples(sleep_s), batch, shuffle=True, drop_last=True, num_workers=workers, pin_memory=True, **kept
    )
    train(wide(), batches, squared, before=before)


def augments_in_the_loop(does):
    rows = [torch.randn(256, WIDTH).pin_memory() for _ in range(4)]

    def before(x):
        if does:
            for _ in range(10):
                x = torch.sort(x, dim=1).values
        return x.to(device, non_blocking=True).to(torch.bfloat16).repeat(ROWS // 256, 1)

    train(wide(), rows, squared, before=before)


def convolutions(channels_last):
    layers = []
    for inputs, outputs in ((64, 128), (128, 256), (256, 256), (256, 256)):
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
    form = torch.channels_last if channels_last else torch.contiguous_format
    model = nn.Sequential(*layers).to(device, torch.bfloat16, memory_format=form)
    x = torch.randn(size(128), 64, 56, 56, device=device, dtype=torch.bfloat16)
    train(model, [x.contiguous(memory_format=form)], squared)


def table(sparse):
    class Table(nn.Module):
        def __init__(self):
            super().__init__()
            self.rows, self.top = nn.Embedding(size(4_000_000), 64, sparse=sparse), nn.Linear(64, 64)

        def forward(self, numbers):
            return self.top(self.rows(numbers).mean(dim=1))

    model = Table().to(device)
    numbers = [torch.randint(size(4_000_000), (size(8192), 20), device=device) for _ in range(4)]
    make = torch.optim.SparseAdam if sparse else torch.optim.Adam
    update = make([model.rows.weight], lr=1e-4)
    train(model, numbers, squared, optimizer=update)


def gelu(by_hand):
    def by_operators(x):
        return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))

    activation = by_operators if by_hand else (lambda x: functional.gelu(x, approximate="tanh"))
    width = size(1024)
    train(Layers(12, width, activation).to(device, torch.bfloat16), resident(size(65536), width), squared)


def grows(does):
    kept = []

    def after(loss):
        kept.append((loss if does else loss.detach(), torch.empty(2**22 if does else 1, device=device)))
        if not does:
            kept.clear()

    train(wide(depth=8), resident(ROWS, WIDTH), squared, after=after)


def beside_another(how_many):
    """Another process computes on the same device."""
    work = (
        "import torch\nprint('ready', flush=True)\na = torch.randn(4096, 4096, device='cuda', dtype=torch.bfloat16)\n"
        "while True:\n    for _ in range(50):\n        b = a @ a\n    torch.cuda.synchronize()"
    )
    others = [
        subprocess.Popen([sys.executable, "-c", work], stdout=subprocess.PIPE, text=True) for _ in range(how_many)
    ]
    for other in others:
        other.stdout.readline()
    if others:
        time.sleep(1.0)
    try:
        healthy()
    finally:
        for other in others:
            other.kill()
            other.wait()


def pictures():
    """A healthy one with workers and pinned memory, as tutorials have it."""
    loader(4, sleep_s=0.0, batch=256)


TRAININGS = {
    "none": healthy,
    "reads-at-the-end": reads_at_the_end,
    "reads-each-layer": reads_each_layer,
    "reads-gradients": reads_gradients,
    "synchronizes": synchronizes,
    "masks-by-index": lambda: masks(True),
    "masks-by-where": lambda: masks(False),
    "round-trip": lambda: round_trip(True),
    "no-round-trip": lambda: round_trip(False),
    "pageable-batch": lambda: copies(False),
    "pinned-batch": lambda: copies(True),
    "small-pageable-batch": small_pageable_batch,
    "scalar-copies": lambda: scalars(True),
    "one-copy": lambda: scalars(False),
    "float64": lambda: products("float64"),
    "float32": lambda: products("float32"),
    "tf32": lambda: products("tf32"),
    "bfloat16": lambda: products("bfloat16"),
    "attention-by-hand": lambda: attention(True),
    "fused-attention": lambda: attention(False),
    "tiny-steps": lambda: tiny_steps(False),
    "graphed-steps": lambda: tiny_steps(True),
    "odd-sizes": lambda: odd_sizes(True),
    "even-sizes": lambda: odd_sizes(False),
    "empties-cache": lambda: empties_cache(True),
    "keeps-cache": lambda: empties_cache(False),
    "nearly-full": lambda: nearly_full(True),
    "plenty-left": lambda: nearly_full(False),
    "single-optimizer": lambda: many_parameters(foreach=False),
    "fused-optimizer": lambda: many_parameters(fused=True),
    "checkpointed": lambda: checkpointed(True),
    "not-checkpointed": lambda: checkpointed(False),
    "sleeping-loader": lambda: loader(0),
    "workers": lambda: loader(8),
    "augments-in-the-loop": lambda: augments_in_the_loop(True),
    "augments-nothing": lambda: augments_in_the_loop(False),
    "channels-first": lambda: convolutions(False),
    "channels-last": lambda: convolutions(True),
    "dense-table": lambda: table(False),
    "sparse-table": lambda: table(True),
    "gelu-by-hand": lambda: gelu(True),
    "gelu": lambda: gelu(False),
    "grows": lambda: grows(True),
    "does-not-grow": lambda: grows(False),
    "beside-another": lambda: beside_another(2),
    "pictures": pictures,
}
TRAININGS[args.fault]()
