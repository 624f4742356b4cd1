"""Padding by the masks that a model is called with: what is counted, and what is not certain and stays unmeasured."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters
from torch.utils.data import DataLoader

from perf_diagnostics.integrations import OwnLoop, attach
from perf_diagnostics.integrations.model.called_masks import CallCount, Copies, MaskReader, joined, reader_of
from perf_diagnostics.integrations.model.masks import padding_of
from perf_diagnostics.integrations.model.trained import Trained
from perf_diagnostics.integrations.watching import watched_steps
from perf_diagnostics.measure.module_calls import stands_in
from perf_diagnostics.measure.steps.device_clock import HostTimeEvents
from perf_diagnostics.records import TrialResult
from perf_diagnostics.workloads.workload import BatchCount
from tests.integrations.test_first_turns import run_here

INF = float("inf")
IDS = torch.tensor([[2, 3, 4, 5, 6, 7], [3, 4, 5, 0, 0, 0], [2, 2, 9, 8, 0, 0]])
MASK = IDS != 0  # 13 of 3 * 6 tokens, 5 are padding
STEPS = 8


@pytest.fixture(autouse=True)
def _as_in_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Trained, "expects_more", False)


class Tagger(torch.nn.Module):
    """A model of the user's own that takes its mask by position."""

    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(10, 4)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        words: torch.Tensor = self.words(ids)
        return words if mask is None else words * (mask != 0).unsqueeze(-1)


class Attending(Tagger):
    def forward(self, ids: torch.Tensor, attention_mask: torch.Tensor | None = None) -> torch.Tensor:
        return super().forward(ids, attention_mask)


class Hiding(Tagger):
    def forward(self, ids: torch.Tensor, *, key_padding_mask: torch.Tensor) -> torch.Tensor:
        return super().forward(ids)


class Anything(Tagger):
    def forward(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        return super().forward(args[0] if args else kwargs["input_ids"])


def read(model: torch.nn.Module, *args: Any, **kwargs: Any) -> tuple[int, int] | None:
    reader = reader_of(model)
    assert isinstance(reader, MaskReader)
    return reader.read(args, kwargs, Copies().source_of)


def trained(
    model: torch.nn.Module,
    call: Callable[[Any], torch.Tensor],
    folder: Path,
    *,
    batches: list[Any],
    how: str = "attach",
    with_loader: bool = True,
    calls: int = 1,
) -> TrialResult:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader: Any = DataLoader(batches, batch_size=None) if with_loader else batches  # type: ignore[arg-type]

    def train() -> None:
        for batch in loader:
            for _ in range(calls):
                call(batch).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

    if how == "run":
        with run_here(folder) as session:
            train()
        assert session.watch is not None
        run = session.watch.recording.run
    else:
        with attach(model, optimizer, results_dir=folder, quiet=True) as seen:
            train()
        run = seen.run
    assert run is not None
    return run.results[0]


def counted(result: TrialResult) -> Iterator[tuple[int, int, int]]:
    table = result.steps[0]
    return zip(*(table.columns[name].tolist() for name in ("samples", "tokens", "padding_tokens")), strict=True)


@pytest.mark.parametrize("how", ["attach", "run"])
@pytest.mark.parametrize("with_loader", [True, False])
def test_a_mask_by_position_of_a_tuple(tmp_path: Path, how: str, with_loader: bool) -> None:
    model = Tagger()
    batches: list[Any] = [(IDS, MASK), (IDS[:, :4], MASK[:, :4])] * (STEPS // 2)  # the second ones: 1 of 12
    result = trained(model, lambda batch: model(*batch), tmp_path, batches=batches, how=how, with_loader=with_loader)
    # Of a loop without a loader the first step shows what is trained.
    assert list(counted(result))[-6:] == [(3, 18, 5), (3, 12, 1)] * 3
    assert result.gap("padding_tokens") is None and result.gap("tokens") is None


@pytest.mark.slow
@pytest.mark.parametrize("how", ["attach", "run"])
def test_a_real_transformer_by_keyword(tmp_path: Path, how: str) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.DistilBertConfig(
        vocab_size=10, dim=8, n_layers=1, n_heads=2, hidden_dim=8, num_labels=2, max_position_embeddings=6
    )
    model = transformers.DistilBertForSequenceClassification(config).train()
    result = trained(
        model,
        lambda batch: model(input_ids=batch[0], attention_mask=batch[1], labels=batch[2]).loss,
        tmp_path,
        batches=[(IDS, MASK.long(), torch.tensor([0, 1, 1]))] * STEPS,
        how=how,
    )
    assert list(counted(result)) == [(3, 18, 5)] * STEPS


@pytest.mark.parametrize("batch_first", [True, False])
def test_torchs_encoder_marks_padding_and_its_causal_mask_does_not_count(tmp_path: Path, batch_first: bool) -> None:
    layer = torch.nn.TransformerEncoderLayer(4, 2, 8, batch_first=batch_first)
    model = torch.nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
    causal = torch.ones(6, 6, dtype=torch.bool).triu(1)

    def call(batch: torch.Tensor) -> torch.Tensor:
        return model(batch if batch_first else batch.transpose(0, 1), causal, src_key_padding_mask=~MASK)  # type: ignore[no-any-return]

    result = trained(model, call, tmp_path, batches=[torch.randn(3, 6, 4)] * STEPS)
    assert {held[1:] for held in counted(result)} == {(18, 5)}


def test_a_causal_mask_is_none_of_padding(tmp_path: Path) -> None:
    model = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), 1)
    causal = torch.ones(6, 6, dtype=torch.bool).triu(1)
    # As many rows as places: by its shape it might be either.
    for rows in (3, 6):
        result = trained(model, lambda batch: model(batch, causal), tmp_path, batches=[torch.randn(rows, 6, 4)] * STEPS)
        assert result.steps[0].get("padding_tokens") is None and result.steps[0].get("tokens") is None
        gap = result.gap("padding_tokens")
        assert gap is not None and "certain" in gap.why


