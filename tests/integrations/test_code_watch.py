"""Which lines of somebody's script the steady steps spend their time at."""

from __future__ import annotations

import json
import textwrap
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from perf_diagnostics.diagnose.code.code_shares import all_code_shares
from perf_diagnostics.diagnose.facts.facts import TrialFacts
from perf_diagnostics.integrations.steps.loop_probe import LoopProbe
from perf_diagnostics.measure.code import code_watch, program_slice
from perf_diagnostics.measure.code.code_sampling import INTERVAL_NS, CodeSampling
from perf_diagnostics.measure.code.code_watch import CodeWatch
from perf_diagnostics.measure.code.own_code import OwnCode
from perf_diagnostics.measure.observation import Observations
from perf_diagnostics.records import CodeSamples, Outcome, TrialResult
from perf_diagnostics.store.find import list_runs
from perf_diagnostics.testing import FakeClock
from tests.integrations.test_run_script import RUN, both, start
from tests.planted.warm import WarmStart


class Phases(LoopProbe):
    """Says the phases that it was given, one a look."""

    def __init__(self, *phases: tuple[str, str] | None) -> None:
        super().__init__(bridged=True)
        self._given = phases

    def phases_at(self, times_ns: Sequence[int]) -> list[tuple[str, str] | None]:
        assert len(times_ns) == len(self._given)
        return list(self._given)


def looked_at(monkeypatch: pytest.MonkeyPatch, folder: Path) -> tuple[CodeWatch, CodeSampling]:
    """A watch whose looks the test itself takes, in this thread; ``folder`` is the current one."""
    monkeypatch.chdir(folder)
    watch = CodeWatch(FakeClock(), Observations())
    watch._sampling = CodeSampling(FakeClock(), OwnCode(main="", frameworks=[]), threading.get_ident())
    return watch, watch._sampling


def compiled(path: Path, text: str) -> Callable[[Callable[[], None]], None]:
    """The function ``f`` of a file with this text."""
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    space: dict[str, Callable[[Callable[[], None]], None]] = {}
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), space)
    return space["f"]


def innermost(code: CodeSamples) -> list[tuple[str, str, str, int, int]]:
    return [
        (path.phase, path.part, code.places[path.places[-1]].function, path.looks, path.rare) for path in code.paths
    ]


def test_looks_are_counted_by_phase_and_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    watch, sampling = looked_at(monkeypatch, tmp_path)
    f = compiled(tmp_path / "train.py", "def f(look):\n    look()  # hf_0123456789abcdefghij\n")
    for _ in range(3):
        f(sampling.look)
    watch.block_ended(Phases(("other", "prepare"), ("other", "prepare"), None), counts=True)
    code = watch.samples()
    assert code is not None
    (path,) = code.paths
    place = code.places[path.places[-1]]
    assert (path.phase, path.part, path.looks, path.rare) == ("other", "prepare", 2, 0)
    assert (place.file, place.line, place.function) == ("train.py", 2, "f")
    assert place.text == "look()  # ***"  # a secret by its shape
    assert (code.interval_s, code.looks) == (INTERVAL_NS / 1e9, 2)


STEP = """
def f(look):
    loss = net(look())
    backward(loss)
    if False:
        loss.backward()
    look()
def net(x):
    return x
def backward(loss):
    pass
def parameters():
    return net.parameters()
"""


@pytest.mark.parametrize(("most_lines", "most_looked_at"), [(5000, 100_000), (3, 100_000), (5000, 3)])
def test_what_lines_are_to_the_training_is_told_where_it_is_found_soon(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, most_lines: int, most_looked_at: int
) -> None:
    watch, sampling = looked_at(monkeypatch, tmp_path)
    monkeypatch.setattr(code_watch, "_MOST_LINES", most_lines)
    monkeypatch.setattr(program_slice, "_MOST_LOOKED_AT", most_looked_at)
    compiled(tmp_path / "train.py", STEP)(sampling.look)
    watch.block_ended(Phases(("other", ""), ("other", "")), counts=True)
    code = watch.samples()
    assert code is not None
    told = {place.line: role for place, role in zip(code.places, code.roles, strict=False) if place.file == "train.py"}
    assert told == ({3: "preparation", 7: "unread"} if (most_lines, most_looked_at) == (5000, 100_000) else {})


@pytest.mark.parametrize("most_looked_at", [100_000, 3])
def test_files_are_read_through_again_only_when_there_are_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, most_looked_at: int
) -> None:
    watch, sampling = looked_at(monkeypatch, tmp_path)
    read: list[set[str]] = []

    def reads(texts: Mapping[str, str]) -> program_slice.ProgramSlice:
        read.append({Path(file).name for file in texts} & {"train.py", "finetune.py"})
        return program_slice.ProgramSlice(texts)

    monkeypatch.setattr(code_watch, "ProgramSlice", reads)
    monkeypatch.setattr(program_slice, "_MOST_LOOKED_AT", most_looked_at)
    for name in ("train.py", "train.py", "finetune.py"):
        compiled(tmp_path / name, STEP)(sampling.look)
        watch.block_ended(Phases(("other", ""), ("other", "")), counts=True)
        code = watch.samples()
        assert code is not None and bool(code.roles) == (most_looked_at > 3)
    assert read == [{"train.py"}, {"train.py", "finetune.py"}]


def test_looks_at_steps_that_do_not_count_are_dropped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    watch, sampling = looked_at(monkeypatch, tmp_path)
    sampling.look()
    watch.block_ended(Phases(("other", "")), counts=False)
    assert watch.samples() is None
    watch.block_ended(Phases(), counts=True)
    assert watch.samples() is None


