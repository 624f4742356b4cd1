"""Trainings in this process have one thread; real trials and scripts, in processes of their own, what they ask for."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module", autouse=True)
def small_trainings(one_thread: None) -> None:
    """See ``one_thread``."""
