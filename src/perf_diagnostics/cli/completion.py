"""``completion``: what completes a command as it is typed, in bash, zsh and fish.

The script that a shell reads asks this program for the words that fit, with what has been typed so far; so they are
those of the installed version, and of the runs that there are. Where none fits the shell offers files.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from perf_diagnostics.cli.exit_codes import DONE
from perf_diagnostics.cli.parser import examples
from perf_diagnostics.cli.run_arguments import RESULTS_DIR

#: Flags that stand without a command.
WITHOUT_COMMAND = ("-h", "--help", "--version")

#: What a shell's script asks with, instead of the shell's name.
WORDS = "words"

_BASH = """\
_perf_diagnostics() {
    local IFS=$'\\n'
    COMPREPLY=($("${COMP_WORDS[0]}" completion words "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _perf_diagnostics perf-diagnostics perfdiag
"""

_ZSH = """\
#compdef perf-diagnostics perfdiag
_perf_diagnostics() {
    local -a found
    found=("${(@f)$("${words[1]}" completion words "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ -n ${found[1]} ]]; then
        compadd -- "${found[@]}"
    else
        _files
    fi
}
if [[ ${funcstack[1]} == _perf_diagnostics ]]; then
    _perf_diagnostics
else
    compdef _perf_diagnostics perf-diagnostics perfdiag
fi
"""

_FISH = """\
function __perf_diagnostics
    set -l typed (commandline -opc)
    set -l current (commandline -ct)
    set -l found ($typed[1] completion words $typed[2..-1] "$current" 2>/dev/null)
    if test (count $found) -gt 0
        printf '%s\\n' $found
    else
        __fish_complete_path "$current"
    end
end
complete -c perf-diagnostics -f -k -a '(__perf_diagnostics)'
complete -c perfdiag -f -k -a '(__perf_diagnostics)'
"""

SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


class _Shells(tuple[str, ...]):
    """The shells that are told of; the word by which their scripts ask is understood as well."""

    __slots__ = ()

    def __contains__(self, word: object) -> bool:
        return word == WORDS or super().__contains__(word)


def add(commands: Any) -> None:
    command = commands.add_parser(
        "completion",
        help="print what completes commands in bash, zsh or fish",
        description="Print a script for a shell that completes commands, flags, names of runs and codes of rules.",
        epilog=examples(
            'eval "$(perf-diagnostics completion bash)"                     # in ~/.bashrc',
            'eval "$(perf-diagnostics completion zsh)"                      # in ~/.zshrc, after compinit',
            "perf-diagnostics completion fish | source                    # in ~/.config/fish/config.fish",
        ),
        allow_abbrev=False,
    )
    command.add_argument("shell", metavar="SHELL", choices=_Shells(SCRIPTS), help=f"one of {', '.join(SCRIPTS)}")
    typed = command.add_argument("typed", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    typed.required = False  # which argparse would name beside SHELL, where that is missing
    command.set_defaults(run=functools.partial(run, commands.choices))


def run(parsers: Mapping[str, argparse.ArgumentParser], given: argparse.Namespace) -> int:
    if given.shell != WORDS:
        print(SCRIPTS[given.shell], end="")
        return DONE
    for word in words(parsers, given.typed or [""]):
        print(word)
    return DONE


def words(parsers: Mapping[str, argparse.ArgumentParser], typed: Sequence[str]) -> list[str]:
    """What the last of these words can be completed to, in order; empty where a file or anything else may stand.

    Args:
        parsers: those of the commands, by their names.
        typed: after the program's name; the last one is being typed, and may be empty.
    """
    *before, last = typed
    if not before:
        return _beginning(last, WITHOUT_COMMAND if last.startswith("-") else parsers)
    command = parsers.get(before[0])
    if command is None:
        return []
    taking = _Taking(command, before[1:])
    if taking.action is None or (last.startswith("-") and not taking.must):
        if taking.over or not last.startswith("-"):
            return []
        # Spellings with an underscore are understood, and need not be shown.
        flags = [option for action in command._actions for option in action.option_strings if "_" not in option]
        return _beginning(last, flags)
    return _values(before[0], taking, last)


class _Taking:
    """Which of a command's arguments takes the next word.

    Args:
        command: its parser.
        before: the words after its name.
    """

    def __init__(self, command: argparse.ArgumentParser, before: Iterable[str]) -> None:
        self._flags = {option: action for action in command._actions for option in action.option_strings}
        self._places = [action for action in command._actions if not action.option_strings]
        #: What takes the next word, and whether it has to: after a flag with one value.
        self.action: argparse.Action | None = None
        self.must = False
        #: Whether all that follows is somebody else's: the arguments of a script.
        self.over = False
        self.results_dir = RESULTS_DIR
        for word in before:
            self._next(word)
        if self.action is None and self._places and not self.over:
            self.action = self._places[0]

    def _next(self, word: str) -> None:
        if self.over:
            return
        if not self.must and word in self._flags:
            action = self._flags[word]
            self.action = None if action.nargs == 0 else action
            self.must = action.nargs is None
            self.over = action.nargs == argparse.REMAINDER
        elif self.action is not None:
            if self.action.dest == "results_dir":
                self.results_dir = word
            if self.must or self.action.nargs == "?":
                self.action, self.must = None, False
        elif self._places:
            self.over = self._places[0].nargs == argparse.REMAINDER
            if self._places[0].nargs != "+":
                del self._places[0]


def _values(command: str, taking: _Taking, last: str) -> list[str]:
    """What an argument may be; of a list with commas its last part."""
    action = taking.action
    if action is None:
        return []
    head, comma, part = last.rpartition(",")
    if action.choices is not None:
        known: Iterable[str] = [str(choice) for choice in action.choices]
    elif action.metavar in ("RUN", "BASE", "NEW"):
        from perf_diagnostics.store.find import LATEST, list_runs

        runs = [run.path.name for run in list_runs(Path(taking.results_dir))]
        known = runs if comma or not runs else [*runs, LATEST]
    elif action.metavar == "WORKLOAD":
        from perf_diagnostics.workloads.registry import names

        known = [name for name, _ in names()]
    elif action.metavar == "CODE":
        from perf_diagnostics.diagnose.rule_pages import pages

        known = [rule.code for rule in pages()]
    elif action.metavar == "FORMAT":
        known = _formats(command)
    else:
        return []
    return [f"{head}{comma}{word}" for word in _beginning(part, known)]


def _formats(command: str) -> Iterable[str]:
    if command == "export":
        from perf_diagnostics.cli.export import FORMATS

        return FORMATS
    from perf_diagnostics.cli.report import FORMATS as OF_REPORTS

    return (*OF_REPORTS, "all")


def _beginning(word: str, known: Iterable[str]) -> list[str]:
    return [one for one in known if one.startswith(word)]