def test_on_a_device_what_was_copied_there_is_counted_on_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched_steps, "event_source", lambda _, clock: HostTimeEvents(lambda: None, clock))
    for move, known in ((lambda mask: mask.to("meta"), True), (lambda mask: mask.to("meta").bool(), False)):
        model = Tagger().to("meta")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        loader: Any = DataLoader([(IDS, MASK.long())] * STEPS, batch_size=None)  # type: ignore[arg-type]
        with attach(model, optimizer, results_dir=tmp_path, quiet=True) as seen:
            for ids, mask in loader:
                # A list has no loss that could be read, which there has no value.
                torch.autograd.backward([model(ids.to("meta"), move(mask)).sum()])
                optimizer.step()
        assert seen.run is not None
        (result,) = seen.run.results
        if known:
            assert list(counted(result)) == [(3, 18, 5)] * (STEPS - 1)  # the first one shows which device it is
        else:
            assert len(result.steps[0]) == STEPS - 1 and result.steps[0].get("padding_tokens") is None


def test_parts_of_a_batch_are_added_up_and_one_without_a_mask_leaves_it_unknown(tmp_path: Path) -> None:
    model = Tagger()
    batches: list[Any] = [(IDS, MASK)] * STEPS
    result = trained(model, lambda batch: model(*batch), tmp_path, batches=batches, calls=2)
    assert list(counted(result)) == [(3, 36, 10)] * STEPS
    calls = iter(range(2 * STEPS))
    result = trained(
        model, lambda batch: model(batch[0], batch[1] if next(calls) % 2 else None), tmp_path, batches=batches, calls=2
    )
    assert result.steps[0].get("padding_tokens") is None


def test_a_mapping_tells_by_itself_and_a_mask_made_in_the_loop_adds_to_it(tmp_path: Path) -> None:
    model = Attending()
    for batch in ({"input_ids": IDS, "attention_mask": MASK}, {"input_ids": IDS}):
        result = trained(
            model,
            lambda b: model(b["input_ids"], attention_mask=b["input_ids"] != 0),
            tmp_path,
            batches=[batch] * STEPS,
        )
        assert list(counted(result)) == [(3, 18, 5)] * STEPS


def test_what_a_mask_marks_is_told_by_the_data() -> None:
    assert read(Tagger(), IDS, MASK) == read(Tagger(), IDS, ~MASK) == (18, 5)
    assert read(Tagger(), IDS.flip(1), ~MASK.flip(1)) == (18, 5)  # padded on the left
    assert read(Tagger(), torch.nn.functional.one_hot(IDS).float(), mask=MASK.long()) == (18, 5)
    assert read(Tagger(), IDS + 1, torch.ones(3, 6)) is None  # a floating one may be anything
    assert read(Tagger(), IDS, torch.ones_like(IDS)) == (18, 0)  # all alike
    assert read(Tagger(), torch.arange(18).view(3, 6), MASK) is None  # nothing tells
    guessed = torch.tensor([[0, 1, 0, 0, 0, 1], [1, 0, 0, 1, 0, 0], [0, 0, 1, 0, 1, 0]]).bool()
    assert read(Tagger(), torch.arange(18).view(3, 6).masked_fill(guessed, 99), guessed) is None  # to be guessed


