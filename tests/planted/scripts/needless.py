"""Models with work in each forward that need not be done, and their twins; nothing in them knows of a profiler."""

import math

import numpy as np
import torch
from torch.nn import functional

WIDTH = 512

#: Of features that are watched.
WIDE = 4 * WIDTH


class Adapted(torch.nn.Module):
    """Three frozen layers with low-rank updates, which are merged into the weight or stand beside it."""

    def __init__(self, merged):
        super().__init__()
        self.merged = merged
        self.first = torch.nn.Linear(256, WIDTH)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH).requires_grad_(False) for _ in range(3))
        self.down = torch.nn.ParameterList(torch.randn(8, WIDTH) / math.sqrt(WIDTH) for _ in range(3))
        self.up = torch.nn.ParameterList(torch.zeros(WIDTH, 8) for _ in range(3))
        self.last = torch.nn.Linear(WIDTH, 10)

    def forward(self, x):
        x = self.first(x)
        for layer, down, up in zip(self.layers, self.down, self.up, strict=True):
            if self.merged:
                weight = layer.weight + 2.0 * (up @ down)
                x = functional.linear(x, weight, layer.bias).relu()
            else:
                x = (layer(x) + 2.0 * (x @ down.T) @ up.T).relu()
        return self.last(x)


class Placed(torch.nn.Module):
    """Layers over positions, with a table of sines that is made in each forward, or once."""

    def __init__(self, anew):
        super().__init__()
        self.anew = anew
        self.layers = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
        self.mix = torch.nn.Parameter(torch.zeros(2048))
        self.register_buffer("table", self.sines(2048, 1024), persistent=False)

    def sines(self, length, width):
        place = torch.arange(length, dtype=torch.float32)[:, None]
        rate = torch.exp(torch.arange(0, width, 2) * (-math.log(10_000.0) / width))
        return torch.cat([torch.sin(place * rate), torch.cos(place * rate)], dim=1)

    def forward(self, x):
        table = self.sines(2048, 1024) if self.anew else self.table
        x = (x.view(len(x), 16, 16) + (self.mix @ table)[:16]).mean(1)
        return self.layers(x)


class Headed(torch.nn.Module):
    """A body and a head; ``idle``: with a wide second head whose output nobody takes."""

    def __init__(self, idle):
        super().__init__()
        self.idle = idle
        self.body = torch.nn.Sequential(torch.nn.Linear(256, WIDTH), torch.nn.ReLU())
        self.head = torch.nn.Linear(WIDTH, 10)
        self.words = torch.nn.Linear(WIDTH, 4000)

    def both(self, x):
        hidden = self.body(x)
        words = functional.log_softmax(self.words(hidden), dim=1) if self.idle else None
        return self.head(hidden), words

    def forward(self, x):
        out, _ = self.both(x)
        return out


