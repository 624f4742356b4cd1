"""``python -m perf_diagnostics`` is the command line."""

import sys

from perf_diagnostics.cli import main

sys.exit(main())
