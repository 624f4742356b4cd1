"""What is told of torch.compile's own notes: functions, guards that failed, places where graphs break, giving up."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from perf_diagnostics.measure.code import compilations as compilations_module
from perf_diagnostics.measure.code.compilations import Compilations


class Counting(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)
        self.updates = 0

    def scale(self) -> float:
        return 1 / (1 + self.updates)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) * self.scale()


class Reading(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum().item() > 0:
            x = x * 2
        return x.tanh()


def _joined(parts: list[torch.Tensor]) -> torch.Tensor:
    return sum(parts, torch.zeros(3))


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch._dynamo.reset()


def _text(told: Any) -> str:
    """The line that is told, as it stands in this file."""
    return Path(__file__).read_text().splitlines()[told["line"] - 1].strip()


def test_a_number_that_changes_is_named_with_its_line_and_giving_up_is_told() -> None:
    compilations, model = Compilations(), Counting()
    compiled = torch.compile(model, backend="eager")
    for _ in range(12):
        compiled(torch.zeros(2, 4))
        model.updates += 1
    (told,) = compilations.told()
    assert (told["function"], told["graphs"], told["gave_up"], told["breaks"]) == ("Counting.forward", 8, True, [])
    assert told["file"].endswith("test_compilations.py") and _text(told).startswith("def forward")
    assert told["seconds"] > 0
    (guard,) = told["guards"]
    assert "updates" in guard["guard"] and guard["guard"].endswith("== 7") and guard["times"] == 8
    assert guard["function"] == "scale" and _text(guard) == guard["text"] == "return 1 / (1 + self.updates)"


def test_what_holds_is_compiled_once() -> None:
    compilations, model = Compilations(), Counting()
    compiled = torch.compile(model, backend="eager")
    for _ in range(12):
        compiled(torch.zeros(2, 4))
    (told,) = compilations.told()
    assert (told["graphs"], told["gave_up"], told["guards"], told["breaks"]) == (1, False, [], [])


def test_lengths_and_sizes_are_told_as_guards() -> None:
    compilations = Compilations()
    joined = torch.compile(_joined, backend="eager")
    for count in range(1, 5):
        joined([torch.ones(3)] * count)
    (told,) = compilations.told()
    assert told["function"] == "_joined" and told["graphs"] == 4
    assert [(guard["guard"], guard["times"]) for guard in told["guards"]] == [("len(parts) == 3", 3)]

    shaped = torch.compile(Reading.forward, backend="eager", dynamic=False)
    for size in range(1, 4):
        shaped(None, torch.ones(size))
    sizes = [guard["guard"] for one in compilations.told() for guard in one["guards"]]
    assert any(text.startswith("tensor 'x' size mismatch at index 0") for text in sizes), sizes


def test_a_graph_that_breaks_is_told_with_the_line_and_the_reason() -> None:
    compilations = Compilations()
    torch.compile(Reading(), backend="eager")(torch.ones(3))
    (told,) = compilations.told()
    assert told["function"] == "Reading.forward" and told["graphs"] == 1
    (broken,) = told["breaks"]
    assert _text(broken) == broken["text"] == "if x.sum().item() > 0:"
    assert broken["function"] == "Reading.forward"
    assert "item" in broken["why"]


def test_what_was_compiled_before_is_somebody_elses() -> None:
    torch.compile(_joined, backend="eager")([torch.ones(3)])
    assert Compilations().told() == []


def _noted(monkeypatch: pytest.MonkeyPatch, entries: list[Any]) -> None:
    """A compiler whose notes are these."""
    module = ModuleType("torch._dynamo.utils")
    module.get_compilation_metrics = lambda: entries[-64:]  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", module)


def _entry(number: int, **more: Any) -> Any:
    known = {"co_name": "step", "co_filename": "gone.py", "co_firstlineno": 3, "is_forward": True, "fail_type": None}
    timed = {"start_time_us": 1e6 + number, "entire_frame_compile_time_s": 0.5, "compile_id": f"0/{number}"}
    return SimpleNamespace(**known | timed | more)


def test_what_torch_lets_go_was_counted_if_it_was_read_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    entries: list[Any] = []
    _noted(monkeypatch, entries)
    compilations = Compilations(now_us=lambda: 1e6)
    for number in range(200):
        entries.append(_entry(number))
        if number % 50 == 0:
            compilations.read()
    (told,) = compilations.told()
    assert (told["graphs"], told["seconds"]) == (200, pytest.approx(100.0))
    (told,) = compilations.told()  # nothing is counted twice
    assert told["graphs"] == 200


def test_backward_counts_in_time_and_is_no_graph_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    backward = _entry(1, compile_id="0/0", is_forward=False, co_name=None, co_filename=None, co_firstlineno=None)
    backward.entire_frame_compile_time_s, backward.duration_us = None, 250_000
    _noted(monkeypatch, [_entry(0), backward])
    (told,) = Compilations(now_us=lambda: 0.0).told()
    assert (told["graphs"], told["seconds"]) == (1, 0.75)


def test_notes_of_other_forms_give_nothing_and_raise_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another torch may note less, or name it otherwise."""
    strange = [
        SimpleNamespace(),
        SimpleNamespace(compile_id=None, start_time_us=2e6),
        SimpleNamespace(compile_id="0/0"),
    ]
    only_times = SimpleNamespace(compile_id="4/0", start_time_us=2e6, co_name=7)
    _noted(monkeypatch, [*strange, only_times])
    assert Compilations(now_us=lambda: 0.0).told() == []
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", ModuleType("torch._dynamo.utils"))
    assert Compilations(now_us=lambda: 0.0).told() == []


