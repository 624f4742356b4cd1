"""The command line: ``perf-diagnostics`` and, shorter, ``perfdiag``. One file a command."""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # typing's own takes longer to import than all that stands here
if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; Ctrl-C while the commands are still being imported ends it, too."""
    try:
        from perf_diagnostics.cli.command_line import run_command

        return run_command(arguments)
    except KeyboardInterrupt:
        from perf_diagnostics.cli.exit_codes import INTERRUPTED

        print("perf-diagnostics: interrupted.", file=sys.stderr)
        return INTERRUPTED
