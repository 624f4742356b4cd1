"""What ``confirm --rerun`` can try of the advice about a script of the user's own, and how the script is run for it."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from perf_diagnostics.cli.launchers import in_between, starts_ranks
from perf_diagnostics.cli.own_name import typed
from perf_diagnostics.diagnose.rule_parts.experiments import Candidate, LeftOut
from perf_diagnostics.errors import InvalidSettings
from perf_diagnostics.integrations.again.forcible import forced_on, steps_until_effect, why_not_forced
from perf_diagnostics.integrations.again.script_again import ScriptAgain
from perf_diagnostics.integrations.ranks.ranks import world_size
from perf_diagnostics.records import Json, Run, StepTable
from perf_diagnostics.trials.confirm.confirm_order import not_tried
from perf_diagnostics.trials.confirm.pairs import LEAST_STEPS, length_for

#: A script imports what it needs, and makes its data, before its first step; nobody has timed that yet.
_BEFORE_FIRST_STEP_S = 5.0

#: A script is ended before it comes to its own end, where it would save what it has trained.
_OF_ITS_STEPS = 0.8

_NO_RANKS = (
    "--rerun starts one process, which cannot run them again. Start them several times before a change and after it, "
    "and compare: perf-diagnostics compare before-1,before-2,before-3 after-1,after-2,after-3. What confirm would try "
    "is put in by --with: torchrun OPTIONS -m perf_diagnostics run --with num_workers=4 --name after-1 train.py."
)

_OURS_IN_FRONT = "What is for confirm itself comes before --rerun"


@dataclass(frozen=True)
class ScriptToTry:
    """A script, what of the advice about it can be tried, what cannot, and for how many steps it is run each time.

    ``spare_steps`` are those that are left then for a longer warm-up.
    """

    launch: ScriptAgain
    possible: tuple[Candidate, ...]
    refused: tuple[LeftOut, ...]
    steps: int
    spare_steps: int

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
            raise InvalidSettings(f"{run.name} has {base.options['ranks']} ranks. {_NO_RANKS}")
        table = run.results[0].steps[0] if run.results and run.results[0].steps else StepTable.empty()
        possible = tuple(
            dataclasses.replace(one, start_s=one.start_s + _BEFORE_FIRST_STEP_S)
            for one in wanted
            if not _why_not(one.change, table)
        )
        before = max((steps_until_effect(one.change) for one in possible), default=0)
        most = int(_OF_ITS_STEPS * len(table.steady)) - before
        if most < (steps or LEAST_STEPS):
            raise InvalidSettings(
                f"{run.name} has {len(table.steady)} measured steps. To try something takes {steps or LEAST_STEPS} of "
                f"them, {before} before a change is in full effect, and the last fifth is left, so that the script "
                "does not come to its end. Train for longer, or try less (--only CODE)."
            )
        steps = min(most, length_for(wanted[0].step_s, steps=steps).max_steps)
        return cls(
            launch=ScriptAgain(words, base.settings, forced_on(run)),
            possible=possible,
            refused=tuple(not_tried(one, why) for one in wanted if (why := _why_not(one.change, table))),
            steps=steps,
            spare_steps=most - steps,
        )


def _why_not(change: Mapping[str, Json], steps: StepTable) -> str:
    """Why a change is not forced on a script with these steps; empty where it can be."""
    graphs = steps.get("graphs")
    if change.get("compile_mode") is not None and graphs is not None and graphs.any():
        return "the script compiles by itself (torch.compile): what is left to compile is for you to see"
    return why_not_forced(change)


def given_to_the_script(words: Sequence[str], flags: Collection[str]) -> str:
    """What to say where flags of ours stand behind ``--rerun``; empty where none does.

    Args:
        words: what stands there: the script and its arguments.
        flags: ours. A script may have some of the same name, which is why they are only told.

    Raises:
        InvalidSettings: a flag stands where the script should, or ``--dry-run`` behind it; or this process is one of
            several ranks.
    """
    if words and world_size() > 1:
        raise InvalidSettings(
            f"confirm was started as one of {world_size()} ranks (torchrun, srun): start it alone. {_NO_RANKS}"
        )
    if words and words[0].startswith("-") and words[0] != "-m":
        raise InvalidSettings(
            f"{words[0]} stands behind --rerun, where the script comes first. {_OURS_IN_FRONT}: "
            f"{typed('confirm', 'RUN', words[0], '...', '--rerun', 'train.py', '--lr', '0.1')}"
        )
    if "--dry-run" in words:
        raise InvalidSettings(
            "--dry-run stands behind --rerun, where it would be the script's, and what is tried would be run. "
            f"{_OURS_IN_FRONT}: {typed('confirm', 'RUN', '--dry-run', '--rerun', *words[: words.index('--dry-run')])}"
        )
    ours = [word for word in words if word.partition("=")[0] in flags]
    return f"{', '.join(ours)}: given to the script, for it stands behind it. {_OURS_IN_FRONT}." if ours else ""


def _check_words(words: Sequence[str]) -> None:
    as_module = words[:1] == ["-m"]
    named = words[1:] if as_module else words
    if not named:
        raise InvalidSettings("name the script after --rerun, with its arguments: --rerun train.py --lr 0.1")
    if starts_ranks(named[0], as_module=as_module):
        raise InvalidSettings(f"{named[0]} starts several ranks. {_NO_RANKS}")
    if in_between(named, as_module=as_module):
        raise InvalidSettings(f"{named[0]} is left out: --rerun {shlex.join(named[1:])}".rstrip())
    if not as_module and not Path(named[0]).exists():
        raise InvalidSettings(
            f"there is no script {named[0]!r} here; call confirm from the folder from which it was run before."
        )