def test_guards_of_an_older_torch_are_read_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    reason = "0/1: L['self'].updates == 1   # scale = 1 / self.updates  # train.py:73 in scale"
    _noted(monkeypatch, [_entry(0), _entry(1, recompile_reason=reason)])
    (told,) = Compilations(now_us=lambda: 0.0).told()
    assert told["guards"] == [{"guard": "L['self'].updates == 1", "times": 1}]


def test_functions_and_guards_are_kept_up_to_some(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that makes and compiles new functions all the time must not grow by them."""
    many = [
        _entry(number, compile_id=f"{number}/0", co_name=f"f{number}", recompile_reason=f"0/0: name_{number} is None")
        for number in range(64)
    ]
    compilations = Compilations(now_us=lambda: 0.0)
    for base in range(20):
        moved = [SimpleNamespace(**vars(one)) for one in many]
        for one in moved:
            one.co_firstlineno += 100 * base
            one.compile_id = f"{one.compile_id.partition('/')[0]}{base}/0"
            one.start_time_us += 1e3 * base
        _noted(monkeypatch, moved)
        compilations.read()
    assert len(compilations._functions) <= 256 and len(compilations._of_frame) <= 256
    assert len(compilations.told()) == 8
    compilations = Compilations(now_us=lambda: 0.0)
    for first in range(0, 1000, 50):
        noted = [_entry(number, recompile_reason=f"0/0: name_{number} is None") for number in range(first, first + 50)]
        _noted(monkeypatch, noted)
        compilations.read()
    (function,) = compilations._functions.values()
    assert function.graphs == {"0": 1000} and len(function.guards) <= 256


def test_values_in_guards_are_no_part_of_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    long = "a_name_of_many_letters." * 6
    reasons = (
        "0/0: password == 'hunter2-7'   # if password:  # train.py:3 in step",
        "0/1: L['cfg']['folder'] == '/scratch/somebody/data'",
        f"0/2: {long}url == 'hf_{'A1b2C3d4' * 5}'",
        "0/3: tensor 'x' size mismatch at index 0. expected 4, actual 5",
    )
    _noted(monkeypatch, [_entry(number, recompile_reason=one) for number, one in enumerate(reasons)])
    (told,) = Compilations(now_us=lambda: 0.0).told()
    guards = {one["guard"] for one in told["guards"]}
    assert {"password == '…'", "L['cfg']['folder'] == '…'"} <= guards
    assert "tensor 'x' size mismatch at index 0. expected 4, actual 5" in guards
    assert not any("hf_" in one or "hunter" in one or "scratch" in one for one in guards)


def test_a_guard_of_many_spaces_takes_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """It took seconds for 8,000 of them, and four times as long for twice as many: only so much is looked at."""
    _noted(monkeypatch, [_entry(0, recompile_reason=f"0/0: a == {' ' * 200_000}b")])
    (told,) = Compilations(now_us=lambda: 0.0).told()
    assert [one["guard"] for one in told["guards"]] == ["a =="]


class Encoder(torch.nn.Module):
    def forward(self, x: torch.Tensor, count: int) -> torch.Tensor:
        x = x.tanh()
        torch._dynamo.graph_break()
        return x * count


class Decoder(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.sigmoid()
        torch._dynamo.graph_break()
        return x + 1


def test_what_is_left_after_a_break_belongs_to_the_function_around_it() -> None:
    """Both are called forward, and the decoder was compiled last when the encoder's rest is compiled once more."""
    compilations = Compilations()
    encoder, decoder = (torch.compile(one, backend="eager", dynamic=False) for one in (Encoder(), Decoder()))
    for count in range(4):
        decoder(encoder(torch.ones(3), count))
    told = {one["function"]: one for one in compilations.told()}
    assert set(told) == {"Encoder.forward", "Decoder.forward"}
    assert [_text(one) for one in told["Encoder.forward"]["breaks"]] == ["torch._dynamo.graph_break()"]
    assert len(told["Decoder.forward"]["breaks"]) == 1 and told["Decoder.forward"]["guards"] == []
    assert told["Encoder.forward"]["graphs"] == 4  # those of its rest
    assert told["Encoder.forward"]["guards"][0]["guard"].startswith("count == ")


def test_after_a_reset_numbers_begin_again(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [_entry(0)]
    _noted(monkeypatch, entries)
    compilations = Compilations(now_us=lambda: 0.0)
    compilations.read()
    another = _entry(0, co_name="other", co_firstlineno=9, start_time_us=3e6)
    backward = _entry(0, is_forward=False, co_name=None, start_time_us=4e6, entire_frame_compile_time_s=2.0)
    _noted(monkeypatch, [another, backward])
    told = {one["function"]: one["seconds"] for one in compilations.told()}
    assert told == {"step": 0.5, "other": 2.5}


def test_a_file_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told every few seconds, between two steps."""
    calls: list[str] = []
    names_in = compilations_module._names_in
    monkeypatch.setattr(compilations_module, "_names_in", lambda file: calls.append(file) or names_in(file))
    compilations = Compilations()
    torch.compile(Decoder(), backend="eager")(torch.ones(3))
    torch.compile(Encoder(), backend="eager")(torch.ones(3), 2)
    assert compilations.told() == compilations.told()
    assert len(calls) == 1


def test_a_librarys_lines_are_named_from_where_libraries_are(monkeypatch: pytest.MonkeyPatch) -> None:
    file = torch.nn.functional.__file__
    reason = f'0/0: lr == 0.1\nUser stack trace:\n  File "{file}", line 7, in relu'
    _noted(monkeypatch, [_entry(0, co_filename=file, co_name="relu", recompile_reason=reason)])
    (told,) = Compilations(now_us=lambda: 0.0).told()
    assert told["file"] == told["guards"][0]["file"] == "torch/nn/functional.py"
