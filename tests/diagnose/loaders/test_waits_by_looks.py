"""What a loop without workers was seen to do in its wait for data."""

from __future__ import annotations

import dataclasses

import pytest

from perf_diagnostics.diagnose.facts.facts import TrialFacts
from perf_diagnostics.diagnose.loaders.waits_by_looks import loader_looks
from perf_diagnostics.records import CodePath, CodePlace, CodeSamples
from perf_diagnostics.testing import trial_of

LOADER = "torch.utils.data.dataloader."
NEXT = (f"{LOADER}_BaseDataLoaderIter.__next__", f"{LOADER}_SingleProcessDataLoaderIter._next_data")
FETCH = (*NEXT, "torch.utils.data._utils.fetch._MapDatasetFetcher.fetch")
STACKS = (*FETCH, "torch.utils.data._utils.collate.collate_tensor_fn")
DRAWS = (*NEXT, f"{LOADER}_BaseDataLoaderIter._next_index", "torch.utils.data.sampler.RandomSampler.__iter__")
PLACES = (
    CodePlace(file="train.py", line=5, function="main"),
    CodePlace(file="data.py", line=9, function="Data.__getitem__"),
)


def look(looks: int, *calls: str, via: tuple[str, ...] = ()) -> CodePath:
    """So many looks at the loop's line, or at the data set's that the loader has called."""
    return CodePath(phase="data_wait", places=(0, 1) if via else (0,), looks=looks, calls=calls, via=via)


def facts(*paths: CodePath, workers: int = 0) -> TrialFacts:
    code = CodeSamples(places=PLACES, paths=paths, interval_s=0.025, rare_interval_s=0.1, cpu_s=0.0)
    trial = trial_of(data_wait=0.4, forward=0.6, facts={"num_workers": workers})
    return TrialFacts.of(dataclasses.replace(trial, code=code))


def test_the_wait_is_divided_among_beginning_gathering_and_the_users_data_set() -> None:
    found = loader_looks(facts(look(50, *STACKS), look(30, *DRAWS), look(20, via=FETCH)))
    assert found is not None
    assert (found.gathers.value, found.begins.value) == (pytest.approx(0.5), pytest.approx(0.3))
    assert found.gathers.low is not None and 0.40 < found.gathers.low < 0.42  # Wilson's interval of 50 of 100


@pytest.mark.parametrize(
    "path",
    [
        look(100, "PIL.Image.Image.resize", via=FETCH),  # what the user's data set calls
        look(100, *FETCH, "torchvision.datasets.folder.pil_loader"),  # what a library's does
        look(100, "perf_diagnostics"),
        look(100),
    ],
)
def test_what_others_do_is_no_gathering(path: CodePath) -> None:
    found = loader_looks(facts(path))
    assert found is not None and found.gathers.value == 0.0 == found.begins.value


def test_making_an_iterator_begins_a_pass_and_so_does_a_sampler_of_ones_own() -> None:
    made = look(60, f"{LOADER}DataLoader.__iter__", f"{LOADER}_SingleProcessDataLoaderIter.__init__")
    own = look(40, via=(*NEXT, f"{LOADER}_BaseDataLoaderIter._next_index"))
    found = loader_looks(facts(made, own))
    assert found is not None and found.begins.value == 1.0


def test_of_workers_and_of_few_looks_nothing_is_told() -> None:
    assert loader_looks(facts(look(100, *STACKS), workers=2)) is None
    assert loader_looks(facts(look(19, *STACKS))) is None
    assert loader_looks(TrialFacts.of(trial_of(data_wait=0.4, forward=0.6))) is None
