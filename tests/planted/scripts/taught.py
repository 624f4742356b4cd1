"""A student that learns from a frozen teacher on the same samples in each pass, and its twins."""

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


TRAININGS = {
    "teacher-asked": lambda steps: taught(steps, kept=False, noisy=False),
    "answers-kept": lambda steps: taught(steps, kept=True, noisy=False),
    "teacher-augmented": lambda steps: taught(steps, kept=False, noisy=True),
}
