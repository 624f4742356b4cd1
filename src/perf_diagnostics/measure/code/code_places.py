"""Names lines of the user's own code as a record keeps them: the file, the function, and the text without secrets."""

from __future__ import annotations

import linecache
import sys
from pathlib import Path
from types import CodeType

from perf_diagnostics.measure.code.container_kinds import container_kinds, kinds_in
from perf_diagnostics.measure.privacy import Person, masked_text
from perf_diagnostics.records import CodePlace

#: Characters of a line that are kept.
_MOST_TEXT = 160


class CodePlaces:
    """Gives places their names; files are named from the folder in which this was made.

    Args:
        with_kinds: tell what containers the names in a line are, too, for which the whole file is parsed once.
    """

    def __init__(self, *, with_kinds: bool = False) -> None:
        self._folder = Path.cwd()
        self._person: Person | None = None
        self._texts: dict[tuple[str, int], str] = {}
        self._kinds: dict[str, dict[str, str]] | None = {} if with_kinds else None

    def place(self, code: CodeType, line: int) -> CodePlace:
        """A line of this code."""
        return self.named(code.co_filename, code.co_qualname, line)

    def named(self, file_name: str, function: str, line: int) -> CodePlace:
        """The same, by the names that the code has."""
        person = self._person = self._person or Person.here()
        file = Path(file_name)
        shown = _cell(file_name) or (file.relative_to(self._folder) if file.is_relative_to(self._folder) else file)
        at = (file_name, line)
        if at not in self._texts:
            self._texts[at] = masked_text(linecache.getline(*at).strip(), person)[:_MOST_TEXT]
        return CodePlace(
            file=person.removed_from(str(shown)),
            line=line,
            function=function,
            text=self._texts[at],
            kinds=kinds_in(self._texts[at], self._kinds_of(file_name)),
        )

    def _kinds_of(self, file: str) -> dict[str, str]:
        """The containers that a file makes, which is read once."""
        if self._kinds is None:
            return {}
        if file not in self._kinds:
            self._kinds[file] = container_kinds("".join(linecache.getlines(file)))
        return self._kinds[file]


def _cell(file: str) -> str:
    """The name of a notebook's cell (``Cell In[3]``) by the name that its code has; empty for a file."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    name_of = getattr(getattr(shell, "compile", None), "format_code_name", None)  # IPython 8 or later
    named = None if name_of is None else name_of(file)
    return "" if named is None else " ".join(named)
