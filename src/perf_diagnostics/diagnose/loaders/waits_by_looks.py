"""What the loop does inside of its wait for data, without workers: by what it was seen to call there.

A pass over the data is begun (the iterator is made, the sampler draws its order), samples are fetched one by one and
stacked by torch's own code, or the user's data set is at work. The looks divide the measured wait among these.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from perf_diagnostics.diagnose.code.code_ways import OURS
from perf_diagnostics.diagnose.code.phase_looks import PhaseLooks
from perf_diagnostics.diagnose.facts.facts import Interval, TrialFacts
from perf_diagnostics.records import CodePath, Phase

#: A data set's own functions are run by these; whose they are the names inside of them tell.
_LOADER = "torch.utils.data."

#: From this part of the wait on it is most of it.
_MOST_OF_IT = 0.5

#: An iterator is made, or its sampler asked. A sampler's first answer is what its order costs.
_BEGINS = re.compile(
    r"torch\.utils\.data\.(?:dataloader\.(?:DataLoader\.__iter__|_\w*Iter\.__init__|_\w*Iter\._next_index)|sampler\.)"
)


@dataclass(frozen=True)
class LoaderLooks:
    """Parts of the wait for data, in 0…1: ``begins`` a pass, and ``gathers`` samples in torch's own Python."""

    begins: Interval
    gathers: Interval

    @property
    def gathers_most(self) -> bool:
        """Whether most of the wait is torch's own Python, which fetches and stacks sample by sample."""
        return self.gathers.value >= _MOST_OF_IT


def loader_looks(facts: TrialFacts) -> LoaderLooks | None:
    """What was seen in the wait; None where nobody looked, or too little, or workers make the batches."""
    looks = PhaseLooks.of(facts, Phase.DATA_WAIT)
    if looks is None or facts.result.facts.get("num_workers"):
        return None
    begins = [path for path in looks.paths if _begins(path)]
    gathers = [path for path in looks.paths if path not in begins and _gathers(path)]
    return LoaderLooks(*(looks.proportion(looks.seconds(chosen)) for chosen in (begins, gathers)))


def _begins(path: CodePath) -> bool:
    return any(_BEGINS.match(name) for name in (*path.via, *path.calls))


def _gathers(path: CodePath) -> bool:
    """Whether torch's own loader is at work, and nothing that it has called: no user's line, no other library."""
    if path.calls == OURS or any(name.startswith(_LOADER) for name in path.via):
        return False
    return bool(path.calls) and path.calls[-1].startswith(_LOADER)
