"""What attaching leaves behind, what it must not change, and what it must survive."""

from __future__ import annotations

import copy
import gc
import pickle
import sys
import threading
import weakref
from pathlib import Path

import pytest
import torch
from torch.optim import optimizer as torch_optimizer
from torch.utils.data import DataLoader, dataloader

from perf_diagnostics.errors import InvalidSettings, RunError
from perf_diagnostics.integrations import attach
from perf_diagnostics.integrations.model import losses as losses_module
from perf_diagnostics.integrations.model.losses import Losses, scales_losses
from perf_diagnostics.integrations.model.modules import outermost, watch_calls
from perf_diagnostics.integrations.record.recording import Recording
from perf_diagnostics.integrations.watching import watched_steps
from perf_diagnostics.integrations.watching.watch import Watch
from perf_diagnostics.measure import environment
from perf_diagnostics.measure.steps.tape import APART, LEAVE, START, TRAINS, code_of


def parts():
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader([torch.randn(4) for _ in range(32)], batch_size=4)
    return model, optimizer, loader


def a_watch(folder: Path) -> Watch:
    return Watch(workload="w", name=None, results_dir=folder)


def codes_on_the_tape(watch: Watch) -> list[int]:
    return [code_of(mark) for mark in watch.probe._marks]


def train(model, optimizer, loader) -> None:
    for batch in loader:
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()


def patched_places(model, optimizer):
    return (
        torch.Tensor.backward,
        torch.autograd.backward,
        DataLoader.__iter__,
        dataloader._BaseDataLoaderIter.__next__,
        dict(torch_optimizer._global_optimizer_pre_hooks),
        dict(optimizer._optimizer_step_pre_hooks),
        dict(optimizer._optimizer_step_post_hooks),
        [dict(module.__dict__) for module in model.modules()],
        list(gc.callbacks),
    )


def test_everything_comes_off_also_after_an_exception(tmp_path: Path) -> None:
    model, optimizer, loader = parts()
    train(model, optimizer, loader)  # the optimizer's state is there
    before = patched_places(model, optimizer)
    with pytest.raises(KeyError), attach(model, optimizer, loader, results_dir=tmp_path) as seen:
        train(model, optimizer, loader)
        during = patched_places(model, optimizer)
        raise KeyError("stop")
    assert seen.steps == 8
    after = patched_places(model, optimizer)
    assert [a is b or a == b for a, b in zip(before[:7], after[:7], strict=True)] == [True] * 7
    assert [a is not b for a, b in zip(before[:4], during[:4], strict=True)] == [False, True, True, True]
    assert before[7] == after[7] and before[8] == after[8]
    assert "backward" not in vars(torch.nn.Parameter)


def test_threads_of_the_script_take_turns_as_before_but_where_the_record_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each file that is read hands Python's lock over: beside a thread that computes thousands of them take long."""
    plain = sys.getswitchinterval()
    seen: dict[str, float] = {}
    capture, finish = environment.capture, Recording.finish
    monkeypatch.setattr(environment, "capture", lambda: seen.update(begins=sys.getswitchinterval()) or capture())
    monkeypatch.setattr(Recording, "finish", lambda *given: seen.update(ends=sys.getswitchinterval()) or finish(*given))
    model, optimizer, loader = parts()
    with attach(model, optimizer, loader, results_dir=tmp_path, quiet=True):
        train(model, optimizer, loader)
        seen["between"] = sys.getswitchinterval()
    assert seen["between"] == sys.getswitchinterval() == plain
    assert max(seen["begins"], seen["ends"]) < plain / 10


def test_what_attach_gives_is_entered_once(tmp_path: Path) -> None:
    model, optimizer, loader = parts()
    measured = attach(model, optimizer, loader, results_dir=tmp_path, quiet=True)
    with measured as seen:
        train(model, optimizer, loader)
        with pytest.raises(RunError, match="entered before"), measured:
            pass
    before = patched_places(model, optimizer)
    with pytest.raises(RunError, match=r"call attach\(\.\.\.\) again"):
        measured.__enter__()
    assert seen.steps == 8 and patched_places(model, optimizer) == before
    gone = weakref.ref(loader)
    del loader, seen
    gc.collect()
    assert gone() is None  # what it was given is not held any more


