"""The command line as it is typed: help, bad usage, both spellings of lists, and config files under flags."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

import pytest

import perf_diagnostics
from perf_diagnostics.cli import command_line, main
from perf_diagnostics.cli.config import merged, read
from perf_diagnostics.cli.sweep import QUICK
from perf_diagnostics.cli.values import parsed_value, split_names, split_whole_numbers
from perf_diagnostics.errors import InvalidSettings
from perf_diagnostics.store.find import find_run

TINY = ("--workload", "mlp", "--option", "width=16", "--option", "depth=1", "--steps", "4", "--warmup", "1", "--quiet")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_help_is_light() -> None:
    """--help loads none of the heavy libraries; how fast that makes it is shown by benchmarks/start_up.py."""
    code = (
        "import sys\nfrom perf_diagnostics.cli import main\ntry:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "heavy = {'torch', 'numpy', 'jinja2', 'pandas', 'matplotlib', 'rich'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


@pytest.mark.slow
def test_ctrl_c_at_the_start_finds_nothing_of_ours_still_to_be_imported() -> None:
    """What is imported before ``main`` could answer it is next to nothing: no library, and none of the commands."""
    code = (
        "import sys\nsys.path.insert(0, sys.argv[1])\nbefore = set(sys.modules)\nimport perf_diagnostics.cli\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    source = str(Path(perf_diagnostics.__file__).parents[1])
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code, source], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["__future__", "perf_diagnostics", "perf_diagnostics.cli"]


def test_ctrl_c_outside_of_a_command_is_one_line_and_exit_code_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted() -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(command_line, "parser", interrupted)
    assert main(["runs"]) == 130
    assert capsys.readouterr().err == "perf-diagnostics: interrupted.\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["sweep", "--workload", "mpl"], "mlp"),
        (["sweep", "--workload", "mlp", "--batch-sizes", "8,x"], "'x' is not a whole number"),
        (["sweep", "--workload", "mlp", "--batch-sizes", "0"], "batch_size=0"),
        (["sweep", "--workload", "mlp", "--batch-sizes", "4", "4"], "names 4 twice"),
        (["sweep", "--workload", "mlp", "--set", "colour=red"], "colour"),
        (["sweep", "--workload", "mlp", "--option", "width"], "NAME=VALUE"),
        (["sweep", "--workload", "mlp", "--name", "../x"], "../x"),
        (["sweep", "--config", "nowhere.json"], "nowhere.json"),
        (["sweep", "--resume"], "no run"),
        (["diagnose", "nothing"], "no run"),
        (["report", "latest"], "no run"),
        (["explain", "XYZ999"], "XYZ999"),
        (["manifest", "verify", "nowhere"], "no run"),
    ],
)
def test_bad_usage_is_one_line_and_exit_code_2(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    told = capsys.readouterr().err
    assert words in told
    assert len(told.strip().splitlines()) == 1
    assert not Path("results").exists()


def test_unknown_flags_and_commands_exit_with_2() -> None:
    for arguments in (["sweep", "--no-such-flag"], ["frobnicate"], ["manifest", "burn", "x"]):
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == 2
    assert main([]) == 2


@pytest.mark.parametrize(
    "spelling", [["--batch-sizes", "2,4"], ["--batch-sizes", "2", "4"], ["--batch_sizes", "2", "4"]]
)
def test_both_spellings_of_a_list(spelling: list[str]) -> None:
    assert main(["sweep", *TINY, *spelling, "--name", "run", "--time-budget", "1e-9"]) == 0
    run = find_run("run", "results").read()
    assert {trial.settings.batch_size for trial in run.planned} == {2, 4}


def test_lists() -> None:
    assert split_names(["a,b", "c", " d , "]) == ["a", "b", "c", "d"]
    assert split_whole_numbers([1, "2,3"], of="x") == [1, 2, 3]
    assert [parsed_value(text) for text in ("true", "none", "3", "0.5", "1e-3", "x")] == [True, None, 3, 0.5, 1e-3, "x"]


def config(values: dict[str, Any]) -> str:
    Path("config.json").write_text(json.dumps(values))
    return "config.json"


def test_a_flag_overrides_the_config_only_if_it_is_given() -> None:
    name = config({"workload": "mlp", "batch-sizes": [2, 8], "steps": 4, "warmup": 1, "option": {"width": 16}})
    tail = ["--config", name, "--quiet", "--time-budget", "1e-9"]
    assert main(["sweep", *tail, "--name", "a"]) == 0
    assert main(["sweep", *tail, "--name", "b", "--batch-sizes", "4"]) == 0
    a, b = (find_run(run, "results").read() for run in "ab")
    assert {trial.settings.batch_size for trial in a.planned} == {2, 8}
    assert {trial.settings.batch_size for trial in b.planned} == {4}
    assert {trial.length.max_steps for run in (a, b) for trial in run.planned} == {4}
    assert {trial.options["width"] for run in (a, b) for trial in run.planned} == {16}


def test_quick_is_weaker_than_anything_said() -> None:
    assert merged({"quick": True}, QUICK)["time_budget"] == QUICK["time_budget"]
    assert merged({"quick": True, "time_budget": 5.0}, QUICK)["time_budget"] == 5.0
    assert "time_budget" not in merged({}, QUICK)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"batch_size": [1]}', "did you mean 'batch_sizes'"),
        ('{"steps": "many"}', "steps should be int"),
        ('{"steps": true}', "steps should be int"),
        ("[1, 2]", "object of flags"),
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_a_bad_config_is_told(text: str, words: str) -> None:
    path = Path("c.json")
    path.write_text(text)
    with pytest.raises(InvalidSettings, match=words):
        read(path)


def test_toml_configs_read_alike() -> None:
    Path("c.toml").write_text('workload = "mlp"\nbatch-sizes = "1,2"\n')
    assert read(Path("c.toml")) == {"workload": "mlp", "batch_sizes": ["1,2"]}


def test_a_gpu_sweep_without_a_gpu_is_skipped(capsys: pytest.CaptureFixture[str]) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    assert main(["sweep", *TINY, "--devices", "gpu"]) == 0
    assert "skipped: no GPU" in capsys.readouterr().out
    assert not Path("results").exists()


@pytest.mark.usefixtures("shared_server")
def test_exit_codes_of_a_sweep(capsys: pytest.CaptureFixture[str]) -> None:
    fine = ["sweep", *TINY, "--batch-sizes", "4"]
    assert main([*fine, "--name", "fine"]) == 0
    broken = ["sweep", *TINY, "--batch-sizes", "4", "--workload", "faulty", "--option", "crash_after=2"]
    assert main([*broken, "--name", "broken"]) == 1
    assert main([*broken, "--name", "allowed", "--allow-failures"]) == 0
    assert main(["sweep", "--resume", "fine", "--quiet"]) == 0
    assert "nothing to resume" in capsys.readouterr().out


@pytest.mark.usefixtures("shared_server")
def test_the_whole_way_in_folders_with_awkward_names(capsys: pytest.CaptureFixture[str]) -> None:
    """A path with 'test' or 'latest' in it must be like any other, and 'latest' alone the newest run."""
    for name in ("test", "latest", "newest"):
        assert main(["sweep", *TINY, "--batch-sizes", "2", "4", "--results-dir", "latest/test", "--name", name]) == 0
    capsys.readouterr()
    reports = {}
    for run in ("latest/test/test", "latest/test/latest", "newest"):
        where = ["--results-dir", "latest/test"]
        assert main(["diagnose", run, "--json", *where]) == 0
        told = json.loads(capsys.readouterr().out)
        assert set(told) >= {"schema_version", "verdict", "findings", "cleared", "unchecked"}
        assert main(["report", run, "--formats", "md", "html", "pptx", *where]) == 0
        capsys.readouterr()
        folder = Path("latest/test") / run.rpartition("/")[2]
        reports[run] = (folder / "performance_report.md").read_text()
        assert (folder / "report.pptx").read_bytes()[:2] == b"PK"
    lengths = [len(text) for text in reports.values()]
    assert max(lengths) < 1.5 * min(lengths)
    capsys.readouterr()
    assert main(["report", "latest", "--formats", "md", "--results-dir", "latest/test"]) == 0
    assert Path(capsys.readouterr().out.strip()) == Path("latest/test/newest/performance_report.md")


def test_sealing_tells_every_change(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", *TINY, "--batch-sizes", "2", "--name", "run"]) == 0
    assert main(["manifest", "create", "run"]) == 0
    assert main(["manifest", "verify", "latest"]) == 0
    subprocess.run(["sha256sum", "--quiet", "-c", "SHA256SUMS"], cwd="results/run", check=True)
    run = Path("results/run")
    run = run.rename("moved")
    assert main(["manifest", "verify", "moved"]) == 0
    (run / "added.txt").write_text("x")
    (run / "run.json").write_text((run / "run.json").read_text() + " ")
    next(run.glob("trials/*/result.json")).unlink()
    capsys.readouterr()
    assert main(["manifest", "verify", "moved"]) == 1
    told = capsys.readouterr().out
    assert "extra: added.txt" in told and "missing: trials/" in told and "wrong size: run.json" in told


@pytest.mark.usefixtures("shared_server")
def test_a_run_without_a_complete_trial_can_be_diagnosed_and_reported(capsys: pytest.CaptureFixture[str]) -> None:
    broken = ["sweep", *TINY, "--workload", "faulty", "--option", "nan_after=0", "--batch-sizes", "4", "--name", "run"]
    assert main(broken) == 1
    capsys.readouterr()
    assert main(["diagnose", "run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"] is None
    assert main(["report", "run", "--formats", "md", "html", "json", "pptx", "plots"]) == 0
    assert "nan" in Path("results/run/performance_report.md").read_text().lower()


def test_explain_lists_and_explains(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain"]) == 0
    codes = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert "INP001" in codes
    assert main(["explain", "inp001"]) == 0
    text = capsys.readouterr().out
    assert all(section in text for section in ("What it measures", "Why it matters", "What to try", "When it is wrong"))


@pytest.mark.parametrize(
    ("asked", "budget_s", "there"),
    [(None, 240.0, True), (None, 20.0, False), (True, 20.0, True), (False, 240.0, False)],
)
def test_a_sentinel_is_there_where_it_was_asked_for_or_else_in_larger_sweeps(
    asked: bool | None, budget_s: float, there: bool
) -> None:
    from perf_diagnostics.cli.sweep_axes import with_sentinel
    from perf_diagnostics.trials.plan import Axes

    axes = Axes(workload="mlp", batch_sizes=(1, 2, 4, 8))
    assert with_sentinel(axes, asked, budget_s).sentinel is there
    assert not QUICK["sentinel"]
