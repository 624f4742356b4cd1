"""Generated sentences have the shape of SST-2; the real data set is read through its library."""

from __future__ import annotations

import sys
import types

import numpy as np
import pytest

from perf_diagnostics.errors import WorkloadError
from perf_diagnostics.workloads.sentences import (
    SST2_LENGTHS,
    SST2_POSITIVE,
    SST2_SENTENCES,
    generated_sentences,
    glue_sst2,
)


@pytest.fixture(scope="module")
def epoch():
    return generated_sentences(0)


def test_the_counted_lengths_are_those_of_sst2() -> None:
    lengths = np.arange(1, 53)
    counts = np.array(SST2_LENGTHS)
    assert counts.sum() == SST2_SENTENCES == 67_349
    assert float(lengths @ counts) / SST2_SENTENCES == pytest.approx(9.41, abs=0.005)  # 633,724 words
    assert int(lengths @ counts) == 633_724


def test_generated_lengths_follow_them(epoch) -> None:
    words = np.array([len(text.split()) for text in epoch.texts])
    # The standard error of the mean is 8.07 / sqrt(67,349) = 0.031 words: four of them are 0.125.
    assert words.mean() == pytest.approx(9.41, abs=0.125)
    assert np.median(words) == 7
    assert (words.min(), words.max()) == (1, 52)
    shares = np.bincount(words, minlength=53)[1:] / SST2_SENTENCES
    assert np.abs(shares - np.array(SST2_LENGTHS) / SST2_SENTENCES).max() < 0.005


def test_sentences_are_as_many_and_as_long_in_letters_as_the_real_ones(epoch) -> None:
    assert len(epoch) == SST2_SENTENCES
    letters = np.array([len(text) for text in epoch.texts])
    assert letters.mean() == pytest.approx(52.5, rel=0.05)
    assert len({word for text in epoch.texts for word in text.split()}) == pytest.approx(14_817, rel=0.02)


def test_labels_are_as_balanced_as_the_real_ones(epoch) -> None:
    assert set(epoch.labels) == {0, 1}
    # Four standard errors: 4 * sqrt(0.558 * 0.442 / 67,349) = 0.0077.
    assert np.mean(epoch.labels) == pytest.approx(SST2_POSITIVE, abs=0.0077)


def test_an_item_is_raw_text_and_its_label(epoch) -> None:
    assert epoch[5] == (epoch.texts[5], epoch.labels[5])
    assert isinstance(epoch[5][0], str)


def test_sentences_follow_from_the_seed() -> None:
    first, same, other = (generated_sentences(seed, count=50) for seed in (1, 1, 2))
    assert first == same
    assert first.texts != other.texts
    assert len(first) == 50


def test_without_the_library_the_command_that_installs_it_is_told(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(WorkloadError, match=r"pip install 'datasets>=3'"):
        glue_sst2()


def library(load) -> types.ModuleType:
    module = types.ModuleType("datasets")
    module.load_dataset = load
    return module


def test_the_real_data_set_is_asked_for_by_its_name(monkeypatch) -> None:
    asked = []

    def load(*names, split):
        asked.append((*names, split))
        return {"sentence": ["good .", "bad ."], "label": [1, 0]}

    monkeypatch.setitem(sys.modules, "datasets", library(load))
    sentences = glue_sst2()
    assert asked == [("nyu-mll/glue", "sst2", "train")]
    assert [sentences[i] for i in range(2)] == [("good .", 1), ("bad .", 0)]
    assert sentences.name == "glue/sst2"


def test_a_hub_out_of_reach_is_told_with_the_way_around(monkeypatch) -> None:
    def load(*names, split):
        raise ConnectionError("Couldn't reach the hub.")

    monkeypatch.setitem(sys.modules, "datasets", library(load))
    with pytest.raises(
        WorkloadError, match=r"cannot be loaded: Couldn't reach the hub\. Check the network, or .* local"
    ):
        glue_sst2()
