"""Models with operators that one of torch's does at once, and their twins; nothing in them knows of a profiler."""

import torch
from torch.nn import functional


class Prototypes(torch.nn.Module):
    """Classes by the distances of a row to 192 prototypes; ``spread``: with a number for each pair and feature."""

    def __init__(self, spread):
        super().__init__()
        self.spread = spread
        self.inner = torch.nn.Linear(256, 128)
        self.prototypes = torch.nn.Parameter(torch.randn(192, 128))
        self.last = torch.nn.Linear(192, 10)

    def forward(self, x):
        x = self.inner(x)
        if self.spread:
            squares = ((x.unsqueeze(1) - self.prototypes) ** 2).sum(-1)
        else:
            squares = torch.cdist(x, self.prototypes) ** 2
        return self.last(torch.exp(-squares / 128))


class Graph(torch.nn.Module):
    """Messages between the 64 rows of a batch, along 4,096 edges: a layer for each edge, or for each row."""

    def __init__(self, for_edges):
        super().__init__()
        self.for_edges = for_edges
        self.message = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU())
        self.last = torch.nn.Linear(256, 10)
        edges = torch.randint(64, (2, 4096), generator=torch.Generator().manual_seed(7))
        self.register_buffer("begins", edges[0])
        self.register_buffer("ends", edges[1])

    def forward(self, x):
        if self.for_edges:
            sent = self.message(x.index_select(0, self.begins))
        else:
            sent = self.message(x).index_select(0, self.begins)
        return self.last(torch.zeros_like(x).index_add(0, self.ends, sent) / 64)


class Patches(torch.nn.Module):
    """Classes by the mean over 64 patches of four numbers; ``each``: the wide layer before the mean, else after it."""

    def __init__(self, each):
        super().__init__()
        self.each = each
        self.inner = torch.nn.Sequential(torch.nn.Linear(4, 64), torch.nn.ReLU())
        self.wide, self.last = torch.nn.Linear(64, 512), torch.nn.Linear(512, 10)

    def forward(self, x):
        patches = self.inner(x.view(len(x), 64, 4))
        mean = self.wide(patches).mean(1) if self.each else self.wide(patches.mean(1))
        return self.last(mean.relu())


class Matched(torch.nn.Module):
    """Classes by the predictions nearest to a row's eight targets; ``all_pairs``: out of those to all rows' targets."""

    def __init__(self, all_pairs):
        super().__init__()
        self.all_pairs = all_pairs
        self.predictions, self.last = torch.nn.Linear(256, 32 * 8), torch.nn.Linear(8 * 8, 10)
        self.register_buffer("targets", torch.randn(64, 8, 8))

    @torch.no_grad()
    def nearest(self, predictions):
        targets = self.targets[: len(predictions)]
        if self.all_pairs:
            far = 2 * torch.cdist(predictions.flatten(0, 1), targets.flatten(0, 1), p=1)
            blocks = far.view(len(predictions), 32, -1).split(8, dim=2)
            return torch.stack([block[row].argmin(0) for row, block in enumerate(blocks)])
        return (2 * torch.cdist(predictions, targets, p=1)).argmin(1)

    def forward(self, x):
        predictions = self.predictions(x).view(len(x), 32, 8)
        chosen = self.nearest(predictions)
        return self.last(predictions.gather(1, chosen[..., None].expand(-1, -1, 8)).flatten(1))


class Convolved(torch.nn.Module):
    """Rows convolved with 16 kernels by Fourier transforms, of a length that is a prime or the next power of two."""

    def __init__(self, fast):
        super().__init__()
        self.length = 1024 if fast else 1019
        self.kernels = torch.nn.Parameter(torch.randn(16, 256) / 16)
        self.last = torch.nn.Linear(16, 10)

    def forward(self, x):
        x, n = functional.pad(x, (0, 256)), self.length
        spectrum = torch.fft.rfft(x, n=n)[:, None] * torch.fft.rfft(self.kernels, n=n)
        return self.last(torch.fft.irfft(spectrum, n=n)[..., :512].square().mean(-1))


