"""What the helps promise: each example is a command that is understood, and stands in a line of its own."""

from __future__ import annotations

import argparse
import shlex

import pytest

from perf_diagnostics.cli.command_line import COMMANDS, parser
from perf_diagnostics.cli.parser import Parser


def commands() -> dict[str, Parser]:
    (action,) = (one for one in parser()._actions if isinstance(one, argparse._SubParsersAction))
    return dict(action.choices)


@pytest.mark.parametrize("name", ["run", "sweep", "compare", "report", "diagnose", "export"])
@pytest.mark.parametrize("columns", ["50", "100"])
def test_each_example_can_be_typed(name: str, columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    _, _, told = commands()[name].format_help().partition("\nExamples:\n")
    lines = [line.strip() for line in told.strip().splitlines()]
    assert len(lines) >= 2
    for line in lines:
        words = shlex.split(line, comments=True)
        while words[0] not in ("perf-diagnostics", "perf_diagnostics"):  # what starts the ranks
            words = words[1:]
        given, unknown = parser().parse_known_args(words[1:])
        assert given.command == name and not unknown, line


def test_every_command_has_a_help_in_the_width_of_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "72")
    known = commands()
    assert len(known) == len(COMMANDS)
    for name, command in known.items():
        before_examples = command.format_help().partition("\nExamples:\n")[0].splitlines()
        own_usage = command.usage is not None
        assert max(len(line) for line in before_examples if not (own_usage and line.startswith("usage:"))) <= 72, name