def test_of_many_paths_the_rest_still_counts_to_its_phase(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(code_watch, "MOST_PATHS", 1)
    watch, sampling = looked_at(monkeypatch, tmp_path)
    f = compiled(tmp_path / "train.py", "def f(look):\n    look()\n    look()\n    look()\n")
    f(sampling.look)
    sampling.look()
    f(lambda: None)
    watch.block_ended(Phases(("other", ""), ("other", ""), ("forward", ""), ("forward", "")), counts=True)
    code = watch.samples()
    assert code is not None
    assert code.looks == 4
    assert sorted((path.phase, len(path.places) > 0, path.looks) for path in code.paths) == [
        ("forward", False, 2),
        ("other", False, 1),
        ("other", True, 1),
    ]


def test_a_late_look_keeps_its_line_only_where_it_saw_the_phase_in_which_it_was_due(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    watch, sampling = looked_at(monkeypatch, tmp_path)
    f = compiled(tmp_path / "train.py", "def f(look):\n    look()\n")
    f(sampling.look)
    (look,) = sampling.take()
    late = look._replace(at_ns=100, seen_ns=900, late=True)
    sampling._looked = [late, late._replace(at_ns=500)]

    class Probe(LoopProbe):
        def phases_at(self, times_ns: Sequence[int]) -> list[tuple[str, str] | None]:
            return [("forward", "") if at < 300 else ("other", "") for at in times_ns]

    watch.block_ended(Probe(bridged=True), counts=True)
    code = watch.samples()
    assert code is not None
    found = {(path.phase, path.late, path.looks): len(path.places) for path in code.paths}
    assert found[("forward", True, 1)] == 0
    assert found[("other", True, 1)] > 0


def test_it_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERF_DIAGNOSTICS_CODE", "0")
    observations = Observations()
    before = threading.active_count()
    watch = CodeWatch(FakeClock(), observations)
    watch.begin()
    watch.block_ended(Phases(), counts=True)
    watch.end()
    assert watch.samples() is None
    assert threading.active_count() == before
    assert [(gap.signal, gap.why) for gap in observations.gaps] == [
        ("code_lines", "PERF_DIAGNOSTICS_CODE turns it off")
    ]


#: Every planted line has its own stopwatch, for a sleep takes longer than it is asked to on a busy machine.
SCRIPT = """
    import collections, json, os, sys, time
    import torch
    from torch.utils.data import DataLoader, Dataset

    spent = collections.Counter()
    now = time.perf_counter

    class Data(Dataset):
        def __len__(self):
            return 400

        def __getitem__(self, index):
            began = now()
            time.sleep(0.002)  # decode
            spent["decode"] += now() - began
            return torch.randn(8)

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(8, 1)

        def forward(self, x):
            began = now()
            time.sleep(0.006)  # attend
            spent["attend"] += now() - began
            return self.layer(x)

    def evaluate():
        began = now()
        for _ in range(5):
            time.sleep(0.008)  # judge
        spent["judge"] += now() - began

    def main(workers):
        torch.manual_seed(0)
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        step = 0
        for epoch in range(2 if len(sys.argv) < 4 else 4):
            for x in DataLoader(Data(), 4, num_workers=workers):
                if step == 10:
                    spent.clear()
                    steady = now()
                began = now()
                time.sleep(0.004)  # prepare
                spent["prepare"] += now() - began
                loss = model(x).pow(2).mean()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                step += 1
                if step % 5 == 0:
                    evaluate()  # evaluation
        whole = now() - steady
        print("loss", loss.item())
        with open(sys.argv[2], "w") as file:
            json.dump({name: seconds / whole for name, seconds in spent.items()}, file)
        if len(sys.argv) > 3:
            os.kill(os.getpid(), 9)

    if __name__ == "__main__":
        main(int(sys.argv[1]))
"""


def shares(folder: Path) -> tuple[TrialResult, dict[tuple[str, str], tuple[float, float]]]:
    """The run's result, and the ends of each line's share of the step, by its phase and its comment."""
    (run,) = list_runs(folder)
    (result,) = run.read().results
    found = {}
    for one in all_code_shares(TrialFacts.of(result)):
        assert one.share.low is not None and one.share.high is not None
        found[one.phase, one.place.text.rpartition("# ")[2]] = (one.share.low, one.share.high)
    return result, found


@pytest.mark.slow
def test_planted_lines_are_named_with_their_share_of_the_step(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(textwrap.dedent(SCRIPT), encoding="utf-8")
    ended = start([*RUN, "train.py", "0", "truth.json"], tmp_path)
    assert ended.returncode == 0, ended.stderr
    result, found = shares(tmp_path / "results")
    truth = json.loads((tmp_path / "truth.json").read_text(encoding="utf-8"))
    assert set(truth) == {"decode", "prepare", "attend", "judge"}
    for line in (("data_wait", "decode"), ("other", "prepare"), ("forward", "attend"), ("other", "judge")):
        low, high = found[line]
        # Nineteen of twenty intervals hold the truth, and here are four: twice as wide ones, then.
        assert low - (high - low) / 2 <= truth[line[1]] <= high + (high - low) / 2, line
    assert result.code is not None
    assert result.code.cpu_s > 0


@pytest.mark.slow
def test_forked_workers_and_a_kill_leave_the_lines_and_no_warning(tmp_path: Path, warm: WarmStart) -> None:
    (tmp_path / "train.py").write_text(textwrap.dedent(SCRIPT), encoding="utf-8")
    plain, watched = both(tmp_path, "train.py", "2", "truth.json", "kill", warm=warm)
    assert plain.stdout == watched.stdout
    assert plain.returncode == watched.returncode == -9
    assert plain.stderr == watched.stderr  # with all warnings shown
    result, found = shares(tmp_path / "results")
    assert result.outcome is Outcome.INTERRUPTED
    assert ("forward", "attend") in found
