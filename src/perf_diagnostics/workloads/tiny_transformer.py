"""The workload ``tiny-transformer``: a small causal language model on synthetic sequences of varying length."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from torch.utils.data import Dataset

from perf_diagnostics.errors import WorkloadError
from perf_diagnostics.records import Json, Settings
from perf_diagnostics.workloads.loaders import check_batch, check_workers, loader_facts, random_numbers, shuffled_loader
from perf_diagnostics.workloads.optimizers import make_optimizer, optimizer_facts
from perf_diagnostics.workloads.options import option, options_from
from perf_diagnostics.workloads.workload import BatchCount, Training

SEQUENCE_LENGTH = 64
PADDING = 0
#: What cross entropy leaves out: its own default.
IGNORED = -100


@dataclass(frozen=True)
class TransformerOptions:
    """The options of ``tiny-transformer``."""

    vocabulary: int = option(1000, "different tokens, padding included", least=2)
    dim: int = option(128, "width of the model", least=1)
    heads: int = option(4, "attention heads", least=1)
    layers: int = option(2, "transformer blocks", least=1)
    samples: int = option(4096, "sequences of one epoch", least=1)
    padding: str = option("longest", "pad to the batch's longest, or to max_length", among=("longest", "max_length"))


class TinyTransformer:
    """A small language model; see :class:`TransformerOptions`."""

    name = "tiny-transformer"
    says = "a two-layer transformer language model on synthetic sequences of varying length; seconds long"
    options = TransformerOptions

    def check_options(self, options: Mapping[str, Json]) -> None:
        """See :class:`perf_diagnostics.workloads.beforehand.Foresighted`."""
        _chosen(options)

    def check_settings(self, settings: Settings, options: Mapping[str, Json]) -> None:
        """See :class:`perf_diagnostics.workloads.beforehand.Foresighted`."""
        check_workers(settings)
        check_batch(settings, _chosen(options).samples)

    def build(self, settings: Settings, *, options: Mapping[str, Json], seed: int) -> Training:
        """See :meth:`perf_diagnostics.workloads.Workload.build`."""
        chosen = _chosen(options)
        device = torch.device(settings.device)
        longest = settings.sequence_length or SEQUENCE_LENGTH
        torch.manual_seed(seed)
        model = LanguageModel(chosen, longest, recompute=bool(settings.gradient_checkpointing)).to(device).train()
        optimizer = make_optimizer(torch.optim.AdamW, model.parameters(), settings, lr=1e-3)
        sequences = Sequences.generated(chosen, longest, seed)
        collate = functools.partial(padded, least=longest if chosen.padding == "max_length" else 0)
        loader = shuffled_loader(
            sequences, settings, device=device, seed=seed, collate=collate, lengths=lambda: sequences.lengths
        )
        return Training(
            model=model,
            optimizer=optimizer,
            batches=loader,
            loss_of=loss_of,
            count=count,
            facts={
                "model": f"tiny transformer, {chosen.layers} x {chosen.dim}",
                "dataset": f"synthetic sequences, {chosen.samples:,} samples",
                "sequence_length": longest,
                "length_unit": "tokens",
                **optimizer_facts(optimizer),
                **loader_facts(loader),
            },
        )


def _chosen(options: Mapping[str, Json]) -> TransformerOptions:
    chosen = options_from(TransformerOptions, options, workload=TinyTransformer.name)
    if chosen.dim % chosen.heads:
        raise WorkloadError(f"dim={chosen.dim} cannot be divided among heads={chosen.heads}; choose a multiple.")
    return chosen


class LanguageModel(torch.nn.Module):
    """Embedding, ``torch.nn.TransformerEncoder`` under a causal mask, and scores for the next token."""

    def __init__(self, chosen: TransformerOptions, longest: int, *, recompute: bool) -> None:
        super().__init__()
        self.recompute = recompute
        self.tokens = torch.nn.Embedding(chosen.vocabulary, chosen.dim, padding_idx=PADDING)
        self.positions = torch.nn.Embedding(longest, chosen.dim)
        block = torch.nn.TransformerEncoderLayer(
            chosen.dim, chosen.heads, dim_feedforward=4 * chosen.dim, batch_first=True, norm_first=True
        )
        # Nested tensors only serve inference, and cannot be had with norm_first.
        self.encoder = torch.nn.TransformerEncoder(block, chosen.layers, enable_nested_tensor=False)
        self.scores = torch.nn.Linear(chosen.dim, chosen.vocabulary)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """From token numbers, shape ``(rows, length)``, to scores, shape ``(rows, length, vocabulary)``."""
        length = tokens.shape[1]
        hidden = self.tokens(tokens) + self.positions(torch.arange(length, device=tokens.device))
        later = torch.ones(length, length, dtype=torch.bool, device=tokens.device).triu(1)
        # Padding stands at the end, so the causal mask hides it from every token that counts. Saying that the mask is
        # causal spares the encoder a look at its values, which would wait for the device.
        if self.recompute:
            for block in self.encoder.layers:
                hidden = checkpoint(block, hidden, later, None, True, use_reentrant=False)
        else:
            hidden = self.encoder(hidden, mask=later, is_causal=True)
        scores: torch.Tensor = self.scores(hidden)
        return scores


@dataclass(frozen=True)
class Sequences(Dataset[torch.Tensor]):
    """Token sequences of varying length, stored end to end; sequence ``i`` is ``tokens[starts[i]:starts[i + 1]]``."""

    tokens: torch.Tensor
    starts: Sequence[int]

    @classmethod
    def generated(cls, chosen: TransformerOptions, longest: int, seed: int) -> Sequences:
        """Lengths spread evenly over a quarter of ``longest`` to ``longest``; token n is 1/n as frequent as token 1."""
        numbers = random_numbers(seed, "sequences")
        least = max(2, longest // 4)
        lengths = least + np.floor(numbers.random(chosen.samples) * (longest - least + 1)).astype(int)
        frequent = np.cumsum(1.0 / np.arange(1, chosen.vocabulary))
        draws = numbers.random(int(lengths.sum())) * frequent[-1]
        tokens = np.minimum(np.searchsorted(frequent, draws, side="right") + 1, chosen.vocabulary - 1)
        return cls(torch.from_numpy(tokens), tuple(itertools.accumulate(lengths.tolist(), initial=0)))

    @property
    def lengths(self) -> list[int]:
        """Tokens of each sequence."""
        return [end - start for start, end in itertools.pairwise(self.starts)]

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.tokens[self.starts[index] : self.starts[index + 1]]


def padded(rows: Sequence[torch.Tensor], *, least: int = 0) -> dict[str, torch.Tensor]:
    """``tokens`` and ``targets`` (each position's next token) of shape ``(rows, longest)``, padded at the end.

    ``longest`` is that of the rows, and at least ``least``.
    """
    tokens = torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True, padding_value=PADDING)
    tokens = functional.pad(tokens, (0, max(0, least - tokens.shape[1])), value=PADDING)
    targets = torch.full_like(tokens, IGNORED)
    targets[:, :-1] = tokens[:, 1:].masked_fill(tokens[:, 1:] == PADDING, IGNORED)
    return {"tokens": tokens, "targets": targets}


def loss_of(model: torch.nn.Module, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Cross entropy of the next token, over all positions that have one."""
    scores = model(batch["tokens"])
    return functional.cross_entropy(scores.flatten(0, 1), batch["targets"].flatten(), ignore_index=IGNORED)


def count(batch: Mapping[str, torch.Tensor]) -> BatchCount:
    """Rows, positions and padded positions of a batch on the host."""
    tokens = batch["tokens"]
    padding = int((tokens == PADDING).sum())
    return BatchCount(tokens.shape[0], tokens=tokens.numel(), padding_tokens=padding)
