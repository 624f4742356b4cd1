"""The parser of the command line: a refusal is one line, and names what comes nearest to what was typed."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Iterable
from typing import Any, NoReturn

from perf_diagnostics.cli.exit_codes import BAD_USAGE

_EXAMPLES = "Examples:\n"


def examples(*lines: str) -> str:
    """Commands that can be typed, for the end of a help."""
    return _EXAMPLES + "\n".join(f"  {line}" for line in lines)


class _KeepsExamples(argparse.HelpFormatter):
    """argparse's, which fills paragraphs, but leaves each example in its line."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if text.startswith(_EXAMPLES) else super()._fill_text(text, width, indent)


class Parser(argparse.ArgumentParser):
    """argparse's, without a screenful of usage above each error; the parsers of the commands are of this class too."""

    #: What else to say where a flag is refused.
    when_refused = ""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **{"formatter_class": _KeepsExamples, **named})

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and where help is, and exit with 2."""
        text = " ".join(message.split())
        end = "" if text.endswith((".", "?")) else "."
        self.exit(BAD_USAGE, f"{self.prog}: {text}{end} See {self.prog} --help.\n")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            known = [str(choice) for choice in action.choices]
            what = f"{value!r} is not one of {', '.join(known)}{nearest(str(value), known)}"
            raise argparse.ArgumentError(action if action.option_strings else None, what)

    def _takes(self) -> str:
        """What the command takes beside its flags: ``this command takes only BASE and NEW beside its flags``."""
        places = [action.metavar or action.dest for action in self._actions if not action.option_strings]
        told = [str(place) for place in places]
        return f"this command takes {f'only {_listed(told)}' if told else 'nothing'} beside its flags"

    def refuse(self, words: Iterable[str]) -> NoReturn:
        """Refuse words that no flag and no argument of this command takes."""
        left = list(words)
        flag = next((word for word in left if word.startswith("-")), None)
        if flag is None:
            self.error(
                f"{_listed(map(repr, left))} {'was' if len(left) == 1 else 'were'} not expected: {self._takes()}"
            )
        known = [option for action in self._actions for option in action.option_strings if "_" not in option]
        told = f"there is no flag {flag}{nearest(flag.partition('=')[0], known)}"
        end = "" if told.endswith("?") else "."
        self.error(f"{told}{end} {self.when_refused}" if self.when_refused else told)


def _listed(words: Iterable[str]) -> str:
    """``A``, ``A and B``; as :func:`~perf_diagnostics.diagnose.wording.listing`, which loads too much for a refusal."""
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def nearest(word: str, known: Iterable[str]) -> str:
    """``; did you mean --steps?``, or nothing if nothing comes near."""
    close = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""
