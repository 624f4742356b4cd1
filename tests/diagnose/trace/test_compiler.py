"""What torch.compile writes into a trace, and what is made of it: small trainings that are recorded here."""

from __future__ import annotations

import json
from collections.abc import Callable, Container
from pathlib import Path

import pytest
import torch
from torch import nn

from perf_diagnostics.diagnose.finding import Cleared, Finding, Severity
from perf_diagnostics.diagnose.not_measured import NotApplicable
from perf_diagnostics.diagnose.rules.hst007_recompiles import Recompiles
from perf_diagnostics.diagnose.trace import diagnose_traces
from perf_diagnostics.diagnose.trace.compiler import Compiler, is_compilers
from perf_diagnostics.diagnose.trace.events import Kind
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.phases import Phases
from perf_diagnostics.diagnose.trace.reader import read_trace
from perf_diagnostics.diagnose.trace.rules.hst006_time_outside_phases import OperatorsOutsidePhases
from perf_diagnostics.diagnose.trace.rules.hst007_recompiles import CompilesInSteps
from tests.diagnose.trace.builder import ask
from tests.diagnose.trace.test_nodes_of_torch import recorded

pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")

X = torch.randn(256, 256)


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch._dynamo.reset()


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*[part for _ in range(4) for part in (nn.Linear(256, 256), nn.Tanh())])
        self.scale = 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x) * self.scale


def training(backend: str | None, *, again: Container[int] = ()) -> Callable[[], None]:
    """A step; before the calls of these numbers a number of the module changes."""
    model = Scaled()
    compiled = model if backend is None else torch.compile(model, backend=backend)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
    calls = 0

    def step() -> None:
        nonlocal calls
        calls += 1
        model.scale += calls in again
        compiled(X).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def warm(step: Callable[[], None]) -> Callable[[], None]:
    step()
    return step


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_what_is_compiled_is_forward_and_backward_as_if_it_were_not(backend: str, tmp_path: Path) -> None:
    facts = recorded(warm(training(backend)), tmp_path, steps=5)
    assert len(facts.trace.of(Kind.COMPILER))
    phases = Phases.of(facts)
    assert len(phases.forward) == len(phases.backward) == len(facts.steps)
    assert phases.forward.total_ns > 0.2 * phases.backward.total_ns
    assert isinstance(ask(OperatorsOutsidePhases(), facts), Cleared)
    answer = ask(CompilesInSteps(), facts)
    assert isinstance(answer, Cleared) and "nothing was compiled" in answer.summary


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_what_is_compiled_once_more_is_the_cause_of_the_hosts_work(backend: str, tmp_path: Path) -> None:
    # Of seven calls the first two are not recorded; the number changes before each of them.
    facts = recorded(warm(training(backend, again=range(2, 8))), tmp_path, steps=5)
    finding = ask(CompilesInSteps(), facts)
    assert isinstance(finding, Finding) and finding.severity is Severity.CRITICAL
    assert finding.summary.startswith(
        "torch.compile compiles in 5 steps of the trace, 1 function that had been compiled before (up to 6 times), "
        "which takes "
    )
    assert finding.recoverable is not None and finding.recoverable.high > 0.2
    compiling = Compiler(facts.launches).compiling
    assert compiling.total_ns > 0
    # Operators that run while something is compiled are those of no step.
    assert (facts.split.parts["compute"] & compiling).total_ns == 0
    diagnosis = diagnose_traces([facts.trace.path]).diagnosis
    assert diagnosis.verdict is not None and diagnosis.verdict.code == "HST007"
    assert "HST004" in next(one for one in diagnosis.findings if one.code == "HST007").explains


def test_a_first_compilation_is_told_by_its_number(tmp_path: Path) -> None:
    step = training("eager")
    facts = recorded(step, tmp_path, steps=3)  # compiled in the step that is not recorded
    path = facts.trace.path
    content = json.loads(path.read_text())
    first = min(one["ts"] for one in content["traceEvents"] if str(one.get("name", "")).startswith("ProfilerStep"))
    thread = next(one for one in content["traceEvents"] if str(one.get("name", "")).startswith("ProfilerStep"))
    where = {"ph": "X", "pid": thread["pid"], "tid": thread["tid"]}
    named = "_compile.compile_inner (dynamo_timed)"
    compiled = {**where, "cat": "cpu_op", "name": named, "ts": first + 1, "dur": thread["dur"] / 2}
    note = {**where, "cat": "user_annotation", "ts": first + 2, "dur": 1}
    for number, severity, says in (
        ("0/0", Severity.WARNING, "1 function for the first time: the recording began too early"),
        # One step may need a second graph: an evaluation, or a last batch with fewer samples.
        ("0/1", Severity.WARNING, "had been compiled before (once), as an evaluation or a smaller batch needs it"),
        ("0/2", None, "1 function that had been compiled before (up to 2 times)"),
        (None, None, "in 1 step of the trace, which takes"),
    ):
        told = [] if number is None else [{**note, "name": f"dynamo_data: compile_id={number}"}]
        path.write_text(json.dumps({**content, "traceEvents": [*content["traceEvents"], compiled, *told]}))
        finding = ask(CompilesInSteps(), TraceFacts.of(read_trace(path)))
        assert isinstance(finding, Finding) and says in finding.summary, finding.summary
        known = finding.evidence[0].value >= 100 * Recompiles().critical_share
        assert finding.severity is (severity or (Severity.CRITICAL if known else Severity.WARNING))
        assert (finding.recoverable is None) is (severity is Severity.WARNING)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_compiled_update_is_no_work_outside_of_the_phases(tmp_path: Path) -> None:
    model = Scaled()
    optimizer = torch.optim.AdamW(model.parameters(), lr=torch.tensor(0.01), capturable=False)
    update = torch.compile(optimizer.step, backend="eager")

    def step() -> None:
        model(X).square().mean().backward()
        update()
        optimizer.zero_grad()

    step()
    facts = recorded(warm(step), tmp_path, steps=4)
    assert Compiler(facts.launches).calls.total_ns > 0
    assert not isinstance(ask(OperatorsOutsidePhases(), facts), Finding)


def test_without_the_compiler_nobody_asks(tmp_path: Path) -> None:
    assert isinstance(ask(CompilesInSteps(), recorded(training(None), tmp_path)), NotApplicable)


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("Torch-Compiled Region: 0/3", True),
        ("Torch-Compiled Region", True),
        ("TorchDynamo Cache Lookup", True),
        ("_compile.<locals>.compile_inner (dynamo_timed)", True),
        ("entire_backward_compile", True),
        ("compile_attempt_2", True),
        ("async_compile.wait", True),
        ("CompiledFunction", False),
        ("CompiledFunctionBackward", False),
        ("aten::addmm", False),
        ("my_compile_step", False),
        ("dynamo_rnn::cell", False),
    ],
)
def test_names_of_the_compiler(name: str, is_one: bool) -> None:
    assert is_compilers(name) is is_one