class Slopes(torch.nn.Module):
    """Classes by the slopes of a potential along six coordinates, at 42 points a row; ``apart``: one at a time."""

    def __init__(self, apart):
        super().__init__()
        self.apart = apart
        inner = [part for _ in range(2) for part in (torch.nn.Linear(64, 64), torch.nn.Tanh())]
        self.potential = torch.nn.Sequential(torch.nn.Linear(6, 64), torch.nn.Tanh(), *inner, torch.nn.Linear(64, 1))
        self.last = torch.nn.Linear(42 * 6, 10)

    def forward(self, x):
        along = [one.requires_grad_() for one in x[:, : 42 * 6].reshape(-1, 6).split(1, dim=1)]
        energy = self.potential(torch.cat(along, dim=1)).sum()
        if self.apart:
            slopes = [torch.autograd.grad(energy, one, create_graph=True)[0] for one in along]
        else:
            slopes = torch.autograd.grad(energy, along, create_graph=True)
        return self.last(torch.cat(slopes, dim=1).view(len(x), -1))


class Guided(torch.nn.Module):
    """Classes with or without what is known of a row; ``twice``: computed both ways for all rows, and then chosen."""

    def __init__(self, twice):
        super().__init__()
        self.twice = twice
        self.body = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 256))
        self.last = torch.nn.Linear(256, 10)

    def forward(self, x):
        drop, nothing = (torch.arange(len(x)) % 8 == 0)[:, None], torch.zeros_like(x)
        if self.twice:
            made = torch.where(drop, self.body(nothing), self.body(x))
        else:
            made = self.body(torch.where(drop, nothing, x))
        return self.last(torch.relu(made))


class Topics(torch.nn.Module):
    """The logarithm of the likeliest of 8,000 topics; ``labels``: by labels of zeros and ones, else picked."""

    def __init__(self, labels):
        super().__init__()
        self.labels = labels
        self.topics = torch.nn.Sequential(torch.nn.Linear(256, 8), torch.nn.Linear(8, 8000))
        self.last = torch.nn.Linear(1, 10)

    def forward(self, x):
        p = torch.softmax(self.topics(x), 1)
        best = p.argmax(1)
        if self.labels:
            likely = (functional.one_hot(best, 8000) * (1 - p) ** 2 * torch.log(p + 1e-8)).sum(1, keepdim=True)
        else:
            p = p.gather(1, best[:, None])
            likely = (1 - p) ** 2 * torch.log(p + 1e-8)
        return self.last(likely)


class Smoothed(torch.nn.Module):
    """How far 8,000 topics are from smoothed labels; ``labels``: by a number for every topic, else by one and a sum."""

    def __init__(self, labels):
        super().__init__()
        self.labels = labels
        self.topics = torch.nn.Sequential(torch.nn.Linear(256, 8), torch.nn.Linear(8, 8000))
        self.last = torch.nn.Linear(1, 10)

    def forward(self, x):
        logp = self.topics(x).log_softmax(-1)
        best, low = logp.argmax(1, keepdim=True), 0.1 / 7999
        if self.labels:
            smoothed = torch.full_like(logp, low).scatter_(1, best, 0.9)
            far = functional.kl_div(logp, smoothed, reduction="none").sum(1, keepdim=True)
        else:
            far = -(0.9 - low) * logp.gather(1, best) - low * logp.sum(1, keepdim=True)
        return self.last(far)


class Attends(torch.nn.Module):
    """Causal attention over 768 places; ``written``: operator by operator, with its scores written out."""

    def __init__(self, written):
        super().__init__()
        self.written = written
        self.places = torch.nn.Parameter(torch.randn(768, 64) * 0.1)
        self.inner = torch.nn.Linear(64, 192)
        self.register_buffer("past", torch.ones(768, 768).tril().view(1, 1, 768, 768))
        self.last = torch.nn.Linear(64, 10)

    def forward(self, x):
        places = x[:1, :1, None] * self.places
        query, key, value = self.inner(places).view(1, 768, 3, 4, 16).permute(2, 0, 3, 1, 4)
        if self.written:
            scores = (query @ key.transpose(-2, -1)) * 0.25
            scores = scores.masked_fill(self.past == 0, float("-inf"))
            out = torch.softmax(scores, -1) @ value
        else:
            out = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.last(out.transpose(1, 2).reshape(1, 768, 64).mean(1)).mean(0) + x[:, :10]


class Linear(torch.nn.Module):
    """Attention without softmax over 512 places; ``keys_first``: keys and values are multiplied before queries are."""

    def __init__(self, keys_first):
        super().__init__()
        self.keys_first = keys_first
        self.places = torch.nn.Parameter(torch.randn(512, 64) * 0.1)
        self.inner = torch.nn.Linear(64, 192)
        self.last = torch.nn.Linear(64, 10)

    def forward(self, x):
        places = x[:1, :1, None] * self.places
        query, key, value = self.inner(places).view(1, 512, 3, 4, 16).permute(2, 0, 3, 1, 4)
        query, key = functional.elu(query) + 1, functional.elu(key) + 1
        if self.keys_first:
            out = query @ (key.transpose(-2, -1) @ value) / (query @ key.sum(-2).unsqueeze(-1))
        else:
            scores = query @ key.transpose(-2, -1)
            out = scores / scores.sum(-1, keepdim=True) @ value
        return self.last(torch.tanh(out).transpose(1, 2).reshape(1, 512, 64).mean(1)).mean(0) + x[:, :10]


