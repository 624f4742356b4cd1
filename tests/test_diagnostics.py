"""PerformanceDiagnostics on the user's own parts: right numbers, and nothing of theirs disturbed."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from perf_diagnostics import PerformanceDiagnostics
from perf_diagnostics.errors import InvalidSettings, WorkloadError
from perf_diagnostics.trials import measurement, usable_device

pytestmark = pytest.mark.usefixtures("small_ceilings", "one_thread")

SEED_COLUMNS = [
    "batch_size",
    "device",
    "throughput",
    "avg_iteration_time",
    "avg_data_loading_time",
    "avg_forward_time",
    "avg_backward_time",
    "avg_optimizer_time",
    "memory_used_cpu",
    "memory_used_gpu",
    "peak_cpu_memory",
    "peak_gpu_memory",
]


class Vectors(Dataset[Any]):
    def __init__(self, samples: int = 48) -> None:
        self.x = torch.randn(samples, 8, generator=torch.Generator().manual_seed(0))
        self.drawn: list[int] = []

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> Any:
        self.drawn.append(index)
        return self.x[index], index % 3


def parts(batch_size: int = 16, **loader: Any) -> tuple[torch.nn.Module, torch.optim.Optimizer, DataLoader[Any]]:
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 3))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    return model, optimizer, DataLoader(Vectors(), batch_size=batch_size, shuffle=True, **loader)


def profiler_of(model: torch.nn.Module, optimizer: torch.optim.Optimizer, **arguments: Any) -> PerformanceDiagnostics:
    return PerformanceDiagnostics(model, torch.nn.CrossEntropyLoss(), optimizer, device="cpu", **arguments)


def test_the_columns_users_know_with_their_meaning_right() -> None:
    model, optimizer, loader = parts()
    profiler = profiler_of(model, optimizer)
    table = profiler.run_diagnostics(loader, batch_sizes=[8, 16], num_iterations=20)
    assert list(table.columns[:12]) == SEED_COLUMNS
    assert table["batch_size"].tolist() == [8, 16]
    assert (table["steps"] == 20).all()
    for row in table.to_dict("records"):
        phases = sum(
            row[f"avg_{name}_time"]
            for name in ("data_loading", "transfer", "forward", "backward", "optimizer", "other")
        )
        assert phases == pytest.approx(row["avg_iteration_time"], rel=1e-6)
        # 48 samples make whole batches of 8 and of 16: all samples over all time is batch over mean step time.
        assert row["throughput"] == pytest.approx(row["batch_size"] / row["avg_iteration_time"], rel=1e-6)
        assert row["peak_cpu_memory"] > 0.05
        assert np.isnan(row["peak_gpu_memory"])  # not measured, which is not 0
    assert profiler.get_results().equals(table)


def test_a_hundred_steps_of_three_batches_an_epoch_are_a_hundred() -> None:
    model, optimizer, loader = parts()
    row = profiler_of(model, optimizer).profile_batch_size(loader, 16, num_iterations=100)
    assert row["steps"] == 100 and row["outcome"] == "completed"


def test_what_is_the_users_stays_as_it_was() -> None:
    model, optimizer, loader = parts(generator=torch.Generator().manual_seed(5))
    loss = torch.nn.functional.cross_entropy(model(torch.ones(4, 8)), torch.zeros(4, dtype=torch.long))
    loss.backward()
    optimizer.step()
    model.eval()
    model[0].requires_grad_(False)
    random.seed(3)
    np.random.seed(4)
    torch.manual_seed(6)
    before = (
        {name: value.clone() for name, value in model.state_dict().items()},
        [{k: v.clone() for k, v in s.items()} for s in optimizer.state.values()],
        [p.grad.clone() for p in model.parameters()],
        random.getstate(),
        np.random.get_state()[1].tolist(),
        torch.get_rng_state(),
        loader.generator.get_state(),
        torch.get_num_threads(),
    )
    profiler_of(model, optimizer).run_diagnostics(loader, batch_sizes=[8, 16], num_iterations=3)
    assert all(torch.equal(value, before[0][name]) for name, value in model.state_dict().items())
    assert all(
        torch.equal(value, old[name])
        for state, old in zip(optimizer.state.values(), before[1], strict=True)
        for name, value in state.items()
    )
    assert all(torch.equal(p.grad, old) for p, old in zip(model.parameters(), before[2], strict=True))
    assert not model.training and not model[0].weight.requires_grad
    assert random.getstate() == before[3]
    assert np.random.get_state()[1].tolist() == before[4]
    assert torch.equal(torch.get_rng_state(), before[5])
    assert torch.equal(loader.generator.get_state(), before[6])
    assert torch.get_num_threads() == before[7]
    assert loader.batch_size == 16


def test_each_configuration_starts_from_the_users_state() -> None:
    """Losses of the first steps are equal for two runs of the same configuration: nothing was carried over."""
    model, optimizer, loader = parts(generator=torch.Generator().manual_seed(5))
    profiler = profiler_of(model, optimizer)
    for _ in range(2):
        profiler.profile_batch_size(loader, 8, num_iterations=4)
    first, second = (result.steps[0].columns["loss"] for result in profiler.run.results)
    assert first.tolist() == second.tolist()
    assert len(set(first.tolist())) > 1


class Words(Dataset[Any]):
    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"ids": list(range(1 + index % 5)), "label": index % 2}


def pad(items: list[dict[str, Any]]) -> dict[str, Any]:
    longest = max(len(item["ids"]) for item in items)
    ids = [item["ids"] + [0] * (longest - len(item["ids"])) for item in items]
    return {"input_ids": torch.tensor(ids), "labels": torch.tensor([item["label"] for item in items])}


class Bag(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(8, 2)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        return self.embedding(input_ids).mean(1)


def dict_loss(model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(model(batch["input_ids"]), batch["labels"])


def test_dict_batches_from_the_users_own_collate_function() -> None:
    model = Bag()
    profiler = PerformanceDiagnostics(model, dict_loss, torch.optim.SGD(model.parameters(), lr=0.1), device="cpu")
    table = profiler.run_diagnostics(DataLoader(Words(), batch_size=5, collate_fn=pad), [2, 5], num_iterations=6)
    assert table["outcome"].tolist() == ["completed"] * 2
    assert profiler.run.results[0].steps[0].get("tokens") is not None


def test_the_users_sampler_decides_what_is_drawn() -> None:
    model, optimizer, _ = parts()
    data = Vectors()
    loader = DataLoader(data, batch_size=4, sampler=torch.utils.data.SubsetRandomSampler([1, 2, 3, 4, 5, 6, 7, 8]))
    profiler_of(model, optimizer).profile_batch_size(loader, 2, num_iterations=8)
    assert set(data.drawn) == set(range(1, 9))


@pytest.mark.slow
def test_workers_of_the_users_loader_are_used() -> None:
    model, optimizer, loader = parts(num_workers=1, persistent_workers=True)
    profiler = profiler_of(model, optimizer)
    assert profiler.profile_batch_size(loader, 8, num_iterations=6)["outcome"] == "completed"
    assert profiler.run.results[0].facts["num_workers"] == 1


class OutOfMemoryAbove(torch.nn.Module):
    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit
        self.layer = torch.nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if len(x) > self.limit:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")
        return self.layer(x)


def test_out_of_memory_is_a_row_and_the_other_sizes_still_run() -> None:
    model = OutOfMemoryAbove(10)
    profiler = profiler_of(model, torch.optim.SGD(model.parameters(), lr=0.1))
    _, _, loader = parts()
    table = profiler.run_diagnostics(loader, [4, 8, 12, 16, 24], num_iterations=4).set_index("batch_size")
    assert table.loc[[4, 8], "outcome"].tolist() == ["completed"] * 2
    assert table.loc[8, "throughput"] > 0
    failed = set(table.loc[[12, 16, 24], "outcome"])
    assert "out_of_memory_device" in failed and failed <= {"out_of_memory_device", "skipped_larger_than_oom"}
    assert table.loc[[12, 16, 24], "throughput"].isna().all()


def test_adam_over_cpu_and_a_second_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Adam's moments made on the CPU must follow the model; the meta device refuses to mix, as a GPU would.

    A model's own way to the meta device makes new parameters, of which its optimizer knows nothing. Swapped, they stay
    the same objects, as they do on their way to a GPU.
    """
    monkeypatch.setattr(torch.__future__, "_swap_module_params_on_conversion", True)
    monkeypatch.setattr(usable_device, "_device_count", lambda kind: 1)
    monkeypatch.setattr(measurement, "event_source", lambda device, clock: None)
    to_float = torch.Tensor.__float__
    monkeypatch.setattr(torch.Tensor, "__float__", lambda t: 0.5 if t.is_meta else to_float(t))  # meta has no values
    model, optimizer, loader = parts()
    torch.nn.functional.cross_entropy(model(torch.ones(4, 8)), torch.zeros(4, dtype=torch.long)).backward()
    optimizer.step()  # state exists, on the CPU
    profiler = profiler_of(model, optimizer)
    table = profiler.run_diagnostics(loader, [8], num_iterations=3, devices=[torch.device("cpu"), "meta"])
    assert table["outcome"].tolist() == ["completed", "completed"], table["reason"].tolist()
    assert {tensor.device.type for state in optimizer.state.values() for tensor in state.values()} == {"cpu"}


