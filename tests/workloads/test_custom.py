"""``module:function``: finding it, calling it with what it asks for, and telling what is wrong with it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from perf_diagnostics.errors import InvalidSettings, WorkloadError
from perf_diagnostics.records import Settings
from perf_diagnostics.workloads import find
from tests.workloads.stepping import steps

MODULE = '''
import torch
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader, TensorDataset
from perf_diagnostics.workloads import BatchCount, Training

number = 3

def _parts(width=2, batch_size=4):
    model = torch.nn.Linear(width, 1)
    data = TensorDataset(torch.rand(12, width), torch.rand(12, 1))
    return model, torch.optim.AdamW(model.parameters()), DataLoader(data, batch_size=batch_size, shuffle=True), mse_loss

def plain():
    """A plain linear regression.

    More words."""
    return _parts()

def mapping():
    return dict(zip(("model", "optimizer", "loader", "loss_fn"), _parts()))

def knowing(settings, options, seed):
    assert torch.initial_seed() == seed
    return _parts(width=options.get("width", 2), batch_size=settings.batch_size)

def greedy(**everything):
    assert set(everything) == {"settings", "options", "seed"}
    return _parts()

def own(settings):
    model, optimizer, loader, loss_fn = _parts(batch_size=settings.batch_size)
    return Training(model, optimizer, loader, lambda m, b: loss_fn(m(b[0]), b[1]), lambda b: BatchCount(len(b[0])),
                    clip_grad_norm=1.0, facts={"model": "mine"})

def named(seed, width=3): return _parts(width=width)
def needy(path, settings): ...
def positional(settings, /): ...
def three(): return _parts()[:3]
def nothing(): return None
def half(): return {"model": 1, "loss": 2}
def no_model(): return (3, *_parts()[1:])
def no_optimizer(): return (_parts()[0], "adam", *_parts()[2:])
def no_loader(): return (*_parts()[:2], 3, mse_loss)
def no_loss(): return (*_parts()[:3], 3)
def failing(): raise KeyError("mine")
'''


@pytest.fixture(autouse=True)
def module(tmp_path, monkeypatch):
    (tmp_path / "trains_something.py").write_text(MODULE)
    (tmp_path / "broken_import.py").write_text("import surely_not_installed\n")
    (tmp_path / "broken_syntax.py").write_text("def (:\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    yield
    for name in ("trains_something", "broken_import", "broken_syntax"):
        sys.modules.pop(name, None)


def build(function: str, *, seed: int = 0, options=None, **settings):
    settings = Settings(**{"batch_size": 4} | settings)
    return find(f"trains_something:{function}").build(settings, options=options or {}, seed=seed)


@pytest.mark.parametrize("function", ["plain", "mapping", "knowing", "greedy", "own"])
def test_what_a_function_returns_is_trained(function: str) -> None:
    training = build(function)
    assert [training.count(batch).samples for batch in training.batches] == [4, 4, 4]
    assert len(steps(training, 4)) == 4
    assert training.facts["optimizer"] == "AdamW"
    assert training.facts["num_workers"] == 0


def test_a_workload_says_its_functions_first_line() -> None:
    workload = find("trains_something:plain")
    assert (workload.name, workload.says) == ("trains_something:plain", "A plain linear regression.")
    assert find("trains_something:mapping").says == "the function mapping of trains_something"


def test_weights_data_and_order_follow_from_the_seed() -> None:
    def begun(seed: int) -> list[float]:
        training = build("plain", seed=seed)  # its loader draws from torch's global generator
        return [*training.model.weight.flatten().tolist(), *next(iter(training.batches))[0].flatten().tolist()]

    assert begun(5) == begun(5)
    assert begun(5) != begun(6)


def test_options_reach_a_function_that_takes_them() -> None:
    assert build("knowing", options={"width": 7}).model.in_features == 7


def test_options_for_a_function_that_takes_none_are_refused() -> None:
    with pytest.raises(WorkloadError, match="trains_something:plain takes no options, and width was given"):
        build("plain", options={"width": 7})


def test_an_option_reaches_the_parameter_of_its_name() -> None:
    assert build("named").model.in_features == 3
    assert build("named", options={"width": 7}).model.in_features == 7
    with pytest.raises(WorkloadError, match="takes no options but width, and depth, wide were given"):
        build("named", options={"wide": 7, "width": 7, "depth": 2})


def test_a_loader_is_batched_anew_for_a_function_that_takes_no_settings() -> None:
    training = build("plain", batch_size=6, num_workers=1, prefetch_factor=3)
    assert (training.batches.batch_size, training.facts["num_workers"], training.facts["prefetch_factor"]) == (6, 1, 3)


@pytest.mark.parametrize("setting", [{"sequence_length": 9}, {"gradient_checkpointing": True}])
def test_a_function_that_takes_no_settings_cannot_honour_all(setting) -> None:
    with pytest.raises(InvalidSettings, match="the function has no parameter 'settings'"):
        build("plain", **setting)
    assert build("knowing", **setting).facts["model"] == "Linear"


def test_an_optimizer_made_otherwise_than_asked_for_is_refused() -> None:
    with pytest.raises(InvalidSettings, match="'fused' was asked for, and the optimizer is AdamW"):
        build("knowing", optimizer_implementation="fused")


def test_a_training_is_taken_as_it_is() -> None:
    training = build("own")
    assert training.clip_grad_norm == 1.0
    assert training.facts["model"] == "mine"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("trains_something:plane", r"'plane' is not in trains_something; did you mean 'plain'\? known are"),
        ("trains_something:number", "'number' is not a function of trains_something"),
        ("trains_somethin:plain", r"no module trains_somethin; in this folder did you mean 'trains_something'\?"),
        ("trains_something.deeper:plain", "trains_something.deeper cannot be imported|no module"),
        ("broken_import:x", "The module broken_import cannot be imported: No module named 'surely_not_installed'"),
        ("broken_syntax:x", "The module broken_syntax cannot be imported"),
        ("trains_something.py:plain:x", "is no workload"),
        ("../evil:main", "'../evil:main' is no workload: one of your own is named 'module:function'"),
        (":", "is no workload"),
        ("a b:c", "is no workload"),
        ("os:system", "os:system needs an argument 'command'"),
        ("trains_something:needy", "needs an argument 'path'; a workload is only given settings, options, seed"),
        ("trains_something:positional", "needs an argument 'settings'; .* by keyword"),
    ],
)
def test_a_name_that_leads_nowhere_is_told(name: str, text: str) -> None:
    with pytest.raises(WorkloadError, match=text):
        find(name)


@pytest.mark.parametrize(
    ("function", "text"),
    [
        ("three", "returned a tuple of 3; it must return a Training or model, optimizer, loader, loss_fn"),
        ("nothing", "returned a NoneType; it must return"),
        ("half", "returned a mapping with the keys model, loss; it needs exactly model, optimizer, loader, loss_fn"),
        ("no_model", "returned as model a int, not a Module"),
        ("no_optimizer", "returned as optimizer a str, not a Optimizer"),
        ("no_loader", "returned as loader a int, which has no batches"),
        ("no_loss", "returned as loss_fn a int, which cannot be called"),
    ],
)
def test_what_cannot_be_trained_is_told(function: str, text: str) -> None:
    with pytest.raises(WorkloadError, match=f"trains_something:{function} {text}"):
        build(function)


def test_a_fault_of_the_functions_own_is_left_to_be_seen() -> None:
    with pytest.raises(KeyError, match="mine"):
        build("failing")


def test_the_current_folder_stays_on_the_path_for_workers() -> None:
    find("trains_something:plain")
    assert sys.path[0] == str(Path.cwd())
    find("trains_something:plain")
    assert sys.path.count(str(Path.cwd())) == 1


def test_torch_is_seeded_for_dropout_too() -> None:
    build("plain", seed=11)
    first = torch.rand(3)
    build("plain", seed=11)
    assert torch.equal(first, torch.rand(3))
