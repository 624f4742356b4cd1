"""What holds for all tests."""

from __future__ import annotations

import signal

import pytest

# A shell that starts the suite in the background has it ignore Ctrl-C, and so would every script that a test starts
# to see what Ctrl-C does to it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What times real training steps on this machine gets a second try: somebody else may have been busy on it."""
    for item in items:
        if any(item.get_closest_marker(name) for name in ("slow", "planted")):
            item.add_marker(pytest.mark.flaky(reruns=1))
