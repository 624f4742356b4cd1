"""A lexicon of pronounceable pseudo-English, most frequent word first, shaped like the words of SST-2.

No word list is shipped: the words are put together from syllables, the same ones on every machine. What is
imitated, counted on the 67,349 training sentences of GLUE SST-2 (633,724 words, split at blanks):

====================  =======================================================================
different words       14,817
share of all words    first 1: 4.3 %, 10: 25.7 %, 100: 49.0 %, 1,000: 73.3 %, 6,000: 92.5 %
letters a word        4.7 in running text; by rank 2.1 (to 10), 3.5 (to 100), 6.1 (to 1,000), 7.1
                      (to 3,000), 7.7 (to 6,000), 8.1 beyond
====================  =======================================================================

The shares follow a Zipf-Mandelbrot law, 1 / (rank + q) ** s; s and q are a least-squares fit to the cumulative
shares at ten ranks (largest residual 1.6 points).
"""

from __future__ import annotations

import bisect
import functools
import itertools
import random
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from perf_diagnostics.records import Float64

LEXICON_WORDS = 14_817
ZIPF_EXPONENT = 1.042
ZIPF_OFFSET = 1.284

#: Punctuation stands as a word of its own in SST-2; these two marks are its 2nd and 6th most frequent words.
PUNCTUATION = {1: ",", 5: "."}

# A letter or cluster that stands several times is drawn that much more often.
_ONSETS = (
    *"bcdfghjklmnprstvwz",
    *"bcdfhlmnprst" * 2,
    *("bl", "br", "ch", "cl", "cr", "dr", "fl", "fr", "gl", "gr", "pl", "pr", "sh", "sl", "sp", "st", "th", "tr"),
)
_NUCLEI = (*"aeiou", *"aeio" * 2, "ai", "ea", "ou")
_CODAS = (*[""] * 10, *"nnrrlssd", "ng", "st", "rn")
#: From this rank on: the chance of 0, of at most 1, of at most 2 … syllables; a word of 0 syllables has no onset.
_SYLLABLES_BY_RANK: tuple[tuple[int, tuple[float, ...]], ...] = (
    (0, (0.4, 1.0)),
    (10, (0.1, 0.92, 1.0)),
    (100, (0.0, 0.2, 0.98, 1.0)),
    (1_000, (0.0, 0.03, 0.80, 1.0)),
    (3_000, (0.0, 0.01, 0.60, 1.0)),
    (6_000, (0.0, 0.01, 0.50, 0.98, 1.0)),
)
_SEED = 67_349


@functools.cache
def lexicon() -> tuple[str, ...]:
    """The words that occur in sentences, most frequent first; all different, lower case ASCII."""
    return tuple(itertools.islice(_words(), LEXICON_WORDS))


def other_words() -> Iterator[str]:
    """Further words of the same kind, without end, that are not in the lexicon and occur in no sentence."""
    return itertools.islice(_words(), LEXICON_WORDS, None)


@functools.cache
def syllables() -> tuple[str, ...]:
    """Every syllable words are made of, in a fixed order."""
    made = (onset + nucleus + coda for coda in _CODAS for nucleus in _NUCLEI for onset in _ONSETS)
    return tuple(dict.fromkeys(made))


@functools.cache
def word_chances() -> Float64:
    """How often each word of the lexicon is drawn, shape ``(LEXICON_WORDS,)``, summing to 1."""
    weights = 1.0 / (np.arange(1, LEXICON_WORDS + 1) + ZIPF_OFFSET) ** ZIPF_EXPONENT
    chances: Float64 = weights / weights.sum()
    return chances


def _words() -> Iterator[str]:
    draw = random.Random(_SEED).random  # noqa: S311 - words, not secrets; random() is the same on every version
    seen: set[str] = set()
    bands = dict(_SYLLABLES_BY_RANK)
    chances = bands[0]
    while True:
        rank = len(seen)
        chances = bands.get(rank, chances)
        word = PUNCTUATION.get(rank) or _word(draw, chances)
        if word not in seen:
            seen.add(word)
            yield word


def _word(draw: Callable[[], float], chances: Sequence[float]) -> str:
    count = bisect.bisect_right(chances, draw())
    parts = [] if count else [_pick(_NUCLEI, draw), _pick(_CODAS, draw)]
    for _ in range(count):
        parts += (_pick(_ONSETS, draw), _pick(_NUCLEI, draw), _pick(_CODAS, draw))
    return "".join(parts)


def _pick(among: Sequence[str], draw: Callable[[], float]) -> str:
    return among[int(draw() * len(among))]