def test_what_was_told_once_holds_for_later_batches() -> None:
    reader = reader_of(Tagger())
    assert reader is not None
    host = Copies().source_of
    assert reader.read((IDS, ~MASK), {}, host) == (18, 5)
    assert reader.read((torch.arange(18).view(3, 6), ~MASK), {}, host) == (18, 5)
    assert reader.read((IDS[:, :3], ~MASK[:, :3]), {}, host) == (9, 0)  # 3 by 3, and now it is known what it is


def test_a_name_that_the_data_contradict_is_not_believed() -> None:
    assert read(Attending(), IDS, MASK) == (18, 5)
    assert read(Attending(), IDS, ~MASK) is None
    assert read(Hiding(), IDS, key_padding_mask=~MASK) == (18, 5)
    assert read(Hiding(), IDS, key_padding_mask=MASK) is None


def test_shapes_and_other_data_that_make_it_uncertain() -> None:
    assert read(Attending(), IDS, MASK[:, None, None, :]) is None
    assert read(Attending(), IDS[:, :3], MASK[:, :3]) is None  # 3 by 3
    assert read(Attending(), IDS, MASK[:, :4]) is None
    assert read(Anything(), input_ids=IDS, attention_mask=MASK) == (18, 5)
    assert read(Anything(), input_ids=IDS, attention_mask=MASK, pixel_values=torch.ones(3, 3, 2, 2)) is None
    assert read(Anything(), input_ids=IDS, attention_mask=MASK, picture=torch.ones(3, 3, 2, 2)) is None
    assert read(Attending(), IDS, torch.zeros_like(MASK)) is None  # a batch of nothing but padding


def test_what_torch_func_maps_over_is_not_read() -> None:
    model = Attending()

    def read_none(ids: torch.Tensor) -> torch.Tensor:
        assert read(model, ids, ids != 0) is None
        return ids

    assert torch.func.vmap(read_none)(IDS.expand(2, 3, 6)).shape == (2, 3, 6)


def test_whose_forward_takes_no_mask_has_no_reader() -> None:
    assert reader_of(torch.nn.Linear(2, 2)) is None
    assert reader_of(torch.nn.Sequential(Tagger())) is None
    assert reader_of(torch.compile(torch.nn.Linear(2, 2), backend="eager")) is None  # type: ignore[arg-type]
    assert reader_of(torch.compile(Tagger(), backend="eager")) is not None  # type: ignore[arg-type]
    assert reader_of(torch.nn.DataParallel(Tagger())) is not None


@pytest.mark.parametrize(
    ("mask", "marks_padding", "padding"),
    [
        (torch.tensor([1, 1, 0]), False, 1),
        (torch.tensor([3, 2, 0]), False, 1),  # packed samples by number
        (torch.tensor([True, True, False]), True, 2),
        (torch.tensor([1.0, 1.0, 0.0]), False, 1),
        (torch.tensor([0.0, -INF, -INF]), False, 2),
        (torch.tensor([0.0, torch.finfo(torch.float32).min, 0.0]), False, 1),
        (torch.tensor([0.0, -INF, 0.0]), True, 1),
        (torch.tensor([1.0, 1.0, 1.0]), False, 0),
        (torch.tensor([0.0, 0.0]), True, 0),
        (torch.tensor([0.0, 0.0]), False, None),  # all added to nothing, or all padding
        (torch.tensor([0.5, 1.0]), False, None),
        (torch.tensor([0.0, -1e4]), False, None),
        (torch.tensor([1.0, 0.0]), True, None),  # added to the scores it hides nothing
    ],
)
def test_numbers_of_a_mask(mask: torch.Tensor, marks_padding: bool, padding: int | None) -> None:
    assert padding_of(mask, marks_padding=marks_padding) == padding


def test_what_several_calls_tell() -> None:
    one = joined(4, (10, 2), by=1, once=False)
    assert one == CallCount(4, 10, 2, by=1)
    assert joined(one, (10, 3), by=1, once=False) == CallCount(4, 20, 5, by=1)
    assert joined(one, (10, 3), by=1, once=True) == one  # a closure's second call
    assert joined(one, (10, 3), by=2, once=False) == one  # another part of the model
    assert joined(one, None, by=1, once=False) == CallCount(4, by=1)
    assert joined(BatchCount(4, 10, 0), (10, 2), by=1, once=False) == BatchCount(4, 10, 0)
    assert joined(BatchCount(4, 10), None, by=1, once=False) == BatchCount(4, 10)
    assert joined(None, (10, 2), by=1, once=False) is None


