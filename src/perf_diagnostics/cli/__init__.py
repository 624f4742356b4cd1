"""The command line: ``perf-diagnostics`` and, shorter, ``perfdiag``. One file a command."""

from perf_diagnostics.cli.command_line import main

__all__ = ["main"]
