"""Imported by a fork server, this gives every trial that it forks a pretended T4 with 1 GiB: see pretended_cuda.py."""

from tests.trials.pretended_cuda import install

install(name="Tesla T4", capability=(7, 5), total_memory=2**30)
