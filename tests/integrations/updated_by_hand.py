"""Trainings that update their parameters by hand, without an optimizer of torch's, in the ways that are met."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch.func import functional_call, grad
from torch.utils.data import DataLoader, TensorDataset

BATCHES, SIZE = 12, 4
Batches = Iterable[tuple[torch.Tensor, torch.Tensor]]
loss_of = torch.nn.functional.mse_loss


def made() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Tanh(), torch.nn.Linear(5, 1))


def loader() -> DataLoader:
    torch.manual_seed(1)
    return DataLoader(TensorDataset(torch.randn(BATCHES * SIZE, 3), torch.randn(BATCHES * SIZE, 1)), batch_size=SIZE)


def write_into_data(*models: torch.nn.Module) -> None:
    """An update by what each parameter's data and gradient are; the gradients go."""
    for p in (p for model in models for p in model.parameters()):
        p.data.add_(p.grad, alpha=-0.1)
        p.grad = None


def subtract_without_gradients(model: torch.nn.Module) -> None:
    """An update of the parameters themselves, which autograd is told not to follow; the gradients go."""
    with torch.no_grad():
        for p in model.parameters():
            p.sub_(p.grad, alpha=0.1)
            p.grad = None


def of_data(model: torch.nn.Module, batches: Batches) -> None:
    for x, y in batches:
        loss_of(model(x), y).backward()
        for p in model.parameters():
            p.data.add_(p.grad, alpha=-0.1)
        model.zero_grad()


def new_data(model: torch.nn.Module, batches: Batches) -> None:
    for x, y in batches:
        loss_of(model(x), y).backward()
        for p in model.parameters():
            p.data, p.grad = p.data - 0.1 * p.grad, None


def without_gradients(model: torch.nn.Module, batches: Batches) -> None:
    for x, y in batches:
        loss_of(model(x), y).backward()
        subtract_without_gradients(model)


def of_grad(model: torch.nn.Module, batches: Batches) -> None:
    parameters = list(model.parameters())
    for x, y in batches:
        gradients = torch.autograd.grad(loss_of(model(x), y), parameters)
        for p, g in zip(parameters, gradients, strict=True):
            p.data.sub_(g, alpha=0.1)


def with_noise(model: torch.nn.Module, batches: Batches) -> None:
    """Stochastic gradient Langevin dynamics."""
    torch.manual_seed(2)
    for x, y in batches:
        model.zero_grad()
        loss_of(model(x), y).backward()
        for p in model.parameters():
            p.data.add_(p.grad, alpha=-0.05).add_(torch.randn_like(p), alpha=0.01)


class Momentum:
    """An optimizer of somebody's own."""

    def __init__(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        self.held = [(p, torch.zeros_like(p)) for p in parameters]

    @torch.no_grad()
    def step(self) -> None:
        for p, m in self.held:
            m.mul_(0.9).add_(p.grad)
            p.copy_(p - 0.01 * m)
            p.grad = None


def of_a_class_of_its_own(model: torch.nn.Module, batches: Batches) -> None:
    optimizer = Momentum(model.parameters())
    for x, y in batches:
        loss_of(model(x), y).backward()
        optimizer.step()


def functional(model: torch.nn.Module, batches: Batches) -> None:
    held = {name: p.detach().clone().requires_grad_() for name, p in model.named_parameters()}
    for x, y in batches:
        gradients = torch.autograd.grad(loss_of(functional_call(model, held, (x,)), y), tuple(held.values()))
        new = ((p - 0.1 * g).detach() for p, g in zip(held.values(), gradients, strict=True))
        held = {name: p.requires_grad_() for name, p in zip(held, new, strict=True)}
    model.load_state_dict(held)


def of_a_transform(model: torch.nn.Module, batches: Batches) -> None:
    held = {name: p.detach().clone() for name, p in model.named_parameters()}
    gradient = grad(lambda held, x, y: loss_of(functional_call(model, held, (x,)), y))
    for x, y in batches:
        gradients = gradient(held, x, y)
        held = {name: p - 0.1 * gradients[name] for name, p in held.items()}
    model.load_state_dict(held)
