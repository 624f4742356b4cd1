"""The examples of docs/own-loop.md run as they stand there, and measure what they train."""

from __future__ import annotations

import re
from pathlib import Path

from perf_diagnostics.store.find import list_runs

PAGE = Path(__file__).parents[2] / "docs" / "own-loop.md"


def test_the_examples_run_and_are_measured(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(examples) >= 2
    names: dict[str, object] = {"__name__": "example"}
    for example in examples:
        exec(compile(example, str(PAGE), "exec"), names)
    runs = [folder.read() for folder in list_runs(tmp_path / "results")]
    assert len(runs) >= 2
    assert all(len(run.results[0].steps[0]) >= 10 for run in runs)
