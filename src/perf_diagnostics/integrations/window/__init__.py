"""A profiler window in somebody's training."""
