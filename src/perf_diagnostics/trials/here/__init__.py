"""Trials in this process, of somebody's own model and data."""
