"""What ``confirm --rerun`` can try of the advice about a script of the user's own, and how the script is run for it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from perf_diagnostics.cli.launchers import in_between
from perf_diagnostics.diagnose.rule_parts.experiments import Candidate, LeftOut
from perf_diagnostics.errors import InvalidSettings
from perf_diagnostics.integrations.again.forcible import steps_until_effect, why_not_forced
from perf_diagnostics.integrations.again.script_again import ScriptAgain
from perf_diagnostics.records import Run, StepTable
from perf_diagnostics.trials.confirm.confirm_order import not_tried
from perf_diagnostics.trials.confirm.pairs import LEAST_STEPS, length_for

#: A script imports what it needs, and makes its data, before its first step; nobody has timed that yet.
_BEFORE_FIRST_STEP_S = 5.0

#: A script is ended before it comes to its own end, where it would save what it has trained.
_OF_ITS_STEPS = 0.8


@dataclass(frozen=True)
class ScriptToTry:
    """A script, what of the advice about it can be tried, what cannot, and for how many steps it is run each time."""

    launch: ScriptAgain
    possible: tuple[Candidate, ...]
    refused: tuple[LeftOut, ...]
    steps: int

    @classmethod
    def of(cls, words: Sequence[str], run: Run, wanted: Sequence[Candidate], steps: int | None = None) -> ScriptToTry:
        """The script with what its run has found.

        Args:
            words: the script and its arguments, or ``-m``, a module and its arguments.
            run: what was measured.
            wanted: what of its diagnosis is worth trying.
            steps: that are wanted of each trial; None: about five seconds of them.

        Raises:
            InvalidSettings: no script is named, or there is none of this name; the run is no script's, has several
                ranks, or too few steps to do without its end.
        """
        _check_words(words)
        if not run.of_own_training:
            raise InvalidSettings(
                f"{run.name} was measured by a sweep, which needs no script to be run again: leave --rerun out."
            )
        base = wanted[0].base
        if base.options.get("ranks"):
            raise InvalidSettings(
                f"{run.name} has {base.options['ranks']} ranks, which one process cannot run again. Start them several "
                "times before a change and after it, and compare: "
                "perf-diagnostics compare before-1,before-2,before-3 after-1,after-2,after-3."
            )
        possible = tuple(
            dataclasses.replace(one, start_s=one.start_s + _BEFORE_FIRST_STEP_S)
            for one in wanted
            if not why_not_forced(one.change)
        )
        before = max((steps_until_effect(one.change) for one in possible), default=0)
        table = run.results[0].steps[0] if run.results and run.results[0].steps else StepTable.empty()
        most = int(_OF_ITS_STEPS * len(table.steady)) - before
        if most < (steps or LEAST_STEPS):
            raise InvalidSettings(
                f"{run.name} has {len(table.steady)} measured steps. To try something takes {steps or LEAST_STEPS} of "
                f"them, {before} before a change is in full effect, and the last fifth is left, so that the script "
                "does not come to its end. Train for longer, or try less (--only CODE)."
            )
        return cls(
            launch=ScriptAgain(words, base.settings),
            possible=possible,
            refused=tuple(not_tried(one, why) for one in wanted if (why := why_not_forced(one.change))),
            steps=min(most, length_for(wanted[0].step_s, steps=steps).max_steps),
        )


def _check_words(words: Sequence[str]) -> None:
    as_module = words[:1] == ["-m"]
    named = words[1:] if as_module else words
    if not named:
        raise InvalidSettings("name the script after --rerun, with its arguments: --rerun train.py --lr 0.1")
    if wrong := in_between(named, as_module=as_module):
        raise InvalidSettings(wrong)
    if not as_module and not Path(named[0]).exists():
        raise InvalidSettings(
            f"there is no script {named[0]!r} here; call confirm from the folder from which it was run before."
        )
