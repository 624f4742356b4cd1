"""What lines are to a training, by the program's text: each program says so itself, in comments."""

from __future__ import annotations

import re

import pytest

from perf_diagnostics.measure.code.program_slice import ProgramSlice

Q_LEARNING = """
import copy, random, torch
online = make_net()
target = copy.deepcopy(online)
optimizer = torch.optim.Adam(online.parameters())
memory, returns = [], []
state = env.reset()
for step in range(1000):
    action = int(online(torch.tensor(state)).argmax())  # method
    following, reward, done, _ = env.step(action)  # method
    memory.append((state, action, reward, following))  # method
    state = following  # method
    returns.append(reward)  # unread
    print(sum(returns) / len(returns))  # unread
    batch = random.sample(memory, 32)  # method
    with torch.no_grad():
        wanted = reward + 0.9 * target(batch[3]).max(1).values  # method
    loss = (online(batch[0]) - wanted).pow(2).mean()  # method
    optimizer.zero_grad()  # unread
    loss.backward()  # training
    optimizer.step()  # unread
    for p, q in zip(online.parameters(), target.parameters()):
        q.data.mul_(0.99).add_(p.data, alpha=0.01)  # method
    if step % 50 == 0:
        torch.save(online.state_dict(), "a.pt")  # unread
"""

TRANSFORMED = """
import torch
from accelerate import Accelerator
from torch import nn
class Spectrum(nn.Module):
    def __init__(self, length):
        super().__init__()
        self.length = length
        self.register_buffer("window", torch.hann_window(length))
    def forward(self, wave):
        return torch.stft(wave, self.length, window=self.window).abs()  # preparation
class Features(nn.Module):
    def __init__(self, encoder):
        super().__init__()
        self.encoder = encoder
    def forward(self, x):
        return self.encoder(x)
class Layers(nn.Module):
    def __init__(self, count):
        super().__init__()
        self.layers = make_layers(count)
    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x
class Named(nn.Module):
    def __init__(self, count):
        super().__init__()
        for number in range(count):
            setattr(self, f"layer{number}", make_layers(1))
    def forward(self, x):
        return getattr(self, "layer0")(x)
def crops(wave, spectrum):
    return spectrum(wave)[:, :96]  # preparation
def main():
    accelerator = Accelerator()
    net, spectrum = nn.Linear(4, 4), Spectrum(512).to("cpu")
    features, layers, named = Features(encoder), Layers(3), Named(2)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    net, optimizer, loader = accelerator.prepare(net, optimizer, loader)
    for wave, y in loader:
        x = crops(wave, spectrum)  # preparation
        wanted = features(x)  # method
        wanted = wanted + layers(x)  # method
        wanted = wanted + named(x)  # method
        loss = (net(x) - wanted).square().mean()  # method
        accelerator.backward(loss)  # training
        optimizer.step()  # unread
"""

GATHERED = """
import torch
from torch import nn
policy = nn.Linear(3, 1)
optimizer = torch.optim.Adam(policy.parameters())
def collect(env, steps):
    value = policy(env.obs(steps))  # method
    gains = value.cumsum(0)  # method
    spread = value.std()  # unread
    print(spread)  # unread
    return gains, value * 2  # method
def scaled(gains, by):
    return gains / by  # method
def update(gains, value):
    loss = (policy(gains) - value).square().mean()  # method
    loss.backward()  # training
    optimizer.step()  # unread
def main():
    for step in range(9):
        update(*collect(env, 5))  # training
    for step in range(9):
        gains, value = collect(env, 5)  # method
        update(scaled(gains, by=value.std()), value)  # training
        update(value=value, gains=scaled(gains, value.mean()))  # training
"""

PSEUDO_LABELS = """
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
    def forward(self, x):
        return self.layer(x)
@torch.no_grad()
def pseudo(net, weak):
    logits = net(weak)  # method
    probs = logits.softmax(-1)  # method
    return probs.max(-1)  # method
@torch.no_grad()
def validate(net, loader):
    net.eval()
    right = 0
    for x, y in loader:
        logits = net(x)  # none
        right += (logits.argmax(1) == y).sum().item()  # none
    net.train()
    return right
def augment(x):
    return [v + 1 for v in x]  # preparation
def main():
    net, ema = Net(), Net()
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    best = 0
    for epoch in range(9):
        for (x, y), (u, _) in zip(loader, others):
            x = augment(x)  # preparation
            confidence, labels = pseudo(net, u)  # method
            out = net(x)  # method
            loss = criterion(out, y) + (confidence > 0.9).float().mean() * criterion(net(u), labels)  # method
            loss.backward()  # training
            optimizer.step()
            with torch.no_grad():
                for name, p in ema.named_parameters():
                    p.lerp_(dict(net.named_parameters())[name], 0.01)  # average
            right = validate(net, held_out)  # unread
            if right > best:  # unread
                best = right  # unread
                torch.save(net.state_dict(), "best.pt")  # unread
main()  # training
"""

INLINE_EVALUATION = """
for epoch in range(10):
    for x, y in loader:
        x = (x - mean) / std  # preparation
        out = model(x)  # method
        loss = crit(out, y)  # method
        loss.backward()  # training
        opt.step()
    model.eval()  # unread
    for x, y in val_loader:
        out = model(x)  # unread
        loss = crit(out, y)  # unread
        total += loss.item()  # unread
    model.train()
opt = SGD(model.parameters())
"""

