"""No step is looked through where something was compiled, so that here nothing was."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _nothing_was_compiled(nothing_compiled: None) -> None:
    """In any of these tests."""