@pytest.mark.slow
def test_a_second_run_of_the_same_sizes_can_still_be_plotted() -> None:
    model, optimizer, loader = parts()
    profiler = profiler_of(model, optimizer)
    for _ in range(2):
        profiler.run_diagnostics(loader, [8, 16], num_iterations=4)
    assert profiler.get_results()["repeat"].tolist() == [0, 1, 0, 1]
    for figure in (
        profiler.plot_throughput_vs_batch_size(),
        profiler.plot_time_breakdown(),
        profiler.plot_memory_usage(),
    ):
        assert figure.axes[0].has_data()


def test_the_report_prints_shows_itself_and_saves_every_format(tmp_path: Path) -> None:
    model, optimizer, loader = parts()
    profiler = profiler_of(model, optimizer)
    profiler.run_diagnostics(loader, [4, 8, 16], num_iterations=30)
    report = profiler.generate_bottleneck_report()
    assert str(report).startswith("Training performance of ")
    assert " batch  samples/s  " in str(report)
    whole = report.to_markdown()
    assert whole.startswith("# ") and "| batch" in whole.lower() and len(whole.splitlines()) > 100
    shown = report._repr_mimebundle_()
    assert "<script" not in shown["text/html"] and shown["text/plain"] == str(report)
    assert all(finding.evidence for finding in report.findings)
    for suffix in (".html", ".pptx", ".md", ".json"):
        assert report.save(tmp_path / f"x{suffix}").stat().st_size > 1000
    with pytest.raises(InvalidSettings, match=r"x\.doc"):
        report.save(tmp_path / "x.doc")


