"""Processes, processors and memory of the host."""
