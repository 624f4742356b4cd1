"""The framework whose loop a training ran in, as far as its record tells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from perf_diagnostics.records import Json, Run, TrialResult

#: One library under two names.
_SAME = {"pytorch_lightning": "lightning"}


@dataclass(frozen=True, kw_only=True)
class Framework:
    """A framework by name (empty: the loop is the user's own, or the record does not say) and what was told to it.

    ``arguments`` are those it has and what they were set to, ``owner`` the class that takes them. ``measured`` is what
    our settings of these names were in fact: an argument that was set to something else does not decide them.
    """

    name: str = ""
    owner: str = ""
    arguments: Mapping[str, Json] = field(default_factory=dict)
    measured: Mapping[str, Json] = field(default_factory=dict)

    def decides(self, setting: str, argument: str) -> bool:
        """Whether an argument is there, and what it was set to is what was measured, where that was."""
        if argument not in self.arguments:
            return False
        measured = self.measured.get(setting)
        return measured is None or self.arguments[argument] == measured


def framework_of(run: Run) -> Framework:
    """The framework of a run's trainings; no arguments where an older record does not hold them."""
    return next((_framework_of(result) for result in run.results if result.facts.get("framework")), Framework())


def _framework_of(result: TrialResult) -> Framework:
    name = str(result.facts["framework"]).partition(" ")[0]
    arguments = result.facts.get("framework_arguments")
    settings = result.trial.settings
    return Framework(
        name=_SAME.get(name, name),
        owner=str(result.facts.get("framework_arguments_of") or ""),
        arguments=arguments if isinstance(arguments, dict) else {},
        measured={
            "batch_size": settings.batch_size,
            "accumulation_steps": settings.accumulation_steps or 1,
            "num_workers": result.facts.get("num_workers"),
        },
    )