def test_what_can_only_mean_one_thing_is_taken_as_that() -> None:
    model, optimizer, loader = parts()
    profiler = profiler_of(model, optimizer)
    profiler.run_diagnostics(loader, np.int64(8), num_iterations=np.int32(2), devices="cpu", precisions="float32")
    table = profiler.run_diagnostics(
        loader, np.array([8, 12]), num_iterations=2, devices=["cpu", torch.device("cpu:0")]
    )
    assert table[["batch_size", "device", "steps"]].to_numpy().tolist() == [
        [8, "cpu", 2],
        [8, "cpu", 2],
        [12, "cpu", 2],
    ]
    assert "3 configurations measured" in repr(profiler)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"batch_sizes": []}, "at least one batch size"),
        ({"batch_sizes": None}, "batch_sizes=None is a NoneType"),
        ({"batch_sizes": "8,16"}, "batch_sizes='8,16' is a str"),
        ({"batch_sizes": [8, 8.5]}, r"batch_size=8\.5 must be a whole number"),
        ({"batch_sizes": [0]}, "batch_size=0"),
        ({"num_iterations": 3.5}, r"num_iterations=3\.5 must be a whole number of at least 1"),
        ({"num_iterations": 0}, "num_iterations=0"),
        ({"devices": ["gpu"]}, "device='gpu' is no device name"),
        ({"devices": "gpu"}, "device='gpu' is no device name"),
        ({"devices": [3.5]}, r"device=3\.5 is a float"),
        ({"devices": []}, "devices=.* names no device"),
        ({"devices": ["cpu", "cuda:99"]}, "device='cuda:99'"),
        ({"precisions": ["float32", "float16"]}, "float16"),
        ({"time_budget_s": -1}, "-1 is no length of time"),
        ({"time_budget_s": "10"}, "'10' is no length of time"),
        ({"time_budget_s": float("inf")}, "inf is no length of time"),
        ({"time_budget_s": float("nan")}, "nan is no length of time"),
        ({"seed": "first"}, "seed='first'"),
        ({"results_dir": 3}, "results_dir=3 is no folder"),
        ({"dataloader": None}, "dataloader=None has no batches"),
        ({"dataloader": []}, "an empty list"),
        ({"dataloader": iter([(torch.ones(8, 8), torch.zeros(8))])}, "passes only once"),
        ({"dataloader": Vectors()}, r"a data set \(Vectors\)"),
        ({"dataloader": DataLoader(Vectors(), batch_sampler=[[0, 1], [2, 3]])}, "batches in a way of its own"),
        (
            {"batch_sizes": [49, 1000]},
            "batch_size=49: no batch would be full, for one pass over the data has 48 samples",
        ),
    ],
)
def test_what_no_configuration_could_run_is_refused_once_before_the_first(given: dict[str, Any], says: str) -> None:
    model, optimizer, loader = parts()
    profiler = profiler_of(model, optimizer)
    arguments = {"dataloader": loader, "batch_sizes": [8, 16], "num_iterations": 2, **given}
    with pytest.raises(InvalidSettings, match=says):
        profiler.run_diagnostics(**arguments)
    assert profiler.get_results().empty


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_gpu_that_is_not_there_is_said_once() -> None:
    model, optimizer, loader = parts()
    with pytest.raises(InvalidSettings, match="device='cuda:0': this machine has no such device; usable here: cpu"):
        PerformanceDiagnostics(model, torch.nn.CrossEntropyLoss(), optimizer, device="cuda")
    with pytest.raises(InvalidSettings, match="device='cuda:0'"):
        profiler_of(model, optimizer).profile_batch_size(loader, 8, device="cuda")


