"""How the command line is called here, for the commands that it tells the user to type."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import PurePath

_NAME = "perf-diagnostics"

#: By what this process was started: this is imported before a script has `sys.argv` for its own.
_STARTED = (*sys.argv, "")[0]


def typed(*words: object) -> str:
    """A command that can be typed as it stands: by the path where the shell would not find the name.

    ``make`` calls ``.venv/bin/perf-diagnostics`` in an environment that nobody has activated.
    """
    by_path = PurePath(_STARTED).name == _NAME and shutil.which(_NAME) is None
    return shlex.join([_STARTED if by_path else _NAME, *map(str, words)])
