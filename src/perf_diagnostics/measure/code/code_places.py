"""Names lines of the user's own code as a record keeps them: the file, the function, and the text without secrets."""

from __future__ import annotations

import linecache
import sys
from pathlib import Path
from types import CodeType

from perf_diagnostics.measure.privacy import Person, masked_text
from perf_diagnostics.records import CodePlace

#: Characters of a line that are kept.
_MOST_TEXT = 160


class CodePlaces:
    """Gives places their names; files are named from the folder in which this was made."""

    def __init__(self) -> None:
        self._folder = Path.cwd()
        self._person: Person | None = None
        self._texts: dict[tuple[str, int], str] = {}

    def place(self, code: CodeType, line: int) -> CodePlace:
        """A line of this code."""
        person = self._person = self._person or Person.here()
        file = Path(code.co_filename)
        shown = _cell(code.co_filename) or (
            file.relative_to(self._folder) if file.is_relative_to(self._folder) else file
        )
        at = (code.co_filename, line)
        if at not in self._texts:
            self._texts[at] = masked_text(linecache.getline(*at).strip(), person)[:_MOST_TEXT]
        return CodePlace(
            file=person.removed_from(str(shown)), line=line, function=code.co_qualname, text=self._texts[at]
        )


def _cell(file: str) -> str:
    """The name of a notebook's cell (``Cell In[3]``) by the name that its code has; empty for a file."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    name_of = getattr(getattr(shell, "compile", None), "format_code_name", None)  # IPython 8 or later
    named = None if name_of is None else name_of(file)
    return "" if named is None else " ".join(named)
