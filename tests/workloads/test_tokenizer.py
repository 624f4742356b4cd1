"""The lexicon and the WordPiece tokenizer over it: shaped like SST-2's words under BERT's vocabulary."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import numpy as np
import pytest

from perf_diagnostics.workloads.lexicon import LEXICON_WORDS, PUNCTUATION, lexicon, word_chances
from perf_diagnostics.workloads.tokenizer import (
    CONTINUATIONS,
    SPECIAL,
    VOCABULARY_SIZE,
    built_in_tokenizer,
    vocabulary,
    whole_words,
)


@pytest.fixture(scope="module")
def pieces() -> list[int]:
    """How many pieces each word of the lexicon has."""
    encoded = built_in_tokenizer()(list(lexicon()), add_special_tokens=False)
    return [len(ids) for ids in encoded["input_ids"]]


def test_words_are_all_different_and_plain() -> None:
    words = lexicon()
    assert len(set(words)) == len(words) == LEXICON_WORDS
    assert all(w.isascii() and w.isalpha() and w.islower() for w in words if w not in PUNCTUATION.values())
    assert [words[rank] for rank in PUNCTUATION] == [",", "."]


def test_words_are_the_same_on_every_machine() -> None:
    # Any change here changes every token count ever recorded: a new version of the workload, not a refactoring.
    assert lexicon()[:8] == ("la", ",", "li", "bin", "e", ".", "ung", "be")
    assert hashlib.sha256("\n".join(vocabulary()).encode()).hexdigest()[:16] == "4d87e6e97879008f"


def test_frequencies_follow_those_counted_on_sst2() -> None:
    shares = np.cumsum(word_chances())
    assert shares[-1] == pytest.approx(1.0)
    counted = {1: 0.043, 10: 0.257, 100: 0.490, 1_000: 0.733, 6_000: 0.925}
    for rank, share in counted.items():
        assert shares[rank - 1] == pytest.approx(share, abs=0.02)


def test_frequent_words_are_shorter_and_text_has_the_letters_of_sst2() -> None:
    letters = np.array([len(word) for word in lexicon()])
    assert float(letters @ word_chances()) == pytest.approx(4.69, abs=0.2)
    by_rank = [letters[a:b].mean() for a, b in ((0, 100), (100, 1_000), (1_000, 3_000), (3_000, LEXICON_WORDS))]
    assert by_rank == sorted(by_rank)


def test_the_vocabulary_is_laid_out_like_berts() -> None:
    entries = vocabulary()
    assert len(set(entries)) == len(entries) == VOCABULARY_SIZE == 30_522
    assert {token: entries.index(token) for token in SPECIAL} == SPECIAL
    assert sum(entry.startswith("##") for entry in entries) == CONTINUATIONS
    assert len(built_in_tokenizer()) == VOCABULARY_SIZE


def test_pieces_a_word_are_those_of_sst2_under_berts_vocabulary(pieces) -> None:
    chances = word_chances()
    assert float(np.array(pieces) @ chances) == pytest.approx(1.203, abs=0.03)
    assert float(chances[np.array(pieces) == 1].sum()) == pytest.approx(0.874, abs=0.02)


def test_frequent_words_stay_whole_and_rare_ones_split(pieces) -> None:
    assert set(pieces[:10]) == {1}
    rare = np.array(pieces[10_000:])
    assert 0.5 < (rare > 1).mean() < 0.7  # 40 % of the rare words have an entry of their own
    assert rare.max() <= 8


def test_a_whole_word_has_one_piece_and_any_other_several(pieces) -> None:
    whole = set(whole_words())
    assert all((count == 1) == (word in whole) for word, count in zip(lexicon(), pieces, strict=True))


def test_every_word_survives_the_round_trip() -> None:
    tokenizer = built_in_tokenizer()
    text = " ".join(lexicon()[:4_000])
    ids = tokenizer(text, add_special_tokens=False, truncation=False, max_length=None)["input_ids"]
    assert SPECIAL["[UNK]"] not in ids
    assert len(ids) > 4_000
    assert tokenizer.decode(ids) == text


def test_a_sentence_stands_between_cls_and_sep_in_lower_case() -> None:
    tokenizer = built_in_tokenizer()
    ids = tokenizer("LA , bir")["input_ids"]
    assert tokenizer.convert_ids_to_tokens(ids) == ["[CLS]", "la", ",", "bir", "[SEP]"]


def test_what_no_entry_can_spell_is_unknown() -> None:
    assert built_in_tokenizer()("la 漢 bir", add_special_tokens=False)["input_ids"][1] == SPECIAL["[UNK]"]


@pytest.mark.parametrize(("before", "after"), [(None, "false"), ("true", "true")])
def test_the_library_is_kept_to_one_thread_unless_told_otherwise(before: str | None, after: str) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "TOKENIZERS_PARALLELISM"}
    environment |= {} if before is None else {"TOKENIZERS_PARALLELISM": before}
    program = (
        "import os; from perf_diagnostics.workloads.tokenizer import calm_tokenizers;"
        "calm_tokenizers(); print(os.environ['TOKENIZERS_PARALLELISM'])"
    )
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == after
