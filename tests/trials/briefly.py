"""The command line, ``python -m tests.trials.briefly sweep …``, whose trials measure their ceilings briefly.

For tests that kill it: processes, signals and files are those of ``python -m perf_diagnostics``.
"""

from __future__ import annotations

import sys

from perf_diagnostics.cli import main
from perf_diagnostics.trials import sweep
from perf_diagnostics.trials.confirm import confirm
from perf_diagnostics.trials.launch.launcher import ForkServer


def small(preload: tuple[str, ...] = ()) -> ForkServer:
    """A server of the command's own, whose trials have small ceilings."""
    return ForkServer((*preload, "tests.trials_with_small_ceilings"))


if __name__ == "__main__":
    sweep.launcher = confirm.launcher = small  # type: ignore[assignment]
    sys.exit(main())
