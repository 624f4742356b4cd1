"""Runs a script of this folder in this process, watched, and compares what was measured with what it planted."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from perf_diagnostics.integrations import own_cost
from perf_diagnostics.integrations.ends.abrupt_ends import abrupt_ends
from perf_diagnostics.integrations.marked import MarkedLoop
from perf_diagnostics.integrations.model import trained
from perf_diagnostics.integrations.model.trained import Trained
from perf_diagnostics.integrations.run_script import Session, run_watched
from perf_diagnostics.integrations.watching import updates_by_hand
from perf_diagnostics.measure.living import Living, living
from perf_diagnostics.records import ALL_PHASES, StepTable, TrialResult
from perf_diagnostics.store.find import list_runs
from tests.planted.warm import WarmStart

SCRIPTS = Path(__file__).parent / "scripts"


@dataclass
class Watched:
    """What a script printed, planted and was measured to take."""

    result: TrialResult
    planted: list[dict[str, float]]

    @property
    def table(self) -> StepTable:
        return self.result.steps[0]

    def compare(self, *phases: str, slack_s: float = 0.0015, unseen: int = 0) -> None:
        """In the steady steps each phase holds what was planted in it, at most a fifth and ``slack_s`` more.

        The slack is what the real work of a phase takes; a busy machine may make it longer, hence no tighter bound.
        ``unseen`` steps at the beginning are told and not recorded.
        """
        told = self.result.gap("unseen_steps")
        lost = 0 if told is None else int(told.why.split()[0])
        planted = self.planted[lost:]
        assert len(self.table) == len(planted) and lost == unseen
        steady = ~self.table.columns["warmup"]
        assert steady.sum() >= 6
        assert self.table.where(steady).samples.all()
        for phase in ALL_PHASES:
            measured = self.table.host_ns(phase)
            if phase not in phases:
                continue
            assert measured is not None, phase
            planted_s = np.array([row.get(phase, 0.0) for row in planted])[steady]
            measured_s = measured[steady] / 1e9
            assert (measured_s >= planted_s * 0.999).all(), phase
            assert np.median(measured_s) <= np.median(planted_s) * 1.2 + slack_s, phase
            assert np.median(planted_s) > 0 or phase == "other"

    def closes(self) -> None:
        """The steps add up to clock reads around them, and the phases to the steps."""
        wall_s = self.table.steady.wall_ns.sum() / 1e9
        assert wall_s == pytest.approx(self.result.value("measured_wall_s"), rel=0.005)
        assert (self.table.host_ns(ALL_PHASES[-1]) >= 0).all()


@pytest.fixture(scope="session")
def warm() -> Iterator[WarmStart]:
    """Starts scripts without their imports of torch, with all warnings that python does not show by itself."""
    started = WarmStart(PYTHONWARNINGS="default")
    yield started
    started.close()


@pytest.fixture(autouse=True)
def _own_cost_is_asked_briefly(monkeypatch):
    """What watching costs is measured at the end of every record; test_own_cost is about whether for long enough."""
    monkeypatch.setattr(own_cost, "SECONDS", 0.01)


@pytest.fixture
def watched(tmp_path, monkeypatch, capsys):
    """``watched(script, how)`` runs it by the command's way (``run``) or with ``attach`` in it."""

    def run(script: str, how: str) -> Watched:
        monkeypatch.setenv("LEDGER", str(tmp_path / "ledger.json"))
        monkeypatch.setenv("HOW", how)
        # A script's own process has no optimizers of earlier tests, which would be waited for.
        monkeypatch.setattr(Trained, "expects_more", False)
        monkeypatch.setenv("RESULTS", str(tmp_path / "results"))
        monkeypatch.setattr(sys, "argv", ["pytest"])
        monkeypatch.setattr(sys, "path", [*sys.path])
        monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
        monkeypatch.delitem(sys.modules, "common", raising=False)
        session = None
        if how == "run":
            session = Session(workload=script, name=None, results_dir=tmp_path / "results")
        code = run_watched(str(SCRIPTS / f"{script}.py"), [], as_module=False, session=session)
        assert code is None, capsys.readouterr().err
        (folder,) = list_runs(tmp_path / "results")
        (result,) = folder.read().results
        return Watched(result, json.loads((tmp_path / "ledger.json").read_text(encoding="utf-8")))

    return run


@pytest.fixture(autouse=True)
def _each_test_is_a_process_of_its_own() -> Iterator[None]:
    """A training that a test leaves unfinished would stand in for the signals of all tests that follow.

    What is in torch comes off with the training: the tests that follow call torch's own backward.
    """
    yield
    for training in abrupt_ends._alive():
        abrupt_ends.remove(training)
        if isinstance(training, MarkedLoop):
            training.let_go()
    assert torch.autograd.backward.__module__ == "torch.autograd"
    assert not hasattr(torch.autograd.backward, "__wrapped__")


@pytest.fixture
def nothing_of_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """A script has a process of its own, without the models and optimizers that earlier tests have left.

    Where one lives that may be the training's, nobody is taken to update parameters by hand.
    """
    there = living()
    known = {id(one): one for one in (*there.modules, *there.optimizers)}

    def new() -> Living:
        now = living()
        return Living(
            [one for one in now.modules if id(one) not in known],
            [one for one in now.optimizers if id(one) not in known],
        )

    for module in (trained, updates_by_hand):
        monkeypatch.setattr(module, "living", new)