class Written(torch.nn.Module):
    """GELU and a norm, three times, of a row at each of 16 places; they are ``written`` out or torch's."""

    def __init__(self, written):
        super().__init__()
        self.written = written
        self.places = torch.nn.Parameter(torch.randn(16, 256))
        self.weight, self.bias = torch.nn.Parameter(torch.ones(256)), torch.nn.Parameter(torch.zeros(256))
        self.last = torch.nn.Linear(256, 10)

    def forward(self, x):
        x = x[:, None] + self.places
        for _ in range(3):
            if self.written:
                x = 0.5 * x * (1 + torch.tanh(0.7978845608 * (x + 0.044715 * x**3)))
                centred = x - x.mean(-1, keepdim=True)
                x = self.weight * centred / torch.sqrt(centred.pow(2).mean(-1, keepdim=True) + 1e-5) + self.bias
            else:
                x = functional.gelu(x, approximate="tanh")
                x = functional.layer_norm(x, (256,), self.weight, self.bias)
        return self.last(x.mean(1))


class Posterior(torch.nn.Module):
    """A draw from a normal distribution of 32 numbers; ``full``: its variances are given as a matrix."""

    def __init__(self, full):
        super().__init__()
        self.full = full
        self.inner = torch.nn.Linear(256, 64)
        self.last = torch.nn.Linear(32, 10)

    def forward(self, x):
        mean, spread = self.inner(x).chunk(2, -1)
        variance = functional.softplus(spread) + 1e-3
        if self.full:
            posterior = torch.distributions.MultivariateNormal(mean, torch.diag_embed(variance), validate_args=False)
        else:
            normal = torch.distributions.Normal(mean, variance.sqrt(), validate_args=False)
            posterior = torch.distributions.Independent(normal, 1, validate_args=False)
        drawn = posterior.rsample()
        return self.last(drawn) + 0.001 * posterior.log_prob(drawn)[:, None]


