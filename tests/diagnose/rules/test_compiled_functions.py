"""HST007 and HST017 on what torch.compile notes of its compilations: giving up, guards in words, graphs that break."""

from __future__ import annotations

import numpy as np
import pytest

from perf_diagnostics.diagnose.engine import diagnose
from perf_diagnostics.diagnose.facts.compilation_facts import Guard
from perf_diagnostics.diagnose.facts.facts import NotApplicable
from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rule_parts.guards import against_guard, why_again
from perf_diagnostics.diagnose.rules.hst007_recompiles import Recompiles
from perf_diagnostics.diagnose.rules.hst017_graph_breaks import GraphBreaks
from perf_diagnostics.testing import run_of, trial_of
from tests.diagnose.answers import ask_trial, clear, found, missing, number


def line(at, text="", function="Net.scale"):
    return {"file": "train.py", "line": at, "function": function, "text": text}


def compiled(*, graphs=8, seconds=2.5, gave_up=True, guards=(), breaks=(), at=76):
    return {
        **line(at, "def forward(self, x):", "Net.forward"),
        "graphs": graphs,
        "seconds": seconds,
        "gave_up": gave_up,
        "guards": list(guards),
        "breaks": list(breaks),
    }


UPDATES = {**line(73, "return 1 / self.updates"), "guard": "self.updates == 7", "times": 8}


def told(rule, *functions, **trial):
    return ask_trial(rule, facts={"compilations": list(functions)}, **{"columns": {"graphs": 8}} | trial)


def test_giving_up_is_a_fault_by_itself_and_names_the_guard():
    finding = found(told(Recompiles(), compiled(guards=[UPDATES], seconds=8.0)))  # of 100 steps of 0.8 s
    assert finding.severity is Severity.WARNING and finding.recoverable is None
    assert finding.summary == (
        "torch.compile gave up on Net.forward (train.py:76) after 8 graphs, made in 8.00 s (9.9 % of the time of all "
        "steps): self.updates is another number each time (train.py:73). What fits none of its graphs runs uncompiled."
    )
    assert number(finding, "functions that torch.compile gave up on").value == 1
    assert number(finding, "compiling these functions").value == 8.0
    assert "Let self.updates be a tensor" in finding.remedies[0].says and "register_buffer" in finding.remedies[0].says


def test_giving_up_makes_the_verdict_where_nothing_else_is_wrong():
    """What the compiler has noted is as sure beside other programs' load, and in few steps."""
    for steps in (100, 8):
        facts = {"compilations": [compiled(guards=[UPDATES])]}
        trial = trial_of(forward=0.03, backward=0.06, steps=steps, columns={"graphs": 8}, facts=facts)
        verdict = diagnose(run_of(trial)).verdict
        assert verdict is not None and verdict.code == "HST007" and verdict.fault


def test_giving_up_explains_no_time_of_the_steady_steps():
    """It has compiled in the warm-up: what takes the steps' time is first, and has its own gain."""
    facts = {"compilations": [compiled(guards=[UPDATES])]}
    trial = trial_of(data_wait=1e-6, forward=0.3, backward=0.3, other=0.4, columns={"graphs": 8}, facts=facts)
    diagnosis = diagnose(run_of(trial))
    assert diagnosis.verdict is not None and diagnosis.verdict.code == "HST006"
    given_up = next(one for one in diagnosis.findings if one.code == "HST007")
    assert given_up.explains == () and given_up.lines == ()


def test_functions_that_have_their_graphs_are_clear():
    clear(told(Recompiles(), compiled(gave_up=False, graphs=2)))
    clear(told(Recompiles()))


def test_giving_up_is_told_where_graphs_were_not_counted():
    facts = {"compilations": [compiled(guards=[UPDATES])]}
    assert found(ask_trial(Recompiles(), facts=facts)).severity is Severity.WARNING
    assert missing(ask_trial(Recompiles(), facts={"compilations": []})).signal == "graphs"


def test_several_functions_are_counted_and_each_gets_its_advice():
    size = {"guard": "tensor 'x' size mismatch at index 1. expected 96, actual 97", "times": 8}
    finding = found(told(Recompiles(), compiled(guards=[UPDATES]), compiled(guards=[size], seconds=2.0, at=9)))
    assert "(and on 1 other function)" in finding.summary
    assert number(finding, "compiling these functions").value == 4.5
    says = " ".join(remedy.says for remedy in finding.remedies)
    assert "self.updates" in says and "torch._dynamo.mark_dynamic(x, 1)" in says and "similar length" in says


