"""What a command's exit code says."""

DONE = 0
SOME_TRIALS_FAILED = 1
BAD_USAGE = 2
GATE_FAILED = 3
INTERRUPTED = 130
