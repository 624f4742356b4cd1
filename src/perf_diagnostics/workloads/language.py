"""The workload ``distilbert-sst2``: fine-tuning DistilBERT for sentiment on sentences shaped like SST-2.

The model is transformers' own ``DistilBertForSequenceClassification`` in the shape of distilbert-base-uncased
(66,955,010 parameters), the optimizer AdamW, the text is raw and is tokenised on the fly, in the loader's workers if
there are any. By default nothing is downloaded: the weights are random, the sentences generated
(:mod:`~perf_diagnostics.workloads.sentences`), the WordPiece tokenizer built in
(:mod:`~perf_diagnostics.workloads.tokenizer`). Speed, memory and energy do not depend on what the weights or the
sentences mean; the loss does.

``weights="pretrained"`` brings its own tokenizer, which makes more pieces of the generated words than of English; the
built-in one makes about twice as many of English as BERT's does. To train on real text at its true length, choose
both ``dataset`` and ``weights="pretrained"``, or both ``dataset`` and ``tokenizer``.

The first build sets TOKENIZERS_PARALLELISM=false for the process unless it is already set (the reasons stand at
:func:`~perf_diagnostics.workloads.tokenizer.calm_tokenizers`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from perf_diagnostics.errors import InvalidSettings, WorkloadError
from perf_diagnostics.records import Json, Settings
from perf_diagnostics.workloads.loaders import check_batch, check_workers, loader_facts, shuffled_loader
from perf_diagnostics.workloads.optimizers import make_optimizer, optimizer_facts
from perf_diagnostics.workloads.options import option, options_from, shown
from perf_diagnostics.workloads.sentence_files import sentences_in
from perf_diagnostics.workloads.sentences import SST2_SENTENCES, Sentences, generated_sentences, glue_sst2
from perf_diagnostics.workloads.tokenizer import VOCABULARY_SIZE, built_in_tokenizer, calm_tokenizers
from perf_diagnostics.workloads.workload import BatchCount, Training

SEQUENCE_LENGTH = 128
#: Data sets that are no file of this machine.
_NOT_LOCAL = ("synthetic", "glue/sst2")
LEARNING_RATE = 2e-5
WEIGHT_DECAY = 0.01


@dataclass(frozen=True)
class LanguageOptions:
    """The options of ``distilbert-sst2``; the shape of the model is that of distilbert-base-uncased unless changed."""

    weights: str = option(
        "random", "random, or pretrained: from the hub or a local folder", among=("random", "pretrained")
    )
    model: str = option("distilbert-base-uncased", "with weights=pretrained: a hub id or a local folder")
    tokenizer: str | None = option(None, "a hub id or a local folder; unset: the model's own, or the built-in one")
    dataset: str = option(
        "synthetic", "synthetic, glue/sst2, or a local file or folder with columns sentence and label"
    )
    sentences: int | None = option(
        None, f"sentences of one epoch; unset: all, or {SST2_SENTENCES:,} synthetic", least=1
    )
    padding: str = option("longest", "pad to the batch's longest, or to max_length", among=("longest", "max_length"))
    layers: int = option(6, "transformer blocks of a model with random weights", least=1)
    dim: int = option(768, "width of a model with random weights", least=1)
    heads: int = option(12, "attention heads of a model with random weights", least=1)
    hidden: int = option(3072, "width of the feed-forward layers of a model with random weights", least=1)


class DistilBertSst2:
    """Fine-tuning DistilBERT; see the module's text and :class:`LanguageOptions`."""

    name = "distilbert-sst2"
    says = "fine-tune DistilBERT (66 M parameters) on sentences shaped like SST-2, tokenised on the fly"
    options = LanguageOptions

    def check_options(self, options: Mapping[str, Json]) -> None:
        """See :class:`perf_diagnostics.workloads.beforehand.Foresighted`; a local data set is read, a hub not asked."""
        chosen = _chosen(options)
        for source in (chosen.model if chosen.weights == "pretrained" else None, chosen.tokenizer):
            if source is not None:
                _source(source)
        if chosen.dataset not in _NOT_LOCAL:
            _sentences(chosen, seed=0)

    def check_settings(self, settings: Settings, options: Mapping[str, Json]) -> None:
        """See :class:`perf_diagnostics.workloads.beforehand.Foresighted`."""
        chosen = _chosen(options)
        check_workers(settings)
        if chosen.dataset == "synthetic" or chosen.sentences is not None:
            check_batch(settings, chosen.sentences or SST2_SENTENCES)
        if settings.sequence_length is not None and chosen.weights == "random":
            from transformers import DistilBertConfig

            _sequence_length(settings, DistilBertConfig())

    def build(self, settings: Settings, *, options: Mapping[str, Json], seed: int) -> Training:
        """See :meth:`perf_diagnostics.workloads.Workload.build`."""
        chosen = _chosen(options)
        device = torch.device(settings.device)
        sentences = _sentences(chosen, seed)
        torch.manual_seed(seed)
        model = _model(chosen)
        collate = Collate(_tokenizer(chosen, model), _sequence_length(settings, model.config), chosen.padding)
        if settings.gradient_checkpointing:
            _checkpoint(model)
        model.to(device).train()
        optimizer = make_optimizer(
            torch.optim.AdamW, model.parameters(), settings, lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY
        )
        loader = shuffled_loader(
            sentences, settings, device=device, seed=seed, collate=collate, lengths=lambda: _words_in(sentences)
        )
        return Training(
            model=model,
            optimizer=optimizer,
            batches=loader,
            loss_of=loss_of,
            count=count,
            facts={
                "model": f"{type(model).__name__}, {chosen.weights} weights",
                "dataset": f"{sentences.name}, {len(sentences):,} sentences",
                "sequence_length": collate.sequence_length,
                "length_unit": "tokens",
                **optimizer_facts(optimizer),
                **loader_facts(loader),
            },
        )


