"""Runs at rest: a ``run_folder`` holds a ``trial_folder`` each trial, as ``files``; ``ranks`` are joined when read."""
