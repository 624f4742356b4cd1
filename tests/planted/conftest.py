"""Trainings in this process have one thread; real trials and scripts, in processes of their own, what they ask for."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module", autouse=True)
def small_trainings(one_thread: None) -> None:
    """See ``one_thread``."""


@pytest.fixture
def turn(request: pytest.FixtureRequest) -> str:
    """Names a further try of a test (see ``tests/conftest.py``), so that its arms run anew; empty in the first try."""
    tries: int = getattr(request.node, "execution_count", 1)
    return "" if tries == 1 else f"try {tries}"