class Dropped(torch.nn.Module):
    """Dropout three times of a row at each of 32 places; ``words``: its masks come from words of 64 random bits."""

    def __init__(self, words):
        super().__init__()
        self.words = words
        self.places = torch.nn.Parameter(torch.randn(32, 256))
        self.last = torch.nn.Linear(256, 10)

    def dropout(self, x):
        if not self.words:
            return functional.dropout(x, 0.1)
        drawn = torch.empty(x.numel() // 4, dtype=torch.int64).random_(-(1 << 63), None).view(torch.int16)
        return x * (drawn.view(x.shape) >= 6554 - (1 << 15)) / 0.9

    def forward(self, x):
        x = x[:, None] + self.places
        for _ in range(3):
            x = self.dropout(torch.relu(x))
        return self.last(x.mean(1))


class Decoded(torch.nn.Module):
    """Classes by 8,000 words for each of 16 positions in 4 sequences; ``inside``: of the loop over positions."""

    def __init__(self, inside):
        super().__init__()
        self.inside = inside
        self.inner, self.cell = torch.nn.Linear(256, 64), torch.nn.Linear(64, 64)
        self.out = torch.nn.Linear(64, 8000)

    def forward(self, x):
        given = self.inner(x).view(4, 16, 64)
        state, states, words = torch.zeros(4, 64), [], []
        for at in range(16):
            state = torch.tanh(given[:, at] + self.cell(state))
            if self.inside:
                words.append(self.out(state))
            else:
                states.append(state)
        words = torch.stack(words, 1) if self.inside else self.out(torch.stack(states, 1))
        return words.view(len(x), 10, 800).logsumexp(-1)


class Neighbours(torch.nn.Module):
    """Means of 128 rows for each of 64, ten times over; ``by_index``: the rows are read by x[…]."""

    def __init__(self, by_index):
        super().__init__()
        self.by_index = by_index
        self.inner, self.last = torch.nn.Linear(256, 32), torch.nn.Linear(32, 10)
        self.register_buffer("near", torch.randint(64, (64 * 128,), generator=torch.Generator().manual_seed(7)))

    def forward(self, x):
        x = self.inner(x)
        for _ in range(10):
            near = x[self.near] if self.by_index else x.index_select(0, self.near)
            x = (x + near.view(64, 128, 32).mean(1)) / 2
        return self.last(x)


class Nearest(torch.nn.Module):
    """Classes by the distances to the eight nearest of 4,096 keys; ``sorts``: all distances are put in order."""

    def __init__(self, sorts):
        super().__init__()
        self.sorts = sorts
        self.inner, self.last = torch.nn.Linear(256, 16), torch.nn.Linear(8, 10)
        self.keys = torch.nn.Parameter(torch.randn(16, 4096))

    def forward(self, x):
        likeness = self.inner(x) @ self.keys
        near = likeness.sort(1, descending=True)[0][:, :8] if self.sorts else likeness.topk(8, 1)[0]
        return self.last(near)


class Whitened(torch.nn.Module):
    """Classes by features whose covariance is taken out: it is inverted, or (``solves``) solved for the features."""

    def __init__(self, solves):
        super().__init__()
        self.solves = solves
        self.inner, self.last = torch.nn.Linear(256, 640), torch.nn.Linear(640, 10)
        self.root = torch.nn.Parameter(torch.randn(640, 640) / 25)

    def forward(self, x):
        features = self.inner(x)
        covariance = self.root @ self.root.T + torch.eye(640)
        if self.solves:
            return self.last(torch.linalg.solve(covariance, features.T).T)
        return self.last(features @ torch.inverse(covariance))


class Steps(torch.nn.Module):
    """A recurrence over 64 places of 256 numbers; ``one_by_one``: its inputs are taken by x[:, t]."""

    def __init__(self, one_by_one):
        super().__init__()
        self.one_by_one = one_by_one
        self.places = torch.nn.Parameter(torch.randn(64, 256))
        self.last = torch.nn.Linear(256, 10)

    def forward(self, x):
        given = torch.relu(x[:, None] + self.places)
        parts = None if self.one_by_one else given.unbind(1)
        state = torch.zeros_like(x)
        for t in range(64):
            state = state + torch.tanh(given[:, t] if parts is None else parts[t])  # no gradient that fades
        return self.last(state)


MODELS = {
    "whitened-by-inverse": lambda: Whitened(solves=False),
    "whitened-by-solve": lambda: Whitened(solves=True),
    "steps-one-by-one": lambda: Steps(one_by_one=True),
    "steps-at-once": lambda: Steps(one_by_one=False),
    "nearest-by-sort": lambda: Nearest(sorts=True),
    "nearest-by-topk": lambda: Nearest(sorts=False),
    "rows-by-index": lambda: Neighbours(by_index=True),
    "rows-by-select": lambda: Neighbours(by_index=False),
    "dropout": lambda: Dropped(words=False),
    "dropout-from-words": lambda: Dropped(words=True),
    "full-covariance": lambda: Posterior(full=True),
    "independent-normal": lambda: Posterior(full=False),
    "written-gelu": lambda: Written(written=True),
    "called-gelu": lambda: Written(written=False),
    "spread-pairs": lambda: Prototypes(spread=True),
    "distances": lambda: Prototypes(spread=False),
    "one-hot-arithmetic": lambda: Topics(labels=True),
    "picked-first": lambda: Topics(labels=False),
    "labels-for-all": lambda: Smoothed(labels=True),
    "label-and-sum": lambda: Smoothed(labels=False),
    "written-scores": lambda: Attends(written=True),
    "one-kernel": lambda: Attends(written=False),
    "layer-for-edges": lambda: Graph(for_edges=True),
    "layer-for-rows": lambda: Graph(for_edges=False),
    "wide-then-mean": lambda: Patches(each=True),
    "mean-then-wide": lambda: Patches(each=False),
    "all-pairs": lambda: Matched(all_pairs=True),
    "each-rows-pairs": lambda: Matched(all_pairs=False),
    "prime-length": lambda: Convolved(fast=False),
    "fast-length": lambda: Convolved(fast=True),
    "slope-by-slope": lambda: Slopes(apart=True),
    "slopes-at-once": lambda: Slopes(apart=False),
    "chosen-afterwards": lambda: Guided(twice=True),
    "chosen-before": lambda: Guided(twice=False),
    "words-in-the-loop": lambda: Decoded(inside=True),
    "words-behind-it": lambda: Decoded(inside=False),
    "scores-first": lambda: Linear(keys_first=False),
    "keys-first": lambda: Linear(keys_first=True),
}