def test_an_interactive_session_is_told_how_far_it_is_and_where_the_rest_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, optimizer, loader = parts()
    with attach(model, optimizer, loader, results_dir=tmp_path, quiet=True) as seen:
        train(model, optimizer, loader)
        assert repr(seen) == "<Attached: steps so far: 8; .run has the records once it ended>"
    assert repr(seen) == f"<Attached: steps: 8 in {seen.folder}; BottleneckReport.of(its.run) is the report>"
    monkeypatch.setenv("PERF_DIAGNOSTICS_DISABLED", "1")
    with attach(model, optimizer, loader, results_dir=tmp_path) as off:
        assert repr(off) == "<Attached: PERF_DIAGNOSTICS_DISABLED is set, nothing is measured>"


def test_as_a_decorator_attach_measures_each_call(tmp_path: Path) -> None:
    model, optimizer, loader = parts()

    @attach(model, optimizer, loader, results_dir=tmp_path, quiet=True)
    def trained() -> None:
        train(model, optimizer, loader)

    trained()
    trained()
    assert len(list(tmp_path.iterdir())) == 2


def test_the_iterators_type_and_the_weights_are_those_of_a_plain_run(tmp_path: Path) -> None:
    weights = []
    for watching in (False, True):
        torch.manual_seed(0)
        model, optimizer, loader = parts()
        if watching:
            with attach(model, optimizer, loader, results_dir=tmp_path):
                assert type(iter(loader)).__name__ == "_SingleProcessDataLoaderIter"
                train(model, optimizer, loader)
        else:
            iter(loader)
            train(model, optimizer, loader)
        weights.append((torch.rand(1), *(p.detach().clone() for p in model.parameters())))
    assert all(torch.equal(a, b) for a, b in zip(*weights, strict=True))


def test_a_watched_model_can_be_copied_and_pickled(tmp_path: Path) -> None:
    model, optimizer, loader = parts()
    with attach(model, optimizer, loader, results_dir=tmp_path):
        train(model, optimizer, loader)
        assert "_compiled_call_impl" in vars(model)
        assert "_compiled_call_impl" not in vars(copy.deepcopy(model))
        assert "_compiled_call_impl" not in vars(pickle.loads(pickle.dumps(model)))


def test_a_watched_model_goes_when_it_is_let_go(tmp_path: Path) -> None:
    model = torch.nn.Linear(2, 2)
    undo = watch_calls(model, a_watch(tmp_path))
    model(torch.zeros(1, 2))
    gone = weakref.ref(model)
    gc.disable()
    try:
        del model
        assert gone() is None
    finally:
        gc.enable()
    undo()


def test_the_model_may_be_compiled_after_it_was_attached(tmp_path: Path) -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    model, optimizer, loader = parts()
    with attach(model, optimizer, loader, results_dir=tmp_path) as seen:
        train(torch.compile(model, backend="eager", fullgraph=True), optimizer, loader)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    assert not torch._dynamo.utils.counters["graph_break"]
    steady = seen.run.results[0].steps[0].steady
    assert len(steady) and (steady.columns["host_forward_ns"] > 0).all()


def test_a_model_inside_a_wrapper_is_watched_as_the_wrapper() -> None:
    inner = torch.nn.Linear(2, 2)
    middle = torch.nn.Sequential(inner)
    outer = torch.nn.Sequential(middle)
    assert outermost([inner]) == [outer]
    assert outermost([], list(inner.parameters())) == [outer]


