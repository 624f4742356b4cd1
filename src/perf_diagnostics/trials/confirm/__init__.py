"""Tries the advice of a run's diagnosis, each change against its base."""