def _chosen(options: Mapping[str, Json]) -> LanguageOptions:
    """The options, as far as they agree with each other."""
    chosen, default = options_from(LanguageOptions, options, workload=DistilBertSst2.name), LanguageOptions()
    if chosen.weights == "pretrained":
        for name in ("layers", "dim", "heads", "hidden"):
            if getattr(chosen, name) != getattr(default, name):
                raise WorkloadError(
                    f"{name}={getattr(chosen, name)} does not go with pretrained weights; leave it unset."
                )
    elif chosen.model != default.model:
        raise WorkloadError(f"model={chosen.model!r} loads weights; add weights='pretrained', or leave model unset.")
    if chosen.dim % chosen.heads:
        raise WorkloadError(f"dim={chosen.dim} cannot be divided among heads={chosen.heads}; choose a multiple.")
    return chosen


def _words_in(sentences: Sentences) -> list[int]:
    """Words of each sentence, which order sentences nearly as their tokens would, without tokenising all of them."""
    return [len(sentences[index][0].split()) for index in range(len(sentences))]


@dataclass(frozen=True)
class Collate:
    """Turns ``(text, label)`` pairs into one padded batch; runs in the loader's workers, so it can be pickled."""

    tokenizer: Any
    sequence_length: int
    padding: str

    def __call__(self, rows: Sequence[tuple[str, int]]) -> dict[str, torch.Tensor]:
        """``input_ids`` and ``attention_mask`` of shape ``(rows, length)``, ``labels`` of shape ``(rows,)``; int64."""
        encoded = self.tokenizer(
            [text for text, _ in rows],
            padding=self.padding,
            truncation=True,
            max_length=self.sequence_length,
            return_tensors="pt",
            return_attention_mask=True,
            return_token_type_ids=False,  # one sentence has one type, and DistilBERT takes none
        )
        return {**encoded, "labels": torch.tensor([label for _, label in rows])}


