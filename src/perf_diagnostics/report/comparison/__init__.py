"""A comparison of two runs in each of its formats."""
