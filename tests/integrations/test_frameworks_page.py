"""The examples of docs/frameworks.md run as they stand there, and measure what they train."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from perf_diagnostics.integrations import told_paths
from tests.integrations.planted import results_in

PAGE = Path(__file__).parents[2] / "docs" / "frameworks.md"


def example(library: str) -> str:
    """The page's only example that imports this library first of all."""
    found = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    (code,) = [code for code in found if re.search(rf"^from {library}[. ]", code, flags=re.MULTILINE)]
    return code


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
@pytest.mark.parametrize("library", ["transformers", "lightning", "accelerate"])
def test_an_example_runs_and_is_measured(tmp_path: Path, monkeypatch, capsys, library: str) -> None:
    pytest.importorskip("accelerate", reason="accelerate is missing: pip install 'accelerate>=1.1'")
    pytest.importorskip(library, reason=f"{library} is missing")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(told_paths, "_CALLED_IN", str(Path.cwd()))  # as if the example were started there
    exec(compile(example(library), str(PAGE), "exec"), {"__name__": "example"})
    (result,) = results_in(tmp_path / "results")
    assert result.steps[0].samples.tolist() == [4] * 20
    printed = capsys.readouterr()
    assert "perf-diagnostics: results/" in printed.err and printed.out.rstrip().endswith(" 20")
