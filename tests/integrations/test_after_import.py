"""What waits for the import of a module: called once, right after it, whoever looked for the module before."""

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from perf_diagnostics.integrations.watching.after_import import AfterImport

NAME = "a_module_that_is_waited_for"


@pytest.fixture
def called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """Whether the module had its content when the call came, one entry a call."""
    (tmp_path / f"{NAME}.py").write_text("content = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    calls: list[bool] = []
    waiting = AfterImport(NAME, lambda: calls.append(hasattr(sys.modules[NAME], "content")))
    waiting.install()
    yield calls
    waiting.remove()
    sys.modules.pop(NAME, None)


def test_the_call_comes_once_after_the_import(called: list[bool]) -> None:
    importlib.import_module(NAME)
    assert called == [True]
    importlib.reload(sys.modules[NAME])
    assert called == [True]


def test_who_only_asks_whether_it_is_installed_does_not_end_the_waiting(called: list[bool]) -> None:
    """As ``import transformers`` and ``import datasets`` ask for torch, before the script imports it."""
    assert importlib.util.find_spec(NAME) is not None
    assert called == []
    importlib.import_module(NAME)
    assert called == [True]


def test_an_import_that_failed_is_waited_for_again(called: list[bool], tmp_path: Path) -> None:
    (tmp_path / f"{NAME}.py").write_text("raise ImportError('a library is missing')\n")
    with pytest.raises(ImportError, match="a library is missing"):
        importlib.import_module(NAME)
    assert called == []
    (tmp_path / f"{NAME}.py").write_text("content = 1\n")
    importlib.import_module(NAME)
    assert called == [True]