def test_a_call_that_raises_ends_the_phase_too(tmp_path: Path) -> None:
    model = torch.nn.Linear(2, 2)
    watch = a_watch(tmp_path)
    undo = watch_calls(model, watch)
    for _ in range(2):  # the first call goes the general way, the second one is plain
        with pytest.raises(RuntimeError):
            model(torch.zeros(3, 3))
        assert watch.probe.depth == 0
    undo()
    model(torch.zeros(1, 2))
    # Nothing that gradients go through was computed between the two.
    assert codes_on_the_tape(watch) == [START, TRAINS, LEAVE, APART, TRAINS, LEAVE]


def test_an_optimizer_that_raised_and_was_caught_does_not_keep_the_time(tmp_path: Path) -> None:
    class Fails(torch.optim.SGD):
        calls = 0

        def step(self, closure=None):
            self.calls += 1
            if self.calls == 6:
                raise RuntimeError("this once")
            return super().step(closure)

    model, _, loader = parts()
    optimizer = Fails(model.parameters(), lr=0.1)
    with attach(model, optimizer, loader, results_dir=tmp_path) as seen:
        for _ in range(2):
            for batch in loader:
                model(batch).sum().backward()
                try:
                    optimizer.step()
                except RuntimeError:
                    threading.Event().wait(0.05)  # what is done about it is not the optimizer's time
    table = seen.run.results[0].steps[0]
    assert len(table) == 15
    assert table.samples[5] == 8
    assert table.columns["host_optimizer_ns"][5] < 30e6


def test_other_threads_are_not_watched(tmp_path: Path) -> None:
    model, optimizer, loader = parts()
    with attach(model, optimizer, loader, results_dir=tmp_path) as seen:
        train(model, optimizer, loader)
        thread = threading.Thread(target=train, args=(model, optimizer, loader))
        thread.start()
        thread.join()
    assert seen.steps == 8


def test_of_other_loaders_nothing_is_counted(tmp_path: Path) -> None:
    model, optimizer, loader = parts()
    with attach(model, optimizer, loader, results_dir=tmp_path) as seen:
        for batch in loader:
            list(DataLoader([torch.zeros(2)] * 4))  # something else that reads
            model(batch).sum().backward()
            optimizer.step()
    assert seen.run.results[0].steps[0].samples.tolist() == [4] * 8


def test_worker_processes_feed_a_watched_loader(tmp_path: Path) -> None:
    model, optimizer, _ = parts()
    loader = DataLoader([torch.randn(4) for _ in range(32)], batch_size=4, num_workers=1, persistent_workers=True)
    with attach(model, optimizer, loader, results_dir=tmp_path) as seen:
        train(model, optimizer, loader)
        train(model, optimizer, loader)
    result = seen.run.results[0]
    assert result.steps[0].samples.tolist() == [4] * 16
    assert result.facts["num_workers"] == 1 and result.facts["persistent_workers"] is True
    assert result.steps[0].columns["epoch"].tolist() == [0] * 8 + [1] * 8
    room = [result.value(f"shared_memory_{name}") for name in ("total", "free_before", "free_least")]
    assert None not in room and room[0] >= room[1] > 0 and room[0] >= room[2] > 0


def test_without_workers_nobody_asks_for_the_room_they_would_need(tmp_path: Path) -> None:
    model, optimizer, loader = parts()
    with attach(model, optimizer, loader, results_dir=tmp_path) as seen:
        train(model, optimizer, loader)
    result = seen.run.results[0]
    assert result.value("shared_memory_total") is None and result.gap("shared_memory_total") is None


def test_turned_off_nothing_is_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERF_DIAGNOSTICS_DISABLED", "1")
    model, optimizer, loader = parts()
    before = patched_places(model, optimizer)
    with attach(model, optimizer, loader, results_dir=tmp_path) as seen:
        assert patched_places(model, optimizer)[:4] == before[:4]
        train(model, optimizer, loader)
    assert seen.run is None and list(tmp_path.iterdir()) == []


