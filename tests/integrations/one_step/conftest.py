"""No step is looked through where something was compiled, so that here nothing was."""

from __future__ import annotations

import sys
from collections import Counter

import pytest


@pytest.fixture(autouse=True)
def _nothing_was_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests of this process may have."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None)
    if counters is not None:
        monkeypatch.setitem(counters, "stats", Counter())
