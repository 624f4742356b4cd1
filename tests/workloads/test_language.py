"""distilbert-sst2: the true model and tokenizer, every setting honoured or refused, weights and data from elsewhere."""

from __future__ import annotations

import itertools
import pickle
import time

import pytest
import torch
from transformers import DistilBertConfig, DistilBertForSequenceClassification, PreTrainedTokenizerFast

from perf_diagnostics.errors import InvalidSettings, WorkloadError
from perf_diagnostics.records import Settings
from perf_diagnostics.workloads import BatchCount, find
from perf_diagnostics.workloads.language import Collate
from perf_diagnostics.workloads.tokenizer import SPECIAL, built_in_tokenizer
from tests.workloads.stepping import Forwards, same_training, steps

SMALL = {"layers": 2, "dim": 16, "heads": 2, "hidden": 32, "sentences": 64}
LONG = " ".join(["la"] * 200)


def build(settings: Settings | None = None, *, seed: int = 0, **options):
    return find("distilbert-sst2").build(settings or Settings(batch_size=8), options=SMALL | options, seed=seed)


@pytest.fixture(scope="module")
def local_folder(tmp_path_factory):
    """A tiny model with a tokenizer of its own, as save_pretrained writes them and the hub holds them."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    folder = tmp_path_factory.mktemp("tiny-distilbert")
    words = ["[PAD]", "[UNK]", "la", "bir", "good", "bad"]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]").save_pretrained(folder)
    torch.manual_seed(99)
    config = DistilBertConfig(vocab_size=6, n_layers=1, dim=8, n_heads=2, hidden_dim=8, max_position_embeddings=24)
    DistilBertForSequenceClassification(config).save_pretrained(folder)
    return folder


def test_the_full_size_is_distilberts_own_and_it_is_built_quickly() -> None:
    begun = time.process_time()
    training = find("distilbert-sst2").build(Settings(batch_size=2), options={}, seed=0)
    spent = time.process_time() - begun
    assert type(training.model) is DistilBertForSequenceClassification
    assert sum(p.numel() for p in training.model.parameters()) == 66_955_010
    assert training.model.config.num_labels == 2
    assert len(training.batches.dataset) == 67_349
    assert (training.optimizer.defaults["lr"], training.optimizer.defaults["weight_decay"]) == (2e-5, 0.01)
    assert training.facts == {
        "model": "DistilBertForSequenceClassification, random weights",
        "dataset": "synthetic SST-2, 67,349 sentences",
        "sequence_length": 128,
        "length_unit": "tokens",
        "optimizer": "AdamW",
        "optimizer_implementation": "single",
        "num_workers": 0,
        "pin_memory": False,
    }
    loss = training.loss_of(training.model, next(iter(training.batches)))
    assert loss.item() == pytest.approx(0.693, abs=0.3)  # two classes, untrained: ln 2
    assert spent < 6  # about 1 s alone on two cores


def test_the_same_seed_builds_the_same_training_and_another_seed_another() -> None:
    assert same_training(build(seed=1), build(seed=1))
    assert not same_training(build(seed=1), build(seed=2))


def test_dropout_follows_from_the_seed_too() -> None:
    assert steps(build(seed=3), 3) == steps(build(seed=3), 3)


def test_text_is_raw_until_a_batch_is_made() -> None:
    training = build()
    text, label = training.batches.dataset[0]
    assert isinstance(text, str)
    batch = training.batches.collate_fn([(text, label)])
    assert built_in_tokenizer().decode(batch["input_ids"][0], skip_special_tokens=True) == text
    assert batch["labels"].tolist() == [label]


class TestPadding:
    collate = Collate(built_in_tokenizer(), 128, "longest")
    rows = (("la bir", 1), ("la , bir li la", 0))

    def test_a_batch_is_padded_to_its_longest(self) -> None:
        batch = self.collate(self.rows)
        assert {name: tuple(t.shape) for name, t in batch.items()} == {
            "input_ids": (2, 7),  # five words between [CLS] and [SEP]
            "attention_mask": (2, 7),
            "labels": (2,),
        }
        assert batch["input_ids"][0, 4:].tolist() == [SPECIAL["[PAD]"]] * 3
        assert batch["attention_mask"].sum(dim=1).tolist() == [4, 7]

    def test_padding_is_counted(self) -> None:
        count = build().count
        assert count(self.collate(self.rows)) == BatchCount(2, tokens=14, padding_tokens=3)
        assert count(self.collate(self.rows[:1])) == BatchCount(1, tokens=4, padding_tokens=0)

    def test_every_batch_counts_what_it_holds(self) -> None:
        training = build(Settings(batch_size=10))
        for batch in training.batches:
            lengths = [len(built_in_tokenizer()(t)["input_ids"]) for t in map(self.decoded, batch["input_ids"])]
            longest = len(lengths) * max(lengths)
            assert training.count(batch) == BatchCount(len(lengths), longest, longest - sum(lengths))
        assert training.count(batch).samples == 4  # 64 = 6 * 10 + 4

    @staticmethod
    def decoded(ids: torch.Tensor) -> str:
        return built_in_tokenizer().decode(ids, skip_special_tokens=True)

    def test_padding_to_the_full_length_can_be_asked_for(self) -> None:
        training = build(Settings(batch_size=8, sequence_length=50), padding="max_length")
        assert {batch["input_ids"].shape[1] for batch in training.batches} == {50}


class TestSettings:
    @pytest.mark.parametrize(("asked", "length"), [(None, 128), (3, 3), (64, 64), (512, 202)])
    def test_sentences_are_cut_at_the_sequence_length(self, asked: int | None, length: int) -> None:
        training = build(Settings(batch_size=8, sequence_length=asked))
        batch = training.batches.collate_fn([(LONG, 1)])  # 200 words and two marks: 202 tokens
        assert batch["input_ids"].shape == (1, length)
        assert batch["input_ids"][0, -1] == SPECIAL["[SEP]"]
        assert training.facts["sequence_length"] == (asked or 128)

    def test_more_positions_than_the_model_has_are_refused(self) -> None:
        with pytest.raises(InvalidSettings, match="sequence_length=513 is more than the 512 positions"):
            build(Settings(batch_size=8, sequence_length=513))

    @pytest.mark.parametrize(("chosen", "forwards"), [(None, 1), (True, 2)])
    def test_checkpointing_runs_each_block_again_for_backward(self, chosen: bool | None, forwards: int) -> None:
        training = build(Settings(batch_size=8, gradient_checkpointing=chosen))
        ran = Forwards(training.model.distilbert.transformer.layer[0].attention)
        steps(training, 1)
        assert ran.count == forwards

    def test_checkpointing_a_model_without_it_is_refused(self, monkeypatch) -> None:
        monkeypatch.setattr(DistilBertForSequenceClassification, "supports_gradient_checkpointing", False)
        with pytest.raises(InvalidSettings, match="gradient_checkpointing=True cannot be honoured by DistilBertFor"):
            build(Settings(batch_size=8, gradient_checkpointing=True))

    @pytest.mark.parametrize("implementation", ["single", "foreach", "fused"])
    def test_the_optimizers_implementation_is_the_one_asked_for(self, implementation: str) -> None:
        training = build(Settings(batch_size=8, optimizer_implementation=implementation))
        assert training.facts["optimizer_implementation"] == implementation
        assert len(steps(training, 2)) == 2

    def test_workers_tokenise_the_same_batches(self) -> None:
        alone = build(Settings(batch_size=16))
        helped = build(Settings(batch_size=16, num_workers=2, prefetch_factor=3))
        assert same_training(alone, helped, batches=4)
        assert helped.facts["prefetch_factor"] == 3

    def test_what_workers_need_can_be_pickled(self) -> None:
        training = build()
        dataset, collate = pickle.loads(pickle.dumps((training.batches.dataset, training.batches.collate_fn)))
        rows = [dataset[i] for i in range(3)]
        again, before = collate(rows), training.batches.collate_fn(rows)
        assert all(torch.equal(again[name], before[name]) for name in before)

    def test_a_batch_larger_than_the_epoch_is_refused(self) -> None:
        with pytest.raises(InvalidSettings, match="batch_size=65 is more than the 64 samples"):
            build(Settings(batch_size=65))


class TestPretrained:
    def test_weights_and_tokenizer_come_from_a_local_folder(self, local_folder) -> None:
        training = find("distilbert-sst2").build(
            Settings(batch_size=2),
            options={"weights": "pretrained", "model": str(local_folder), "sentences": 10},
            seed=0,
        )
        stored = DistilBertForSequenceClassification.from_pretrained(local_folder)
        pairs = zip(training.model.parameters(), stored.parameters(), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)
        assert training.model.training  # from_pretrained leaves it in evaluation mode
        assert training.batches.collate_fn([("la good", 1)])["input_ids"].tolist() == [[2, 4]]
        assert training.facts["sequence_length"] == 24  # fewer positions than 128
        assert training.facts["model"] == "DistilBertForSequenceClassification, pretrained weights"
        assert len(steps(training, 2)) == 2

    def test_a_tokenizer_can_be_named_alone(self, local_folder) -> None:
        training = build(tokenizer=str(local_folder))
        assert training.batches.collate_fn([("bir bad", 0)])["input_ids"].tolist() == [[3, 5]]

    def test_a_tokenizer_with_more_entries_than_the_model_is_refused(self, local_folder, tmp_path) -> None:
        built_in_tokenizer().save_pretrained(tmp_path)
        options = {"weights": "pretrained", "model": str(local_folder), "tokenizer": str(tmp_path)}
        with pytest.raises(WorkloadError, match=r"has 30,522 entries, the model only 6 embeddings"):
            find("distilbert-sst2").build(Settings(batch_size=2), options=options, seed=0)

    def test_a_hub_out_of_reach_is_told_with_the_way_around(self, monkeypatch, tmp_path) -> None:
        from huggingface_hub import constants

        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
        with pytest.raises(WorkloadError, match=r"cannot be loaded from 'distilbert-base-uncased': .* save_pretrained"):
            find("distilbert-sst2").build(Settings(batch_size=2), options={"weights": "pretrained"}, seed=0)

    @pytest.mark.parametrize("name", ["./absent", "/absent", "~/absent"])
    def test_a_folder_that_is_not_there_is_not_asked_of_the_hub(self, name: str) -> None:
        with pytest.raises(WorkloadError, match=r"There is no folder '.*absent'"):
            find("distilbert-sst2").build(
                Settings(batch_size=2), options={"weights": "pretrained", "model": name, "sentences": 2}, seed=0
            )

    def test_a_folder_without_a_model_is_told(self, tmp_path) -> None:
        options = {"weights": "pretrained", "model": str(tmp_path), "sentences": 2}
        with pytest.raises(WorkloadError, match="Pretrained weights cannot be loaded from"):
            find("distilbert-sst2").build(Settings(batch_size=2), options=options, seed=0)

    def test_a_shape_does_not_go_with_pretrained_weights(self) -> None:
        with pytest.raises(WorkloadError, match="layers=2 does not go with pretrained weights"):
            build(weights="pretrained")

    def test_a_model_without_its_weights_is_refused(self) -> None:
        with pytest.raises(WorkloadError, match="model='bert' loads weights; add weights='pretrained'"):
            build(model="bert")


class TestDataset:
    @pytest.fixture
    def file(self, tmp_path):
        file = tmp_path / "mine.tsv"
        file.write_text("sentence\tlabel\n" + "".join(f"la bir {'la ' * i}\t{i % 2}\n" for i in range(6)))
        return file

    def test_a_local_file_is_trained_on(self, file) -> None:
        training = find("distilbert-sst2").build(
            Settings(batch_size=3), options=SMALL | {"dataset": str(file), "sentences": None}, seed=0
        )
        batches = list(training.batches)
        labels = itertools.chain.from_iterable(batch["labels"].tolist() for batch in batches)
        assert sorted(labels) == [0, 0, 0, 1, 1, 1]
        assert max(batch["input_ids"].shape[1] for batch in batches) == 9  # two words, five more, two marks
        assert training.facts["dataset"] == "mine.tsv, 6 sentences"

    def test_the_first_sentences_of_a_file_can_be_taken(self, file) -> None:
        training = build(Settings(batch_size=2), dataset=str(file), sentences=2)
        assert [text.strip() for text in training.batches.dataset.texts] == ["la bir", "la bir la"]

    def test_more_sentences_than_the_file_has_are_refused(self, file) -> None:
        with pytest.raises(WorkloadError, match=r"sentences=7 is more than the 6 of mine\.tsv"):
            build(dataset=str(file), sentences=7)

    def test_a_wrong_name_is_told(self) -> None:
        with pytest.raises(WorkloadError, match="dataset='glue/sst3' is neither 'synthetic' nor 'glue/sst2'"):
            build(dataset="glue/sst3")


def test_heads_that_do_not_divide_the_width_are_told() -> None:
    with pytest.raises(WorkloadError, match="dim=16 cannot be divided among heads=3"):
        build(heads=3)


def test_an_unknown_option_is_told_with_the_known_ones() -> None:
    with pytest.raises(WorkloadError, match="no option 'weight'; did you mean 'weights'"):
        build(weight="pretrained")
