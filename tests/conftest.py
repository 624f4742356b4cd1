"""What holds for all tests."""

from __future__ import annotations

import signal

# A shell that starts the suite in the background has it ignore Ctrl-C, and so would every script that a test starts
# to see what Ctrl-C does to it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
