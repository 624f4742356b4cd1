"""Gains that the loader's workers leave no room for: while they set the pace, a shorter rest of the step only waits."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from perf_diagnostics.diagnose.asking import Placed
from perf_diagnostics.diagnose.facts.facts import SweepFacts, TrialFacts, ask
from perf_diagnostics.diagnose.finding import Family, Finding, Severity, Share
from perf_diagnostics.diagnose.loaders.loading_cost import exposed_wait_ns
from perf_diagnostics.records import Phase

_INPUT_BOUND = "INP001"

#: A wait of this part of a step is one: the loader was not ready.
_WAITED = 0.02

#: What a step would win by these does not wait for the loader: they make it faster as well, or promise no time.
_NOT_HELD_UP = (Family.INPUT, Family.PROCESSOR, Family.MEMORY, Family.EXPERIMENT)

#: A finding whose seconds lie that much in the wait for data is about the loader itself.
_ABOUT_LOADING = 0.5


def capped_by_loader(placed: Sequence[Placed], sweep: SweepFacts) -> tuple[Placed, ...]:
    """The findings, with predicted gains that the loader leaves no room for taken back.

    Workers make batches beside the step. In a step that waits for one, the loader sets the pace, and what the rest of
    the step saves is waited for instead: a predicted gain is left only for the part of the steps that did not wait. On
    the CPU what the rest saves may be time on cores that the workers need; there only its lower end falls.

    Applies where the wait for data is a fault of its own (INP001), and a trial's loader has workers.
    """
    waiting = {
        item.group: share
        for item in placed
        if item.finding.code == _INPUT_BOUND and item.finding.severity is not Severity.INFO and item.at_recommended
        if (share := _waiting_at_recommended(sweep, item.group)) is not None
    }
    return tuple(
        dataclasses.replace(item, finding=_capped(item.finding, *waiting[item.group]))
        if item.group in waiting and _held_up(item.finding)
        else item
        for item in placed
    )


def _waiting_at_recommended(sweep: SweepFacts, label: str | None) -> tuple[float, bool] | None:
    """The part of the steps that waited for workers, and whether these share the cores with the training."""
    group = next((group for group in sweep.groups if group.label == label and group.points), None)
    facts = None if group is None else group.recommended.trials[0]
    share = None if facts is None else ask(waiting_for_workers, facts)
    return None if facts is None or not share else (share, not facts.on_accelerator)


def waiting_for_workers(facts: TrialFacts) -> float:
    """The part of the steady steps that waited for a batch of the loader's workers; 0 without workers."""
    if not facts.number("num_workers"):
        return 0.0
    waits = exposed_wait_ns(facts)
    return float(np.mean(waits > _WAITED * float(np.median(facts.column("wall_ns")))))


def _held_up(finding: Finding) -> bool:
    if finding.recoverable is None or finding.recoverable.measured or finding.family in _NOT_HELD_UP:
        return False
    all_claims = sum(finding.claims.values())
    return finding.claims.get(str(Phase.DATA_WAIT), 0.0) <= _ABOUT_LOADING * all_claims or not all_claims


def _capped(finding: Finding, waiting: float, on_shared_cores: bool) -> Finding:
    gain = finding.recoverable
    assert gain is not None
    left = 1.0 - waiting
    most = gain.high if on_shared_cores else left * gain.high
    return dataclasses.replace(
        finding,
        recoverable=Share(min(left * gain.value, most), left * gain.low, most),
        summary=f"{finding.summary} While the loader does not keep up, a shorter step mostly waits for it instead.",
    )
