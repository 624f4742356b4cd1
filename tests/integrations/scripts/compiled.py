"""A compiled model: the graphs must be those of a plain run, in one piece."""

import torch
import torch._dynamo
from common import border, loader, measured, write_ledger
from torch._dynamo.utils import counters


class Curve(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = torch.nn.Linear(1, 4), torch.nn.Linear(4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.outer(torch.tanh(self.inner(x)))


torch.manual_seed(1)
batches = loader(rows=32)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
in_place = Curve()
in_place.compile(backend="eager", fullgraph=True)
compiled = torch.compile(model, backend="eager", fullgraph=True)
optimizer = torch.optim.SGD([*model.parameters(), *in_place.parameters()], lr=0.01)
with measured([model, in_place], optimizer, batches):  # the inner model: its wrapper is what is called
    for x, y in batches:
        torch.nn.functional.mse_loss(compiled(x) + in_place(y), y).backward()
        optimizer.step()
        border()
        optimizer.zero_grad()
print(sum(p.double().sum().item() for p in model.parameters()))
print("graphs", counters["stats"]["unique_graphs"], dict(counters["graph_break"]), dict(counters["recompiles"]))
write_ledger()
