"""Where the results cannot be written that is said at once, on one line; the training goes on, and nothing stays."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from perf_diagnostics.integrations import OwnLoop, attach
from perf_diagnostics.integrations.ranks import ranks
from perf_diagnostics.integrations.record.training_folder import TrainingFolder
from perf_diagnostics.store.run_folder import RunFolder
from tests.measure.simulated_device import HostClock


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    for _ in range(steps):
        model(torch.randn(2, 4)).sum().backward()
        optimizer.step()


def parts() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    model = torch.nn.Linear(4, 1)
    return model, torch.optim.SGD(model.parameters(), lr=1e-3)


@pytest.mark.parametrize("quiet", [True, False])
def test_it_is_told_once_with_the_path_and_the_steps_are_there(
    tmp_path: Path, capsys: pytest.CaptureFixture, quiet: bool
) -> None:
    blocked = tmp_path / "results"
    blocked.write_text("a file, and no folder", encoding="utf-8")  # root may write wherever there is a folder
    model, optimizer = parts()
    with attach(model, optimizer, results_dir=blocked, quiet=quiet) as seen:
        train(model, optimizer, 12)
        early = capsys.readouterr()
    late = capsys.readouterr()
    # The first three steps are the warm-up, at whose end nothing is written: the first second has not passed.
    lines = [line for line in (early.err + late.err).splitlines() if "cannot be written" in line]
    assert len(lines) == 1 and early.out == late.out == ""
    assert str(blocked) in lines[0] and "results_dir=" in lines[0] and lines[0].startswith("perf-diagnostics: ")
    assert seen.folder is None and len(seen.run.results[0].steps[0]) == 12
    assert ("not written: " in late.err) is not quiet
    assert seen.run.results[0].gap("records") is not None


def test_it_is_told_while_the_training_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    blocked = tmp_path / "results"
    blocked.write_text("", encoding="utf-8")
    host = HostClock()
    with OwnLoop(results_dir=blocked, clock=host, quiet=True) as loop:
        for number in range(20):
            with loop.step(samples=1), loop.forward():
                host.spend(1000)
            if number == 5:
                assert "cannot be written" in capsys.readouterr().err
    assert capsys.readouterr().err == ""


def test_what_could_not_be_written_is_written_once_it_can_be(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    blocked = tmp_path / "results"
    blocked.write_text("", encoding="utf-8")
    host = HostClock()
    with OwnLoop(results_dir=blocked, clock=host, quiet=True) as loop:
        for number in range(20):
            with loop.step(samples=1), loop.forward():
                host.spend(3000)
            if number == 10:
                blocked.unlink()
    assert capsys.readouterr().err.count("cannot be written") == 1
    assert loop.folder is not None
    (result,) = RunFolder.open(loop.folder).read().results
    assert len(result.steps[0]) == 20


def test_a_folder_that_can_be_written_to_is_not_mentioned(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    model, optimizer = parts()
    with attach(model, optimizer, results_dir=tmp_path / "new" / "results", quiet=True) as seen:
        train(model, optimizer, 12)
    assert capsys.readouterr().err == ""
    assert seen.folder is not None and seen.run.results[0].gap("records") is None


class Store:
    """What ranks share, with nobody on the other side."""

    def __init__(self) -> None:
        self.kept: dict[str, str] = {}

    def set(self, key: str, value: str) -> None:
        self.kept[key] = value

    def add(self, _key: str, _amount: int) -> int:
        return 1


def test_where_the_ranks_were_to_meet_goes_with_the_run_that_could_not_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store()
    monkeypatch.setattr(ranks, "world_size", lambda: 2)
    monkeypatch.setattr(ranks, "_store", lambda: store)

    def full(_self: TrainingFolder) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(TrainingFolder, "_create", full)
    model, optimizer = parts()
    with attach(model, optimizer, results_dir=tmp_path, quiet=True):
        train(model, optimizer, 12)
        assert [path.name.startswith(".ranks-") for path in tmp_path.iterdir()] == [True]
    assert list(tmp_path.iterdir()) == []
