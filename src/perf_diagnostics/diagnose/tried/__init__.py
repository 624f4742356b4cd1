"""Advice after it was given: what is worth trying, what was tried, and what came of it."""
