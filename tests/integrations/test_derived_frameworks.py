"""The arguments of a framework are told as the user's, unless a library drives a trainer that it has derived itself."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from perf_diagnostics.integrations import frameworks
from perf_diagnostics.integrations.frameworks import driving_framework

#: A framework, whose loop asks who drives it.
FRAMEWORK = """
import inspect

class Trainer:
    def train(self):
        return self._inner()

    def _inner(self):
        return driving_framework(inspect.currentframe())
"""

#: A library with trainers derived from the framework's, and something else that its users train by (SetFit).
LIBRARY = """
from its_framework import Trainer

class Derived(Trainer):
    pass

class Overridden(Trainer):
    def train(self):
        return super().train()

class Model:
    def train(self, kind):
        return kind().train()
"""

FACTS = {"framework": "its 1.0", "framework_arguments": {"workers": 0}, "framework_arguments_of": "Arguments"}


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """The framework and the library, as if they were installed."""
    made = []
    for name, text in (("its_framework", FRAMEWORK), ("its_library", LIBRARY)):
        module = ModuleType(name)
        vars(module)["driving_framework"] = driving_framework
        monkeypatch.setitem(sys.modules, name, module)
        exec(compile(text, str(tmp_path / "site-packages" / f"{name}.py"), "exec"), vars(module))
        made.append(module)
    monkeypatch.setattr(frameworks, "_LOOPS", {("its_framework", "train"): lambda _trainer: dict(FACTS)})
    framework, library = made
    return framework, library


def test_a_trainer_that_the_user_calls_has_the_users_arguments(modules: tuple[Any, Any]) -> None:
    framework, library = modules

    class Mine(library.Overridden):  # type: ignore[misc, name-defined]
        """A trainer of the user's own."""

    for kind in (framework.Trainer, library.Derived, library.Overridden, Mine):
        assert kind().train() == FACTS
    # A library that tries out what it is given calls what the user has made.
    for kind in (framework.Trainer, Mine):
        assert library.Model().train(kind) == FACTS


def test_of_a_librarys_own_trainer_that_it_calls_the_user_gave_no_arguments(modules: tuple[Any, Any]) -> None:
    _, library = modules
    for kind in (library.Derived, library.Overridden):
        assert library.Model().train(kind) == {"framework": "its 1.0"}