class Encoded(torch.nn.Module):
    """Two terms from one encoder, which each of them calls, or which is called once."""

    def __init__(self, twice):
        super().__init__()
        self.twice = twice
        layers = [torch.nn.Linear(256, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU()]
        self.encoder = torch.nn.Sequential(*layers)
        self.head, self.scale = torch.nn.Linear(WIDTH, 10), torch.nn.Linear(WIDTH, 1)

    def forward(self, x):
        code = self.encoder(x)
        out = self.head(code)
        if self.twice:
            code = self.encoder(x)
        return out * torch.sigmoid(self.scale(code))


class Smoothed(torch.nn.Module):
    """Features smoothed over points that stay where they are, by a kernel that is computed in each forward, or once."""

    def __init__(self, anew):
        super().__init__()
        self.anew = anew
        self.first, self.last = torch.nn.Linear(256, WIDTH), torch.nn.Linear(WIDTH, 10)
        self.register_buffer("points", torch.randn(WIDTH, 64))
        self.register_buffer("kept", self.kernel(self.points), persistent=False)

    def kernel(self, points):
        return torch.softmax(-torch.cdist(points, points).square() / 64, dim=1)

    def forward(self, x):
        kernel = self.kernel(self.points) if self.anew else self.kept
        return self.last((self.first(x) @ kernel).relu())


class Watched(torch.nn.Module):
    """Keeps quantiles of its features for a log: of each batch (``every`` 1), or of every fiftieth."""

    def __init__(self, every):
        super().__init__()
        self.every, self.calls, self.spread = every, 0, 0.0
        self.first, self.last = torch.nn.Linear(256, WIDE), torch.nn.Linear(WIDE, 10)

    def forward(self, x):
        hidden = self.first(x).relu()
        if self.calls % self.every == 0:
            with torch.no_grad():
                ranked = hidden.sort(dim=1).values
                self.spread = (ranked[:, -WIDE // 10] - ranked[:, WIDE // 10]).mean().item()
        self.calls += 1
        return self.last(hidden)


class Spread(torch.nn.Module):
    """Features beside how far each number of its row lies from the others: by NumPy for each row, or by sorting."""

    def __init__(self, by_numpy):
        super().__init__()
        self.by_numpy = by_numpy
        self.layers = torch.nn.Sequential(torch.nn.Linear(512, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, 10))

    def far(self, x):
        if self.by_numpy:
            return torch.from_numpy(np.stack([np.abs(row[:, None] - row).mean(1) for row in x.numpy()]))
        ranked, order = x.sort(dim=1)
        count, below = x.shape[1], ranked.cumsum(1)
        place = torch.arange(1, count + 1)
        far = ((2 * place - count) * ranked + below[:, -1:] - 2 * below) / count
        return torch.zeros_like(x).scatter(1, order, far)

    def forward(self, x):
        x = x + 0.01 * torch.randn_like(x)  # no row comes again
        return self.layers(torch.cat([x, self.far(x)], dim=1))


class Pooled(torch.nn.Module):
    """Weighs features by their own softmax: of each row by itself, or of all rows at once."""

    def __init__(self, each):
        super().__init__()
        self.each = each
        self.first, self.last = torch.nn.Linear(256, WIDTH), torch.nn.Linear(WIDTH, 10)

    def forward(self, x):
        hidden = self.first(x)
        if self.each:
            rows = []
            for at in range(len(hidden)):
                weights = torch.softmax(hidden[at], 0)
                rows.append(weights * hidden[at] / weights.max())
            return self.last(torch.stack(rows))
        weights = torch.softmax(hidden, 1)
        return self.last(weights * hidden / weights.amax(1, keepdim=True))


class Remembering(torch.nn.Module):
    """A recurrent layer over 128 positions, whose gradients keep this part of themselves from one to the one before."""

    def __init__(self, keeps):
        super().__init__()
        self.first, self.last = torch.nn.Linear(2, 128), torch.nn.Linear(128, 10)
        self.again = torch.nn.Parameter(keeps * torch.linalg.qr(torch.randn(128, 128))[0])

    def forward(self, x):
        x = 0.01 * self.first(x.view(len(x), 128, 2))
        state = torch.zeros_like(x[:, 0])
        for at in range(128):
            state = torch.tanh(x[:, at] + state @ self.again)
        return self.last(state)


MODELS = {
    "gradients-fade": lambda: Remembering(0.4),
    "gradients-last": lambda: Remembering(1.0),
    "merged-weights": lambda: Adapted(merged=True),
    "weights-beside": lambda: Adapted(merged=False),
    "constants-anew": lambda: Placed(anew=True),
    "constants-kept": lambda: Placed(anew=False),
    "idle-head": lambda: Headed(idle=True),
    "one-head": lambda: Headed(idle=False),
    "encoded-twice": lambda: Encoded(twice=True),
    "encoded-once": lambda: Encoded(twice=False),
    "kernel-anew": lambda: Smoothed(anew=True),
    "kernel-kept": lambda: Smoothed(anew=False),
    "pooled-one-by-one": lambda: Pooled(each=True),
    "pooled-at-once": lambda: Pooled(each=False),
    "spread-by-numpy": lambda: Spread(by_numpy=True),
    "spread-by-torch": lambda: Spread(by_numpy=False),
    "watched-each": lambda: Watched(every=1),
    "watched-seldom": lambda: Watched(every=50),
}