def test_a_copy_is_counted_by_its_source_until_either_is_changed() -> None:
    copies = Copies()
    mask = MASK.long()
    there, ids = mask.to("meta"), IDS.to("meta")
    model = Attending()
    reader = reader_of(model)
    assert reader is not None
    assert reader.read((ids, there), {}, copies.source_of) is None
    copies.add(mask, there)
    assert reader.read((ids, there), {}, copies.source_of) == (18, 5)
    assert reader.read((ids, there.bool()), {}, copies.source_of) is None
    mask[0, 0] = 0
    assert reader.read((ids, there), {}, copies.source_of) is None
    copies.add(mask, there)
    assert reader.read((ids, there), {}, copies.source_of) == (18, 6)
    there.zero_()
    assert reader.read((ids, there), {}, copies.source_of) is None
    copies.add(mask, there)
    copies.forget()
    assert copies.source_of(there) is mask  # who copies ahead calls the model in the step after
    copies.forget()
    assert copies.source_of(there) is None


@pytest.mark.parametrize("with_batches", [True, False])
def test_marked_by_hand(tmp_path: Path, with_batches: bool) -> None:
    model = Tagger()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    rows = [(IDS, MASK), (IDS[:, :4], MASK[:, :4])] * (STEPS // 2)
    with OwnLoop("by-hand", model=model, optimizer=optimizer, results_dir=tmp_path, quiet=True) as loop:
        assert stands_in(model) is not None
        for ids, mask in loop.batches(rows) if with_batches else rows:
            with loop.step(samples=None if with_batches else 3):
                with loop.forward():
                    loss = model(ids, mask).sum()
                with torch.no_grad():
                    model(ids, ~mask)  # an evaluation
                with loop.backward():
                    loss.backward()
                with loop.optimizer():
                    optimizer.step()
    assert loop.run is not None and stands_in(model) is None
    assert list(counted(loop.run.results[0])) == [(3, 18, 5), (3, 12, 1)] * (STEPS // 2)


def test_marked_by_hand_the_tokens_that_are_told_hold(tmp_path: Path) -> None:
    model = Tagger()
    with OwnLoop("by-hand", model=model, results_dir=tmp_path, quiet=True) as loop:
        for _ in range(STEPS):
            with loop.step(samples=3, tokens=13), loop.forward():
                model(IDS, MASK)
    assert loop.run is not None
    table = loop.run.results[0].steps[0]
    assert table.columns["tokens"].tolist() == [13] * STEPS and table.get("padding_tokens") is None


def test_a_model_without_a_mask_has_no_tokens_where_marked_by_hand(tmp_path: Path) -> None:
    model = torch.nn.Linear(2, 2)
    with OwnLoop("by-hand", model=model, results_dir=tmp_path, quiet=True) as loop, loop.step(samples=1):
        model(torch.ones(1, 2))
    assert loop.run is not None and stands_in(model) is None
    assert loop.run.results[0].steps[0].get("tokens") is None


@pytest.mark.slow
@pytest.mark.parametrize("marked", [True, False])
@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.filterwarnings("ignore")  # of torch's compiler, about torch
def test_a_compiled_model_keeps_its_graph_and_its_masks_are_counted(
    tmp_path: Path, marked: bool, in_place: bool
) -> None:
    torch._dynamo.reset()
    counters.clear()
    model: Any = Tagger()
    if in_place:
        model.compile(backend="eager", fullgraph=True)
    else:
        model = torch.compile(model, backend="eager", fullgraph=True)
    if marked:
        with OwnLoop("by-hand", model=model, results_dir=tmp_path, quiet=True) as loop:
            for batch in loop.batches([(IDS, MASK)] * STEPS):
                with loop.step(), loop.forward():
                    model(*batch)
        assert loop.run is not None
        result = loop.run.results[0]
    else:
        result = trained(model, lambda batch: model(*batch), tmp_path, batches=[(IDS, MASK)] * STEPS)
    assert counters["stats"]["unique_graphs"] == 1 and not counters["graph_break"] and not counters["recompiles"]
    assert list(counted(result)) == [(3, 18, 5)] * STEPS