AGENT = """
import numpy as np, torch
class Agent:
    def __init__(self):
        self.policy = build()
        self.opt = torch.optim.Adam(self.policy.parameters())
        self.trajectory = []
        self.log = []
    def act(self, obs):
        return self.policy(obs).sample()  # method
    def collect(self, env, steps):
        obs = env.reset()
        for _ in range(steps):
            a = self.act(obs)  # method
            obs, r, done, info = env.step(a)  # method
            self.trajectory.append((obs, a, r))  # method
            self.log.append(r)  # unread
    def returns(self):
        g = 0.0
        for obs, a, r in reversed(self.trajectory):
            g = r + 0.9 * g  # method
            yield g  # method
    def update(self):
        returns = torch.tensor(list(self.returns()))  # method
        loss = -(self.policy.log_prob(self.trajectory) * returns).mean()  # method
        loss.backward()  # training
        self.opt.step()
        self.trajectory.clear()  # method
        return loss.item()
def report(agent):
    return np.mean(agent.log)  # none
agent = Agent()
for update in range(100):
    agent.collect(env, 64)  # none
    value = agent.update()  # training
    print(value, report(agent))  # unread
"""

RUNS_BOTH = """
import torch
def epoch(net, loader, opt=None):
    total = 0
    for x, y in loader:
        loss = net(x, y)  # method
        if opt is not None:
            loss.backward()  # training
            opt.step()
        total += loss.item()  # unread
    return total
def fit(net, opt):
    for _ in range(3):
        epoch(net, train, opt)  # training
        print(epoch(net, held_out))  # training
net = make()
fit(net, SGD(net.parameters()))
"""

AVERAGES = """
class Average:
    def __init__(self, net):
        self.shadow = {n: p.clone() for n, p in net.named_parameters()}
    def update(self, net):
        listed = dict(net.named_parameters())  # average
        for n, p in listed.items():  # average
            self.shadow[n] = 0.9 * self.shadow[n] + 0.1 * p.data  # average
    def norms(self, net):
        for n, p in net.named_parameters():
            self.seen[n] = p.grad.norm().item() * 2  # none
def snapshot(net, kept):
    kept["a"] = {n: p.clone() for n, p in net.state_dict().items()}  # none
mean = Average(net)
for x in loader:
    net(x).sum().backward()  # training
    mean.update(net)  # unread
    mean.norms(net)  # unread
    snapshot(net, {})  # unread
    torch._foreach_lerp_(list(ema.parameters()), list(net.parameters()), 0.1)  # average
    for a, b in zip(ema.state_dict().values(), net.state_dict().values()):
        a.copy_(a * 0.9 + b * 0.1)  # average
"""

CONTRAST = """
import torch, torch.nn as nn
class MoCo(nn.Module):
    def __init__(self, q, k):
        super().__init__()
        self.q, self.k = q, k
        self.register_buffer("queue", torch.randn(128, 4096))
    @torch.no_grad()
    def momentum(self):
        for a, b in zip(self.q.parameters(), self.k.parameters()):
            b.data = b.data * 0.99 + a.data * 0.01  # method
    def enqueue(self, keys):
        self.queue[:, :8] = keys.T  # method
model = MoCo(f(), f())
def train(model, loader, queue_size):
    model, loader = engine.prepare(model, loader)
    for im_q, im_k in loader:
        im_q = im_q / 255  # preparation
        q = model.q(im_q)  # method
        with torch.no_grad():
            model.momentum()  # none
            k = model.k(im_k)  # method
        logits = q @ model.queue  # method
        loss = nn.functional.cross_entropy(logits, torch.zeros(8).long()) + (q * k).sum()  # method
        loss.backward()  # training
        model.enqueue(k)  # none
train(model, loader, 1)
"""


REPORTS = """
import torch
from accelerate import Accelerator
from tqdm import tqdm
class Area:
    def __init__(self):
        self.scores = []
    def put(self, score):
        self.scores.append(score.detach())
    def value(self):
        all_scores = torch.cat(self.scores)  # none
        return all_scores.sort().values[0].item()  # none
driver = Accelerator()
model = driver.prepare(make_net())
optimizer = torch.optim.Adam(model.parameters())
area, history, texts = Area(), [], []
bar = tqdm(loader)
for x, y in bar:
    out = model(x)  # method
    loss = (out - y).pow(2).mean()  # method
    driver.backward(loss)  # training
    area.put(out)
    history.append((loss.item(), area.value()))  # unread
    bar.set_postfix(area=area.value())  # unread
    bar.set_description(f"{area.value():.3f}")  # unread
    driver.print(f"{history[-1]}")  # unread
    driver.report(f"{history[-1]}")  # unread
"""


def roles(text: str) -> list[tuple[int, str, str]]:
    lines = text.splitlines()
    found = ProgramSlice({"train.py": text})
    told = []
    for number, line in enumerate(lines, 1):
        said = re.search(r"# (\w+)$", line)
        if said:
            told.append((number, line.strip(), said[1], str(found.role("train.py", number) or "none")))
    return [(number, line, got) for number, line, said, got in told if said != got]


@pytest.mark.parametrize(
    "text",
    [
        Q_LEARNING,
        TRANSFORMED,
        GATHERED,
        PSEUDO_LABELS,
        INLINE_EVALUATION,
        AGENT,
        RUNS_BOTH,
        AVERAGES,
        CONTRAST,
        REPORTS,
    ],
)
def test_each_line_is_to_the_training_what_its_comment_says(text: str) -> None:
    wrong = roles(text)
    assert wrong == [], "\n".join(map(str, wrong))


def test_a_program_whose_backward_pass_is_not_seen_tells_nothing() -> None:
    found = ProgramSlice({"train.py": "model = make()\nTrainer(model).fit()\n", "broken.py": "def f(:\n"})
    assert found.role("train.py", 1) is None
    assert found.role("broken.py", 1) is None
    assert found.role("other.py", 1) is None
