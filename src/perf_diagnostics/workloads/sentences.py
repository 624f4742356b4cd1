"""Labelled sentences: generated ones shaped like GLUE SST-2, the real data set, or a local file with the same columns.

The generated ones imitate the 67,349 training sentences of GLUE SST-2 in what costs time: how many there are, how
many words each has (mean 9.41, median 7, most 52; drawn from the counted frequencies below), how often words recur
(see :mod:`~perf_diagnostics.workloads.lexicon`), how long words are, into how many pieces they split, and the share
of positive labels. They mean nothing, and their labels are drawn at random: a loss on them says nothing about quality.

Held against the real sentences under distilbert-base-uncased's vocabulary, shuffled into batches of 32 and padded to
the longest: 13.0 tokens a sentence (real: 13.4), 67.1 % of all positions padding (real: 66.9 %).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Dataset

from perf_diagnostics.errors import WorkloadError
from perf_diagnostics.records import Float64
from perf_diagnostics.workloads.lexicon import lexicon, word_chances
from perf_diagnostics.workloads.loaders import random_numbers

SST2_SENTENCES = 67_349
#: 37,569 of the 67,349 training sentences are positive.
SST2_POSITIVE = 37_569 / SST2_SENTENCES
#: How many training sentences of GLUE SST-2 have 1, 2, … 52 words (counted from its train.tsv, split at blanks).
SST2_LENGTHS = (
    *(4270, 7241, 7031, 5511, 4578, 4019, 3594, 3092, 2861, 2564, 2230, 2051, 1830, 1748, 1560, 1388, 1265, 1182),
    *(1040, 922, 860, 820, 741, 654, 572, 505, 460, 416, 335, 297, 281, 253, 226, 166, 152, 108, 90, 91, 60, 55),
    *(53, 34, 30, 24, 27, 17, 9, 11, 9, 7, 6, 3),
)


@dataclass(frozen=True)
class Sentences(Dataset[tuple[str, int]]):
    """Raw text and labels; item ``i`` is the pair ``(text, label)``. Tokenising is left to who reads it."""

    name: str
    texts: Sequence[str]
    labels: Sequence[int]

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, index: int) -> tuple[str, int]:
        return self.texts[index], self.labels[index]


def generated_sentences(seed: int, *, count: int = SST2_SENTENCES) -> Sentences:
    """``count`` sentences that follow from ``seed``; the whole of SST-2's size takes about 0.2 s on one core.

    They are made ahead, so that reading one costs what reading a stored sentence costs.
    """
    numbers = random_numbers(seed, "sentences")
    lengths = _drawn(np.array(SST2_LENGTHS) / SST2_SENTENCES, numbers.random(count)) + 1
    words = np.array(lexicon(), dtype=object)[_drawn(word_chances(), numbers.random(int(lengths.sum())))].tolist()
    ends = np.cumsum(lengths).tolist()
    texts = [" ".join(words[end - length : end]) for end, length in zip(ends, lengths.tolist(), strict=True)]
    labels = (numbers.random(count) < SST2_POSITIVE).astype(int).tolist()
    return Sentences("synthetic SST-2", texts, labels)


def glue_sst2() -> Sentences:
    """The training split of GLUE SST-2 through the ``datasets`` library, downloaded once and cached by it.

    Raises:
        WorkloadError: The library is missing, or the data set is neither cached nor reachable.
    """
    try:
        import datasets
    except ImportError as error:
        raise WorkloadError(
            "dataset='glue/sst2' needs the library 'datasets', which is not installed. Install it with: "
            "pip install 'datasets>=3' - or give dataset= a local file with columns sentence and label."
        ) from error
    try:
        table = datasets.load_dataset("nyu-mll/glue", "sst2", split="train")
    except (OSError, RuntimeError, ValueError) as error:
        raise WorkloadError(
            f"GLUE SST-2 cannot be loaded: {str(error).rstrip('.')}. Check the network, or give dataset= a local file "
            "with columns sentence and label."
        ) from error
    return Sentences("glue/sst2", list(table["sentence"]), [int(label) for label in table["label"]])


def _drawn(chances: Float64, uniform: Float64) -> NDArray[np.intp]:
    """Index drawn with each uniform number, by inverting the cumulative chances; the last one takes rounding's rest."""
    return np.minimum(np.searchsorted(np.cumsum(chances), uniform, side="right"), len(chances) - 1)