def test_tokens_and_padding_of_a_batch_with_input_ids(tmp_path: Path) -> None:
    rows = [{"input_ids": torch.ones(6, dtype=torch.long), "attention_mask": torch.tensor([1, 1, 1, 1, 0, 0])}] * 20
    model = torch.nn.Embedding(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(rows, batch_size=4)
    with attach(model, optimizer, loader, results_dir=tmp_path) as seen:
        for batch in loader:
            model(batch["input_ids"]).sum().backward()
            optimizer.step()
    table = seen.run.results[0].steps[0]
    assert table.columns["tokens"].tolist() == [24] * 5
    assert table.columns["padding_tokens"].tolist() == [8] * 5


def test_the_loss_that_backward_was_called_on_is_recorded_now_and_then(tmp_path: Path) -> None:
    model, optimizer, loader = parts()
    with attach(model, optimizer, loader, results_dir=tmp_path) as seen:
        losses = []
        for batch in loader:
            optimizer.zero_grad()
            loss = model(batch).sum()
            loss.backward()
            losses.append(float(loss.detach()))
            optimizer.step()
    recorded = seen.run.results[0].steps[0].columns["loss"]
    assert recorded[0] == losses[0]  # the first step's always; later ones when 50 ms have passed
    read = ~torch.isnan(torch.tensor(recorded))
    assert recorded[read].tolist() == [loss for loss, there in zip(losses, read, strict=True) if there]
    assert seen.run.results[0].gap("loss") is None


def test_of_several_backwards_a_step_no_loss_is_made_up(tmp_path: Path) -> None:
    model, optimizer, loader = parts()
    with attach(model, optimizer, loader, results_dir=tmp_path) as seen:
        for number, batch in enumerate(loader):
            model(batch).sum().backward()
            if number % 2:
                optimizer.step()
    result = seen.run.results[0]
    assert result.steps[0].get("loss") is None and "once a step" in result.gap("loss").why


def test_a_scaled_loss_is_refused() -> None:
    losses = Losses()
    losses.backward(torch.tensor(65536.0))
    losses.step_ends(0)
    assert scales_losses([torch.amp.GradScaler("cpu")]) and not scales_losses([torch.amp.GradScaler(enabled=False)])
    losses.refuse("scaled")
    losses.look()
    assert losses.take() == {} and not losses.wanted


def test_a_loss_that_a_cuda_graph_captures_is_not_copied_into_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each replay would make the copy anew."""
    losses, captured = Losses(), True
    monkeypatch.setattr(losses_module, "captures", lambda _device: captured)
    losses.backward(torch.tensor(1.0))
    losses.step_ends(0)
    assert losses.take() == {}
    losses, captured = Losses(), False
    losses.backward(torch.tensor(1.0))
    losses.step_ends(0)
    assert losses.take() == {0: torch.tensor(1.0)}


def test_swapped_arguments_are_refused_in_one_line(tmp_path: Path) -> None:
    model, optimizer, loader = parts()
    with (
        pytest.raises(
            InvalidSettings, match=r"^attach\(\) was given model=SGD \( Parameter Group 0 [^\n]+; it takes a torch"
        ),
        attach(optimizer, model, loader, results_dir=tmp_path),  # type: ignore[arg-type]
    ):
        pass


def test_a_closure_without_a_loader_gives_the_batch_its_rows_and_not_a_part_of_them(tmp_path: Path) -> None:
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=5, lr=1e-3)
    x, y = torch.randn(16, 4), torch.randn(16, 1)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    with attach(model, optimizer, results_dir=tmp_path) as seen:
        for _ in range(8):
            optimizer.step(closure)
    (result,) = seen.run.results
    assert result.steps[0].columns["samples"].tolist() == [16] * 8
    assert result.trial.settings.batch_size == 16


def test_the_end_of_the_block_tells_the_run_on_standard_error_only(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    for quiet in (False, True):
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        name = f"quiet-{quiet}".lower()
        with attach(model, optimizer, name=name, results_dir=tmp_path, quiet=quiet):
            for _ in range(8):
                model(torch.randn(2, 4)).sum().backward()
                optimizer.step()
        told = capsys.readouterr()
        assert told.out == ""
        assert (name in told.err) is not quiet


@pytest.mark.parametrize(
    ("model", "optimizer", "loader", "says"),
    [
        ([], "sgd", None, r"model=\[\]"),
        (None, "sgd", None, "model=None"),
        ("sgd", "net", None, "model=SGD"),
        ("net", [], None, r"optimizer=\[\]"),
        ("net", "sgd", 3, "loader=3"),
    ],
)
def test_what_is_no_model_optimizer_or_loader_is_named(
    tmp_path: Path, model: object, optimizer: object, loader: object, says: str
) -> None:
    net = torch.nn.Linear(4, 1)
    known = {"net": net, "sgd": torch.optim.SGD(net.parameters(), lr=1e-3)}
    given = [known.get(one, one) if isinstance(one, str) else one for one in (model, optimizer)]
    with pytest.raises(InvalidSettings, match=says), attach(*given, loader, results_dir=tmp_path):  # type: ignore[arg-type]
        pass


@pytest.mark.parametrize("own", [False, True])
def test_train_is_called_only_when_the_batch_is_there(tmp_path: Path, own: bool) -> None:
    """After an evaluation the next batch, or pass, begins in evaluation mode and is for training all the same."""

    class Own:
        def __iter__(self):
            return iter(batches)

    batches = [(torch.randn(4, 4), torch.randn(4, 1)) for _ in range(10)]
    loader = Own() if own else DataLoader(batches, batch_size=None)
    held_out = DataLoader(batches, batch_size=None)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with attach(model, optimizer, loader if own else None, results_dir=tmp_path, quiet=True) as seen:
        for _ in range(3):
            for step, (x, y) in enumerate(loader):
                model.train()
                torch.nn.functional.mse_loss(model(x), y).backward()
                optimizer.step()
                if step % 5 == 4:  # after the last one of a pass, too
                    model.eval()
                    for unseen, _ in held_out:
                        model(unseen)
    table = seen.run.results[0].steps[0]
    assert table.columns["epoch"].tolist() == [0] * 10 + [1] * 10 + [2] * 10
    assert table.columns["samples"].tolist() == [4] * 30
    assert (table.columns["host_data_wait_ns"][1:] > 0).all()


def test_a_training_whose_first_step_is_a_capture_is_asked_for_its_device_in_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[object] = []
    asked_after: list[int] = []

    def captures(device: object) -> bool:
        looked.append(device)
        return len(looked) < 3

    monkeypatch.setattr(watched_steps, "captures", captures)
    monkeypatch.setattr(watched_steps, "event_source", lambda *_: asked_after.append(len(looked)))
    model, optimizer, loader = parts()
    with attach(model, optimizer, loader, results_dir=tmp_path):
        train(model, optimizer, loader)
    assert asked_after == [3]  # not in the two captures, once after the next step, and never again


def copied(module: torch.nn.Module) -> torch.nn.Module:
    """As learn2learn's ``clone_module`` and the replicas of DataParallel are made."""
    copy_ = module.__new__(type(module))
    copy_.__dict__ = module.__dict__.copy()
    copy_._parameters = {name: one + 1 for name, one in module._parameters.items()}
    copy_._modules = {name: copied(one) for name, one in module._modules.items()}
    return copy_


def test_the_call_of_a_copy_of_all_attributes_is_the_copys_own(tmp_path: Path) -> None:
    model, optimizer, loader = parts()
    x = torch.ones(1, 4)
    wanted = copied(model)(x)
    with attach(model, optimizer, loader, results_dir=tmp_path):
        copy_ = copied(model)
        assert "_compiled_call_impl" in vars(copy_) and torch.equal(copy_(x), wanted)
        assert not torch.equal(model(x), wanted)


def test_a_copy_of_all_attributes_may_outlive_the_model(tmp_path: Path) -> None:
    model, wanted = torch.nn.Linear(4, 1), torch.ones(1, 4)
    undo = watch_calls(model, a_watch(tmp_path))
    copy_ = copied(model)
    expected = copy_.forward(wanted)
    del model
    gc.collect()
    assert torch.equal(copy_(wanted), expected)
    undo()
