"""Which lines of the user's own code loader workers make their batches at, and which library's functions."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from perf_diagnostics.diagnose.code.code_shares import divided_looks
from perf_diagnostics.diagnose.code.code_ways import Way
from perf_diagnostics.diagnose.code.phase_looks import LEAST_LOOKS, PhaseLooks
from perf_diagnostics.diagnose.code_share import CodeShare
from perf_diagnostics.diagnose.facts.facts import TrialFacts
from perf_diagnostics.records import Phase

#: Lines that a finding names at most.
_MOST_LINES = 3

#: A library's function is named where workers spend this part of their time on batches in it.
_MOST = 0.5

#: Torch's own way to a sample says nothing.
_WAY = "torch.utils.data._utils.fetch."


def worker_shares(facts: TrialFacts, share: float) -> tuple[CodeShare, ...]:
    """The lines that the loader's workers make batches at, the one with most of it first, at most three; empty where
    too little was seen.

    Args:
        facts: of the trial.
        share: of the step, which is divided among the lines as the workers' time on batches is.
    """
    looks = _looks(facts)
    if looks is None:
        return ()
    ways = [Way.of(path, looks.code) for path in looks.paths if path.places]
    found = divided_looks(looks, ways, str(Phase.DATA_WAIT), share, by_function=True)
    return tuple(replace(one, in_workers=True, entry=None, entry_share=None) for one in found[:_MOST_LINES])


def worker_library(facts: TrialFacts) -> tuple[str, float] | None:
    """The innermost function of a library that workers spend most of their time on batches in, with that part of it,
    where they do so outside of any line of the user's own; None where there is none.
    """
    looks = _looks(facts)
    if looks is None:
        return None
    seconds: dict[str, float] = defaultdict(float)
    depths: dict[str, int] = {}
    for path in looks.paths:
        if path.late:
            continue  # it may have been at work outside of it until a moment before
        calls = [] if path.places else [name for name in path.calls if not name.startswith(_WAY)]
        for depth, name in enumerate(dict.fromkeys(calls)):
            seconds[name] += looks.code.seconds(path)
            depths[name] = max(depth, depths.get(name, 0))
    most = [name for name, took in seconds.items() if took >= _MOST * looks.whole_s]
    if not most:
        return None
    inner = max(most, key=lambda name: (depths[name], seconds[name]))
    return inner, seconds[inner] / looks.whole_s


def _looks(facts: TrialFacts) -> PhaseLooks | None:
    code = facts.result.worker_code
    return None if code is None or code.looks < LEAST_LOOKS else PhaseLooks(code, code.paths)
