"""From code objects and places in them to lines and names."""

from __future__ import annotations

import dis
import json
import sys
import textwrap
from types import CodeType, ModuleType

import pytest

from perf_diagnostics.measure.code import module_names, stacks
from perf_diagnostics.measure.code.module_names import ModuleNames
from perf_diagnostics.measure.code.own_code import OwnCode
from perf_diagnostics.measure.code.stacks import Lines, Stacks

TEXT = """
    def f(a):
        b = [
            g(x)
            for x in a
        ]
        return h(
            b,
            a,
        )
"""


def compiled(text: str, file: str = "train.py") -> CodeType:
    (code,) = (one for one in compile(textwrap.dedent(text), file, "exec").co_consts if isinstance(one, CodeType))
    return code


def test_each_instructions_line_is_the_one_that_python_says() -> None:
    code, lines = compiled(TEXT), Lines()
    line = code.co_firstlineno
    for instruction in dis.get_instructions(code):
        at = instruction.positions.lineno if instruction.positions else None
        line = at or code.co_firstlineno
        assert lines.at(code, instruction.offset) == line
    assert line > code.co_firstlineno


LOOP = """
    def f(a, b):
        for x in a:
            if x not in b:
                b.append(x)
        return b
"""


def test_the_jump_at_a_loops_end_is_told_by_the_loops_head() -> None:
    """Python gives it no line where two lead there; a thread that is in the loop is seen at nothing else."""
    code = compiled(LOOP)
    jumps = [one for one in dis.get_instructions(code) if one.opname.startswith("JUMP_BACKWARD")]
    assert jumps
    for jump in jumps:
        own = jump.positions.lineno if jump.positions else None
        assert Lines().at(code, jump.offset) == (own or code.co_firstlineno + 1)


def test_tables_of_lines_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks, "MOST_TABLES", 3)
    lines = Lines()
    for _ in range(20):
        assert lines.at(compiled(TEXT), 0) == 2
        assert len(lines._tables) <= 3


def test_walks_that_differ_by_a_place_and_not_by_a_line_are_one_stack() -> None:
    code = compiled(TEXT)
    met = Stacks(OwnCode(main="", frameworks=[]))
    by_line: dict[int, set[int]] = {}
    for instruction in dis.get_instructions(code):
        line = Lines().at(code, instruction.offset)
        by_line.setdefault(line, set()).add(met.number(([code], [instruction.offset])))
    assert all(len(numbers) == 1 for numbers in by_line.values())
    assert len(met.all) == len(by_line) + 1
    assert len(met._walks) > len(by_line)


def test_walks_that_are_forgotten_are_worked_out_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks, "MOST_WALKS", 2)
    code = compiled(TEXT)
    met = Stacks(OwnCode(main="", frameworks=[]))
    first = [met.number(([code], [instruction.offset])) for instruction in dis.get_instructions(code)]
    assert [met.number(([code], [instruction.offset])) for instruction in dis.get_instructions(code)] == first
    assert len(met._walks) <= 2


def test_modules_are_known_by_their_files_also_those_loaded_later(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ModuleNames()
    assert names.of(json.__file__) == "json" and names.of(dis.__file__) == "dis"
    assert names.of("<frozen importlib._bootstrap>") == "importlib._bootstrap"
    assert names.of("<eval_with_key>.3") == names.of("/nowhere/else.py") == ""
    late = ModuleType("late")
    late.__file__ = "/nowhere/else.py"
    monkeypatch.setitem(sys.modules, "late", late)
    assert names.of("/nowhere/else.py") == "late"


def test_what_poses_as_a_module_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    class Poses:
        def __getattr__(self, name: str) -> str:
            raise AssertionError(name)

    monkeypatch.setitem(sys.modules, "poses", Poses())  # type: ignore[arg-type]
    assert ModuleNames().of(json.__file__) == "json"


def test_files_without_a_module_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module_names, "MOST_UNKNOWN", 3)
    names = ModuleNames()
    assert {names.of(f"/nowhere/{number}.py") for number in range(10)} == {""}
    assert len(names._unknown) == 3
