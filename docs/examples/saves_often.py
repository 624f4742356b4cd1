"""A training that saves too often, for `perf-diagnostics run docs/examples/saves_often.py`."""

import tempfile
from pathlib import Path

import torch
from torch.utils.data import DataLoader, TensorDataset


class Trainer:
    """Trains the head of a network that is otherwise frozen, and saves all of it every ten steps."""

    def __init__(self, batches: int) -> None:
        torch.manual_seed(0)
        body = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 1024))
        self.head = torch.nn.Linear(1024, 10)
        self.model = torch.nn.Sequential(body.requires_grad_(False), self.head)
        self.optimizer = torch.optim.SGD(self.head.parameters(), lr=0.01)
        data = TensorDataset(torch.randn(batches * 8, 1024), torch.randint(0, 10, (batches * 8,)))
        self.loader = DataLoader(data, batch_size=8)

    def save_checkpoint(self, file: Path) -> None:
        torch.save({"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}, file)

    def train(self, file: Path) -> None:
        for number, (x, y) in enumerate(self.loader, start=1):
            self.optimizer.zero_grad()
            torch.nn.functional.cross_entropy(self.model(x), y).backward()
            self.optimizer.step()
            if number % 10 == 0:
                self.save_checkpoint(file)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        Trainer(batches=1500).train(Path(folder) / "checkpoint.pt")