def test_a_batch_that_a_pass_cannot_fill_is_a_row_that_says_so_and_the_others_run() -> None:
    model, optimizer, loader = parts()
    table = profiler_of(model, optimizer).run_diagnostics(loader, [32, 64], num_iterations=3).set_index("batch_size")
    # 48 samples: a batch of 32 and one of 16 in turn; 64 never.
    assert table["outcome"].tolist() == ["completed", "invalid_settings"]
    assert "48 samples" in table.loc[64, "reason"] and np.isnan(table.loc[64, "throughput"])


def test_a_loader_with_batches_of_its_own_is_measured_at_the_size_they_have() -> None:
    model, optimizer, loader = parts()
    own = DataLoader(loader.dataset, batch_sampler=[list(range(at, at + 8)) for at in (0, 16, 32)])
    table = profiler_of(model, optimizer).run_diagnostics(own, [8, 16], num_iterations=3).set_index("batch_size")
    assert table["outcome"].tolist() == ["completed", "invalid_settings"]
    assert "of 8 samples. Ask for batch_size=8 alone" in table.loc[16, "reason"]


class Drawn:
    """Batches of 4 that are drawn anew at each pass, from generators of the whole process."""

    def __iter__(self) -> Any:
        random.random()
        return iter([(torch.randn(4, 8), torch.zeros(4, dtype=torch.long))] * 2)


def test_looking_at_data_draws_nothing_that_is_missed() -> None:
    model, optimizer, _ = parts()
    profiler = profiler_of(model, optimizer)
    before = random.getstate(), torch.get_rng_state()
    with pytest.raises(InvalidSettings, match="the Drawn holds batches of 4"):
        profiler.run_diagnostics(Drawn(), [8], num_iterations=2)
    assert random.getstate() == before[0] and torch.equal(torch.get_rng_state(), before[1])
    assert profiler.profile_batch_size(Drawn(), 4, num_iterations=2)["outcome"] == "completed"
    assert random.getstate() == before[0] and torch.equal(torch.get_rng_state(), before[1])


def test_bad_input_is_told() -> None:
    model, optimizer, loader = parts()
    profiler = profiler_of(model, optimizer)
    with pytest.raises(WorkloadError, match="Nothing has been measured"):
        profiler.generate_bottleneck_report()
    with pytest.raises(WorkloadError, match="Nothing has been measured"):
        profiler.confirm(loader)
    with pytest.raises(InvalidSettings, match="batch_size=0"):
        profiler.profile_batch_size(loader, 0)
    with pytest.raises(InvalidSettings, match="num_iterations=0"):
        profiler.profile_batch_size(loader, 8, num_iterations=0)
    model.requires_grad_(False)  # after the profiler was made
    with pytest.raises(InvalidSettings, match="nothing to train"):
        profiler.profile_batch_size(loader, 8)
