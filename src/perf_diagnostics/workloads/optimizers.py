"""Optimizers in the implementation the settings ask for, and which implementation an optimizer uses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from perf_diagnostics.errors import InvalidSettings
from perf_diagnostics.records import Json, Settings

_FLAGS: dict[str | None, dict[str, bool]] = {
    None: {},
    "single": {"foreach": False, "fused": False},
    "foreach": {"foreach": True},
    "fused": {"fused": True},
}
#: Device types on which torch.optim picks the foreach implementation when nothing is asked for (torch 2.6 … 2.13);
#: elsewhere it loops over single tensors.
_FOREACH_BY_DEFAULT = ("cuda", "xpu", "mtia")


def make_optimizer(
    kind: type[torch.optim.Optimizer],
    parameters: Iterable[torch.nn.Parameter],
    settings: Settings,
    **hyperparameters: Any,
) -> torch.optim.Optimizer:
    """An optimizer of class ``kind`` in ``settings.optimizer_implementation`` (None: torch's own choice).

    Raises:
        InvalidSettings: The implementation does not exist for this optimizer or on the parameters' device.
    """
    chosen = settings.optimizer_implementation
    try:
        return kind(parameters, **_FLAGS[chosen], **hyperparameters)  # type: ignore[arg-type]
    except (RuntimeError, TypeError) as error:
        if chosen is None:
            raise
        raise InvalidSettings(
            f"optimizer_implementation={chosen!r} is not available for {kind.__name__} on {settings.device}: {error}"
        ) from error


def optimizer_facts(optimizer: torch.optim.Optimizer) -> dict[str, Json]:
    """The optimizer's class and its implementation: single, foreach or fused; left out where that cannot be told."""
    facts: dict[str, Json] = {"optimizer": type(optimizer).__name__}
    implementation = _implementation_of(optimizer)
    if implementation is not None:
        facts["optimizer_implementation"] = implementation
    return facts


def _implementation_of(optimizer: torch.optim.Optimizer) -> str | None:
    if not {"foreach", "fused"} & optimizer.defaults.keys():
        return None
    if optimizer.defaults.get("fused"):
        return "fused"
    foreach = optimizer.defaults.get("foreach")
    if foreach is None:
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        foreach = bool(parameters) and all(p.device.type in _FOREACH_BY_DEFAULT for p in parameters)
    return "foreach" if foreach else "single"