def test_steps_that_compile_tell_of_what_and_why():
    columns = {"graphs": np.arange(100)}
    finding = found(told(Recompiles(), compiled(gave_up=False, guards=[UPDATES]), columns=columns))
    assert finding.summary.endswith(
        "in 99 steady steps; of Net.forward (train.py:76), for self.updates is another number each time (train.py:73)."
    )
    assert "Let self.updates be a tensor" in finding.remedies[0].says


@pytest.mark.parametrize(
    ("guard", "says", "advice"),
    [
        ("L['self'].updates == 7", "self.updates is another number each time", "self.updates be a tensor"),
        ("alpha == 0.30000000000000004", "alpha is another number each time", "outside of what is compiled"),
        ("self.scale <= -1e-05", "self.scale is another number each time", "register_buffer"),
        ("len(L['xs']) == 3", "xs has another length each time", "one tensor"),
        ("tensor 'h' size mismatch at index 0. expected 4, actual 5", "dimension 0 of h has another size each time",
         "mark_dynamic(h, 0)"),
        ("tensor 'h' dtype mismatch. expected Float, actual BFloat16", "h is another kind of tensor each time",
         "one form"),
        ("GLOBAL_STATE changed: grad_mode ", "torch's global state (gradients on or off, threads, precision) is another"
         " one each time", "one state"),
        ("___check_obj_id(fn, 140)", "fn is another object each time", "once"),
        ("___stack0 == 2.5", "a value that was read is another number each time", "tensor"),
        ("something(new) and odd", "`something(new) and odd` did not hold", "TORCH_LOGS=recompiles"),
    ],
)  # fmt: skip
def test_guards_in_words(guard, says, advice):
    told = Guard(guard, 3, None)
    assert why_again(told) == says
    assert advice in against_guard(told).says


ITEM = {**line(12, "if x.sum().item() > 0:", "Net.forward"), "why": "Unsupported Tensor.item() call"}
PRINT = {**line(14, 'print("x")', "Net.forward"), "why": ""}


def test_graphs_that_break_are_mentioned_with_their_lines():
    finding = found(told(GraphBreaks(), compiled(gave_up=False, breaks=[ITEM, PRINT])))
    assert finding.severity is Severity.INFO and finding.recoverable is None
    assert finding.summary == (
        "torch.compile breaks Net.forward (train.py:76) into several graphs, at train.py:12: "
        '`if x.sum().item() > 0:` (Unsupported Tensor.item() call) and train.py:14: `print("x")`; Python runs between '
        "them."
    )
    other = compiled(gave_up=False, breaks=[ITEM], at=40)
    assert "There is 1 such place more." in found(told(GraphBreaks(), compiled(breaks=[ITEM, PRINT]), other)).summary


def test_whole_graphs_are_clear_and_without_a_compiler_nobody_asks():
    clear(told(GraphBreaks(), compiled(gave_up=False)))
    assert isinstance(missing(told(GraphBreaks())), NotApplicable)
    assert missing(ask_trial(GraphBreaks())).signal == "compilations"


WRAPPER = {"file": "torch/_dynamo/external_utils.py", "line": 67, "function": "inner", "text": "@wraps(fn)"}


def test_of_modules_of_torchs_own_only_the_wrapper_is_known():
    """Which guard is whose nobody can tell, and torch's own breaks are none of the user's."""
    one = {**compiled(guards=[UPDATES], breaks=[{**WRAPPER, "why": ""}]), **WRAPPER}
    finding = found(told(Recompiles(), one))
    assert finding.summary.startswith(
        "torch.compile gave up on a module of torch's own (such as a Sequential) after 8 "
    )
    assert "updates" not in finding.summary and "TORCH_LOGS" in finding.remedies[-1].says
    clear(told(GraphBreaks(), one))


def test_a_guard_that_failed_once_is_not_told_as_often():
    assert why_again(Guard("k == 3", 1, None)) == "k is another number"


@pytest.mark.parametrize(
    "broken",
    [
        "no list", [7], [{}], [{**line(1), "graphs": "many", "seconds": 1.0}],
        [{**line(1), "graphs": 1, "seconds": float("nan")}],
        [{**line(1), "graphs": 1, "seconds": 1.0, "gave_up": "yes", "guards": [3, {"guard": 1}, {"times": 2}],
          "breaks": 7}],
    ],
)  # fmt: skip
def test_records_that_are_damaged_tell_nothing(broken):
    """A record may have been edited, or be of a later version."""
    reply = ask_trial(Recompiles(), facts={"compilations": broken}, columns={"graphs": 8})
    clear(reply)
