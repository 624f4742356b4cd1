"""Has the operations and bytes of a step counted, in a process beside the timed ones."""
