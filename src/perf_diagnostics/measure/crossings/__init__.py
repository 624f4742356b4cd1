"""What crosses between host and device in a step: copies in, and values that the host waits for."""
