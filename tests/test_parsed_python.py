"""Python's text is parsed again where another thread was in the way."""

from __future__ import annotations

import ast

import pytest

from perf_diagnostics.parsed_python import parsed

PARSE = ast.parse


@pytest.mark.parametrize(("in_the_way", "is_parsed"), [(0, True), (1, True), (4, True), (5, False)])
def test_a_few_times_others_may_be_in_the_way(
    in_the_way: int, is_parsed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = [SystemError("AST constructor recursion depth mismatch (before=33, after=28)")] * in_the_way

    def parse(text: str) -> ast.Module:
        if left:
            raise left.pop()
        return PARSE(text)

    monkeypatch.setattr(ast, "parse", parse)
    if is_parsed:
        assert ast.unparse(parsed("x = 1")) == "x = 1"
    else:
        with pytest.raises(SystemError, match="recursion depth"):
            parsed("x = 1")


def test_what_is_no_python_is_told_as_ever() -> None:
    with pytest.raises(SyntaxError):
        parsed("def")
