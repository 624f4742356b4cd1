"""Trainings with loops of their own, of work that need not be done, or not so: teachers, rollouts, penalties, types."""

import ctypes
import itertools

import torch
from torch.nn import functional


def layers(*widths):
    parts = []
    for inputs, outputs in itertools.pairwise(widths):
        parts += [torch.nn.Linear(inputs, outputs), torch.nn.ReLU()]
    return torch.nn.Sequential(*parts[:-1])


def taught(steps, *, kept, noisy):
    """The teacher is asked in each step, or its answers were ``kept``; ``noisy`` rows are others in each pass."""
    teacher, student = layers(256, 1024, 1024, 10).eval(), layers(256, 512, 512, 10)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.01)
    rows = torch.randn(2048, 256)
    with torch.no_grad():
        answers = torch.cat([teacher(part) for part in rows.split(256)])
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(rows, answers), batch_size=64, shuffle=True)
    step = 0
    while step < steps:
        for x, answer in loader:
            step += 1
            seen = x + 0.1 * torch.randn_like(x) if noisy else x
            if kept:
                wanted = answer
            else:
                with torch.no_grad():
                    wanted = teacher(seen)
            loss = functional.mse_loss(student(seen), wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step == steps:
                break


class Generator(torch.nn.Module):
    """Two layers of causal attention over tokens, of which ``kept`` may hold the keys and values of earlier ones."""

    def __init__(self):
        super().__init__()
        self.tokens, self.places = torch.nn.Embedding(64, 128), torch.nn.Embedding(64, 128)
        self.inner = torch.nn.ModuleList(torch.nn.Linear(128, 384) for _ in range(2))
        self.outer = torch.nn.ModuleList(layers(128, 256, 128) for _ in range(2))
        self.last = torch.nn.Linear(128, 64)

    def forward(self, tokens, kept=None):
        first = kept[0][0].shape[2] if kept else 0
        x = self.tokens(tokens) + self.places(torch.arange(first, first + tokens.shape[1]))
        earlier = list(kept) if kept else []
        for number, (inner, outer) in enumerate(zip(self.inner, self.outer, strict=True)):
            query, key, value = inner(x).view(*tokens.shape, 3, 4, 32).permute(2, 0, 3, 1, 4)
            if earlier:
                key, value = (torch.cat(both, 2) for both in zip(earlier[number], (key, value), strict=True))
            if kept is not None:
                kept[number:] = [(key, value)]
            seen = functional.scaled_dot_product_attention(query, key, value, is_causal=not first)
            x = x + seen.transpose(1, 2).flatten(2)
            x = x + outer(x)
        return self.last(x)


def generated(steps, *, cached):
    """Each step generates 24 tokens for 16 rows, with or without what earlier ones left, and learns from these."""
    model = Generator()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(steps):
        tokens, kept = torch.zeros(16, 1, dtype=torch.long), []
        with torch.no_grad():
            for _ in range(24):
                scores = model(tokens[:, -1:], kept) if cached else model(tokens)
                tokens = torch.cat([tokens, torch.multinomial(scores[:, -1].softmax(-1), 1)], 1)
        reward = (tokens[:, 1:] % 2 == 0).float().mean(1)
        likely = functional.log_softmax(model(tokens[:, :-1]), -1).gather(-1, tokens[:, 1:, None])
        loss = -((reward - reward.mean()) * likely.sum((1, 2))).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


class Forecaster(torch.nn.Module):
    """A recurrent layer that goes on from its own forecasts, from its state or from the whole history again."""

    def __init__(self, carried):
        super().__init__()
        self.carried = carried
        self.inner, self.last = torch.nn.GRU(8, 96, batch_first=True), torch.nn.Linear(96, 8)

    def forward(self, history, more):
        given, state, forecasts = history, None, []
        for _ in range(more):
            seen, after = self.inner(given, state)
            forecasts.append(self.last(seen[:, -1:]))
            if self.carried:
                given, state = forecasts[-1], after
            else:
                given = torch.cat([given, forecasts[-1]], 1)
        return torch.cat(forecasts, 1)


def forecast(steps, *, carried):
    """Twelve positions after a history of 24, each from all before it or from the state that they left."""
    model = Forecaster(carried)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    series = torch.randn(1024, 36, 8).cumsum(1) / 6
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(series), batch_size=32, shuffle=True)
    step = 0
    while step < steps:
        for (rows,) in loader:
            step += 1
            loss = functional.mse_loss(model(rows[:, :24], 12), rows[:, 24:])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step == steps:
                break