def loss_of(model: torch.nn.Module, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """The model's own loss: cross entropy of its two classes."""
    loss: torch.Tensor = model(**batch).loss
    return loss


def count(batch: Mapping[str, torch.Tensor]) -> BatchCount:
    """Rows, positions and padded positions of a batch on the host."""
    mask = batch["attention_mask"]
    return BatchCount(mask.shape[0], tokens=mask.numel(), padding_tokens=mask.numel() - int(mask.sum()))


def _model(chosen: LanguageOptions) -> Any:
    if chosen.weights == "pretrained":
        return _pretrained(chosen)
    from transformers import DistilBertConfig, DistilBertForSequenceClassification

    config = DistilBertConfig(
        vocab_size=VOCABULARY_SIZE,
        n_layers=chosen.layers,
        dim=chosen.dim,
        n_heads=chosen.heads,
        hidden_dim=chosen.hidden,
    )  # two labels are its default
    return DistilBertForSequenceClassification(config)


def _pretrained(chosen: LanguageOptions) -> Any:
    from transformers import AutoModelForSequenceClassification

    try:
        return AutoModelForSequenceClassification.from_pretrained(_source(chosen.model), num_labels=2)
    except (OSError, ValueError, RuntimeError) as error:
        raise _unavailable("Pretrained weights", chosen.model, error) from error


def _tokenizer(chosen: LanguageOptions, model: Any) -> Any:
    source = chosen.tokenizer or (chosen.model if chosen.weights == "pretrained" else None)
    if source is None:
        return built_in_tokenizer()
    calm_tokenizers()
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(_source(source))
    except (OSError, ValueError, RuntimeError) as error:
        raise _unavailable("The tokenizer", source, error) from error
    if len(tokenizer) > model.config.vocab_size:
        raise WorkloadError(
            f"The tokenizer of {source!r} has {len(tokenizer):,} entries, the model only {model.config.vocab_size:,} "
            "embeddings; choose the tokenizer the model was trained with."
        )
    return tokenizer


def _source(name: str) -> str:
    """A hub id as it is, a path with ``~`` resolved; a path to nowhere is told at once instead of asked of the hub."""
    if not name.startswith(("/", ".", "~")):
        return name
    folder = Path(name).expanduser()
    if not folder.is_dir():
        raise WorkloadError(f"There is no folder {shown(name)}; name one written by save_pretrained, or a hub id.")
    return str(folder)


def _unavailable(what: str, source: str, error: Exception) -> WorkloadError:
    reason = next(iter(str(error).strip().splitlines()), type(error).__name__).rstrip(".")
    return WorkloadError(
        f"{what} cannot be loaded from {shown(source)}: {reason}. Check the network, or name a local folder written by "
        "save_pretrained (model and tokenizer); random weights need neither and train at the same speed."
    )


def _sentences(chosen: LanguageOptions, seed: int) -> Sentences:
    if chosen.dataset == "synthetic":
        return generated_sentences(seed, count=chosen.sentences or SST2_SENTENCES)
    every = glue_sst2() if chosen.dataset == "glue/sst2" else sentences_in(Path(chosen.dataset))
    if chosen.sentences is None:
        return every
    if chosen.sentences > len(every):
        raise WorkloadError(f"sentences={chosen.sentences} is more than the {len(every)} of {every.name}.")
    return Sentences(every.name, every.texts[: chosen.sentences], every.labels[: chosen.sentences])


def _sequence_length(settings: Settings, config: Any) -> int:
    longest: int = config.max_position_embeddings
    chosen = settings.sequence_length or min(SEQUENCE_LENGTH, longest)
    if chosen > longest:
        raise InvalidSettings(f"sequence_length={chosen} is more than the {longest} positions the model has.")
    return chosen


def _checkpoint(model: Any) -> None:
    # The second name is transformers' older one, deprecated since 5 and the only one before it.
    enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    try:
        enable({"use_reentrant": False})
    except ValueError as error:
        raise InvalidSettings(
            f"gradient_checkpointing=True cannot be honoured by {type(model).__name__}: {error} Leave it unset."
        ) from error
