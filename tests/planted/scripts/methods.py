"""Trainings that ask a model for more than the loss's own forward, alone and with what nothing in them reads."""

import copy
import itertools
import random

import torch
from torch.nn import functional


def layers(*widths):
    parts = []
    for inputs, outputs in itertools.pairwise(widths):
        parts += [torch.nn.Linear(inputs, outputs), torch.nn.ReLU()]
    return torch.nn.Sequential(*parts[:-1])


@torch.no_grad()
def likeliest(model, x):
    """The class that a model would give each row, and whether it is sure."""
    p = model(x).softmax(dim=1)
    sure, label = p.max(dim=1)
    return label, (sure > 0.05).float()


def area(scores, labels):
    """Under the curve, over everything that was scored so far."""
    ranked = [label for _, label in sorted(zip(scores, labels, strict=True))]
    above, total = 0, 0
    for label in ranked:
        above += label
        total += 0 if label else above
    return total / max(1, above * (len(ranked) - above))


def pseudo_labels(steps, *, with_areas):
    """Labels of unlabelled rows from the model itself, and an average of its parameters."""
    model = layers(256, 512, 512, 10)
    averaged = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    rows = torch.utils.data.TensorDataset(torch.randn(4096, 256), torch.randint(10, (4096,)))
    loader = torch.utils.data.DataLoader(rows, batch_size=64, shuffle=True)
    scores, labels, areas, step = [], [], [], 0
    while step < steps:
        for x, y in loader:
            step += 1
            unlabelled = torch.randn(256, 256)
            label, sure = likeliest(model, unlabelled)
            out = model(x)
            of_unlabelled = functional.cross_entropy(model(unlabelled[:64]), label[:64], reduction="none")
            loss = functional.cross_entropy(out, y) + (of_unlabelled * sure[:64]).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                for mean, own in zip(averaged.parameters(), model.parameters(), strict=True):
                    mean.mul_(0.99).add_(own, alpha=0.01)
            if with_areas:
                scores.extend(out.tolist())
                labels.extend(y.tolist())
                for one in range(5):
                    areas.append(area([row[one] for row in scores], [int(label == one) for label in labels]))
            if step == steps:
                return


class Player:
    """Learns what an action is worth, from what it remembers and a slow copy of itself."""

    def __init__(self):
        self.net = layers(64, 512, 512, 8)
        self.slow = copy.deepcopy(self.net)
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=1e-3)
        self.memory = []
        self.worth = []

    def act(self, state):
        with torch.no_grad():
            return int(self.net(state).argmax())

    def remember(self, *what):
        self.memory.append(what)

    def wanted(self, reward, following):
        with torch.no_grad():
            return reward + 0.9 * self.slow(following).max(dim=1).values

    def learn(self):
        state, action, reward, following = zip(*random.choices(self.memory, k=256), strict=True)
        wanted = self.wanted(torch.tensor(reward), torch.stack(following))
        taken = torch.tensor(action)[:, None]
        loss = functional.smooth_l1_loss(self.net(torch.stack(state)).gather(1, taken)[:, 0], wanted)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        for slow, own in zip(self.slow.parameters(), self.net.parameters(), strict=True):
            slow.data.lerp_(own.data, 0.01)

    @torch.no_grad()
    def evaluate(self, states):
        self.worth.append(sum(self.net(one).max().item() for one in states))


def target_network(steps, *, with_evaluations):
    """Deep Q-learning in a world of tanh."""
    player, world, state = Player(), torch.randn(64, 64) / 8, torch.randn(64)
    held_out = torch.randn(3000, 64)
    for step in range(steps):
        action = player.act(state)
        following = torch.tanh(world @ state) + 0.01 * action
        player.remember(state, action, float(following.sum()), following)
        state = following
        player.learn()
        if with_evaluations and step % 10 == 9:
            player.evaluate(held_out)


TRAININGS = {
    "pseudo-labels": lambda steps: pseudo_labels(steps, with_areas=False),
    "pseudo-labels-areas": lambda steps: pseudo_labels(steps, with_areas=True),
    "target-network": lambda steps: target_network(steps, with_evaluations=False),
    "target-network-evaluated": lambda steps: target_network(steps, with_evaluations=True),
}