def penalised(steps, *, by_gradients):
    """The squares of all weights are in the loss, or the optimizer decays them: the same gradients."""
    model, decay = layers(256, 1536, 1536, 10), 1e-5
    decays = 0.0 if by_gradients else 2 * decay
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, weight_decay=decays, fused=True)
    rows = torch.utils.data.TensorDataset(torch.randn(2048, 256), torch.randint(10, (2048,)))
    loader = torch.utils.data.DataLoader(rows, batch_size=16, shuffle=True)
    step = 0
    while step < steps:
        for x, y in loader:
            step += 1
            loss = functional.cross_entropy(model(x), y)
            if by_gradients:
                loss = loss + decay * sum(one.pow(2).sum() for one in model.parameters())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step == steps:
                break


def with_a_side_head(steps, *, skipped):
    """A second head of 8,000 classes whose weight in the loss is 0; it is ``skipped``, or computed all the same."""
    body, main, side = layers(256, 512, 512), torch.nn.Linear(512, 10), torch.nn.Linear(512, 8000)
    weight = 0.0
    parts = torch.nn.ModuleList([body, main, side])
    optimizer = torch.optim.SGD(parts.parameters(), lr=0.01)
    rows = torch.utils.data.TensorDataset(torch.randn(2048, 256), torch.randint(10, (2048,)))
    loader = torch.utils.data.DataLoader(rows, batch_size=64, shuffle=True)
    step = 0
    while step < steps:
        for x, y in loader:
            step += 1
            hidden = torch.relu(body(x))
            loss = functional.cross_entropy(main(hidden), y)
            if not skipped:
                loss = loss + weight * functional.cross_entropy(side(hidden), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step == steps:
                break


def at_many_places(steps, *, kept):
    """Activations of 41 MB, which go back to the kernel when they are freed, or are ``kept``, by glibc's mallopt."""
    if kept:
        libc = ctypes.CDLL(None)
        assert libc.mallopt(-1, 2**31 - 1) and libc.mallopt(-4, 0)  # M_TRIM_THRESHOLD, M_MMAP_MAX
    model = layers(8, 32, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batches = [(torch.randn(64, 5000, 8), torch.randn(64, 5000, 1)) for _ in range(4)]
    for x, y in itertools.islice(itertools.cycle(batches), steps):
        loss = functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def of_wide_layers(steps, *, half):
    """Products of 512 by 1,024 numbers, in bfloat16 by autocast if ``half``."""
    model = layers(512, 1024, 1024, 1024, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batches = [(torch.randn(256, 512), torch.randint(10, (256,))) for _ in range(4)]
    for x, y in itertools.islice(itertools.cycle(batches), steps):
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            loss = functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


TRAININGS = {
    "products-in-float32": lambda steps: of_wide_layers(steps, half=False),
    "products-in-bfloat16": lambda steps: of_wide_layers(steps, half=True),
    "memory-given-back": lambda steps: at_many_places(steps, kept=False),
    "memory-kept": lambda steps: at_many_places(steps, kept=True),
    "side-times-zero": lambda steps: with_a_side_head(steps, skipped=False),
    "side-skipped": lambda steps: with_a_side_head(steps, skipped=True),
    "forecast-again": lambda steps: forecast(steps, carried=False),
    "forecast-from-state": lambda steps: forecast(steps, carried=True),
    "squares-in-loss": lambda steps: penalised(steps, by_gradients=True),
    "decayed": lambda steps: penalised(steps, by_gradients=False),
    "teacher-asked": lambda steps: taught(steps, kept=False, noisy=False),
    "answers-kept": lambda steps: taught(steps, kept=True, noisy=False),
    "teacher-augmented": lambda steps: taught(steps, kept=False, noisy=True),
    "without-cache": lambda steps: generated(steps, cached=False),
    "with-cache": lambda steps: generated(steps, cached=True),
}
