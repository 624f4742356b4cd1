"""Python's text as a tree, also where another thread parses at the same time."""

from __future__ import annotations

import ast

#: CPython 3.11 (seen with 3.11.7) counts the depth of a tree in one place for all threads: two that parse at once may
#: both be told "AST constructor recursion depth mismatch". What is tried again soon after hardly meets the other one.
_TRIES = 5


def parsed(text: str) -> ast.Module:
    """The tree of a module's text.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: as ``ast.parse`` does.
        SystemError: other threads were in the way each time.
    """
    for _ in range(_TRIES - 1):
        try:
            return ast.parse(text)
        except SystemError:
            continue
    return ast.parse(text)
