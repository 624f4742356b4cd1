"""A real WordPiece tokenizer for the built-in lexicon, laid out and sized like that of distilbert-base-uncased.

Its vocabulary has 30,522 entries: special tokens at BERT's ids, single characters, word pieces and whole words.
Words of the lexicon are whole or left to be split with the frequencies counted on GLUE SST-2 with the real
vocabulary (67,349 training sentences: 87.4 % of the words stay whole, 1.203 pieces a word on average).
"""

from __future__ import annotations

import collections
import functools
import itertools
import os
import string
from typing import Any

from perf_diagnostics.workloads.lexicon import PUNCTUATION, lexicon, other_words, syllables

#: Entries of distilbert-base-uncased's vocabulary, and those of them that continue a word (``##…``).
VOCABULARY_SIZE = 30_522
CONTINUATIONS = 5_828
#: Ids of the special tokens in that vocabulary; all others below 999 are unused there.
SPECIAL = {"[PAD]": 0, "[UNK]": 100, "[CLS]": 101, "[SEP]": 102, "[MASK]": 103}
_FIRST_USED = 999

#: From this rank on: the share of the lexicon's words that the vocabulary holds whole.
_WHOLE_BY_RANK = {0: 1.0, 10: 0.94, 100: 0.93, 1_000: 0.72, 3_000: 0.55, 6_000: 0.4}
_GOLDEN = 0.6180339887498949


@functools.cache
def vocabulary() -> tuple[str, ...]:
    """The entries in the order of their ids; the same on every machine."""
    specials = {index: token for token, index in SPECIAL.items()}
    reserved = [specials.get(index, f"[unused{index}]") for index in range(_FIRST_USED)]
    characters = string.ascii_lowercase + string.digits + string.punctuation
    split = set(lexicon()) - set(whole_words())
    beginnings = (syllable for syllable in syllables() if syllable not in split)
    entries = dict.fromkeys([*reserved, *characters, *whole_words(), *_continuations(), *beginnings])
    # A vocabulary knows more words than one corpus uses: these fill it up and meet no sentence.
    fill = itertools.islice((word for word in other_words() if word not in entries), VOCABULARY_SIZE - len(entries))
    return (*entries, *fill)


@functools.cache
def whole_words() -> tuple[str, ...]:
    """The lexicon's words that have an entry of their own, most frequent first; all others are split into pieces."""
    kept: list[str] = []
    share = 1.0
    for rank, word in enumerate(lexicon()):
        share = _WHOLE_BY_RANK.get(rank, share)
        # Multiples of the golden ratio spread evenly: the share holds in every stretch of ranks.
        if rank * _GOLDEN % 1.0 < share or word in PUNCTUATION.values():
            kept.append(word)
    return tuple(kept)


def _continuations() -> list[str]:
    characters = string.ascii_lowercase + string.digits
    endings = collections.Counter(word[-n:] for word in lexicon() for n in range(2, 7) if len(word) > n)
    pieces = dict.fromkeys([*characters, *syllables(), *(ending for ending, _ in endings.most_common())])
    return [f"##{piece}" for piece in list(pieces)[:CONTINUATIONS]]


@functools.cache
def built_in_tokenizer() -> Any:
    """The tokenizer as a ``transformers.PreTrainedTokenizerFast``, as AutoTokenizer would return for the real one.

    Normalisation (lower case), splitting at blanks and punctuation, and [CLS] … [SEP] are BERT's.
    """
    calm_tokenizers()
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    ids = {entry: index for index, entry in enumerate(vocabulary())}
    tokenizer = Tokenizer(models.WordPiece(vocab=ids, unk_token="[UNK]", max_input_chars_per_word=100))  # noqa: S106
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", SPECIAL["[SEP]"]), ("[CLS]", SPECIAL["[CLS]"]))
    # The words stand apart in the corpus, punctuation too: a clean-up would glue them together.
    tokenizer.decoder = decoders.WordPiece(prefix="##", cleanup=False)
    make: Any = PreTrainedTokenizerFast  # untyped in transformers 5
    return make(
        tokenizer_object=tokenizer,
        model_max_length=512,
        model_input_names=["input_ids", "attention_mask"],
        clean_up_tokenization_spaces=False,
        **{f"{name[1:-1].lower()}_token": name for name in SPECIAL},
    )


def calm_tokenizers() -> None:
    """Keep the ``tokenizers`` library to one thread a process, unless TOKENIZERS_PARALLELISM says otherwise.

    It would start one thread a core, in the training process and again in every loader worker, beside torch's own;
    and it warns when a process that has used its threads is forked, as a DataLoader with workers does.
    """
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
