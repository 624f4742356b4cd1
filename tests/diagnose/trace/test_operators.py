"""What calls of operators cost on the CPU, by phase, and the rules that ask for it; traces made by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from perf_diagnostics.diagnose.finding import Cleared, Finding, Severity
from perf_diagnostics.diagnose.not_measured import NotApplicable, NotMeasured
from perf_diagnostics.diagnose.trace.cells import Cells
from perf_diagnostics.diagnose.trace.names import ENGINE
from perf_diagnostics.diagnose.trace.operators import Operators
from perf_diagnostics.diagnose.trace.rules.cmp019_gradients_in_forward import GradientsInForward
from perf_diagnostics.diagnose.trace.rules.hst011_many_small_calls import ManySmallCalls
from tests.diagnose.trace.builder import TraceBuilder, ask, repeated

#: A step, in µs.
STEP = 1000

BACKWARD = f"{ENGINE}AddmmBackward0"


def calls(count: int, each: float, pause: float, *, gradients: int = 2, loss: float = 0.0):
    """Forward and backward of so many operators with pauses between them; the step's rest is one operator of the
    optimizer."""

    def fill(builder: TraceBuilder, start: float) -> None:
        at = start
        if not start:
            builder.operator("aten::stack", -5, 0)  # what lies before the first operator of all is no pause
        for phase, name in (("forward", "aten::linear"), ("backward", BACKWARD)):
            begin = at
            for _ in range(count):
                builder.operator(name, at + pause, at + pause + each)
                builder.operator("aten::addmm", at + pause + each / 4, at + pause + each / 2)
                at += pause + each
            builder.note(phase, begin, at)
            if phase == "forward" and loss:
                builder.operator("aten::mse_loss", at, at + loss)
                at += loss
                builder.note("Optimizer.zero_grad#SGD.zero_grad", at, at + 1)
                at += 1
        for number in range(gradients):
            builder.operator("torch::autograd::AccumulateGrad", at - 2 + number / 100, at - 1)
        builder.note("optimizer", at, start + STEP)
        builder.operator("aten::_foreach_add_", at, start + STEP)

    return fill


def test_operators_are_counted_once_by_phase_and_the_loss_is_forward(tmp_path: Path) -> None:
    found = Operators.of(repeated(STEP, 5, calls(10, 20, 5, loss=40), deviceProperties=[]).facts(tmp_path))
    # 10 and the loss; what they call is in them.
    assert found.calls("forward") == 11 and found.calls("backward") == 10 and found.calls("optimizer") == 1
    # 10 x min(20, 10) µs, the loss's 10, and 10 pauses of 5 µs
    assert list(found.calling_ns("forward", 10_000)) == [160_000] * 5
    most = found.most("forward")
    assert [(one.name, one.calls) for one in most] == [("aten::linear", 10.0), ("aten::mse_loss", 1.0)]
    assert [one.share for one in most] == pytest.approx([0.20, 0.04])  # 200 and 40 of 1000 µs
    assert found.most("backward")[0].name == "AddmmBackward0"


def test_many_calls_for_each_tensor_are_a_loop_in_python(tmp_path: Path) -> None:
    facts = repeated(STEP, 5, calls(40, 7, 3), deviceProperties=[]).facts(tmp_path)
    finding = ask(ManySmallCalls(), facts)
    # 2 x 40 x (7 + 3) of 1000 µs, for two tensors 20 operators of forward each
    assert isinstance(finding, Finding) and finding.severity is Severity.CRITICAL
    assert finding.evidence[0].value == pytest.approx(80) and finding.claims == pytest.approx(
        {"forward": 0.4, "backward": 0.4}
    )
    assert "Calling 80 operators" in finding.summary and "20 for each trained tensor: a loop" in finding.summary
    assert finding.recoverable is not None and finding.recoverable.high == pytest.approx(0.8)


def test_a_small_model_without_a_loop_is_an_observation(tmp_path: Path) -> None:
    facts = repeated(STEP, 5, calls(40, 7, 3, gradients=20), deviceProperties=[]).facts(tmp_path)
    finding = ask(ManySmallCalls(), facts)  # 2 for each tensor
    assert finding.severity is Severity.INFO and finding.recoverable is None and "loop" not in finding.summary


def accumulated(batches: int, *, waits: bool = True):
    """So many passes a step, each of ten operators of 7 µs with pauses of 3 in forward and as many in backward."""

    def fill(builder: TraceBuilder, start: float) -> None:
        at = start
        for _ in range(batches):
            if waits:
                builder.note("data_wait", at, at + 1)
            at += 1
            for phase, name in (("forward", "aten::linear"), ("backward", BACKWARD)):
                begin = at
                for _ in range(10):
                    builder.operator(name, at + 3, at + 10)
                    at += 10
                builder.note(phase, begin, at)
            for number in range(5):
                builder.operator("torch::autograd::AccumulateGrad", at - 2 + number / 100, at - 1)
        builder.note("optimizer", at, start + STEP)
        builder.operator("aten::_foreach_add_", at, start + STEP)

    return fill


def test_of_accumulated_batches_fewer_and_larger_ones_take_fewer_calls(tmp_path: Path) -> None:
    finding = told(tmp_path, accumulated(4))
    # 4 x 20 x 10 of 1000 µs, of which one batch would take a quarter; two operators of forward for each gradient.
    assert isinstance(finding, Finding) and finding.severity is Severity.CRITICAL
    assert "in 4 accumulated batches a step" in finding.summary and "loop" not in finding.summary
    assert finding.recoverable is not None and finding.recoverable.high == pytest.approx(0.8 * 3 / 4, abs=0.01)
    assert finding.remedies[0].says.startswith("Accumulate fewer, larger batches")
    assert not any("tune the learning rate" in remedy.says for remedy in finding.remedies)


def test_several_backward_passes_on_one_batch_are_no_accumulation(tmp_path: Path) -> None:
    finding = told(tmp_path, accumulated(4, waits=False))
    assert isinstance(finding, Finding) and finding.severity is Severity.INFO and finding.recoverable is None
    assert "accumulated" not in finding.summary
    one = told(tmp_path, calls(40, 7, 3, gradients=20))
    assert "A larger batch" in one.remedies[-1].says


def test_large_operators_are_clear_and_the_numbers_are_told(tmp_path: Path) -> None:
    facts = repeated(STEP, 5, calls(2, 200, 5), deviceProperties=[]).facts(tmp_path)
    reply = ask(ManySmallCalls(), facts)
    # 2 x 2 x (10 + 5) of 1000 µs
    assert isinstance(reply, Cleared) and "takes 6.0 % of a step" in reply.summary


def test_what_cannot_be_told_is_not_told(tmp_path: Path) -> None:
    def bare(builder: TraceBuilder, start: float) -> None:
        builder.operator("aten::mm", start, start + STEP)

    reply = ask(ManySmallCalls(), repeated(STEP, 5, bare, deviceProperties=[]).facts(tmp_path))
    assert isinstance(reply, NotMeasured) and "when forward and backward went on" in reply.why

    def on_device(builder: TraceBuilder, start: float) -> None:
        builder.kernel(start, start + 10, start + 200)

    assert isinstance(ask(ManySmallCalls(), repeated(STEP, 5, on_device).facts(tmp_path)), NotApplicable)


def penalty(inside_us: float, twice_us: float):
    """Autograd's operators inside of the forward, as long as told, and among the backward's such as derive them."""

    def fill(builder: TraceBuilder, start: float) -> None:
        builder.note("forward", start, start + 500)
        builder.operator("aten::linear", start, start + 100)
        builder.operator(BACKWARD, start + 100, start + 100 + inside_us)
        builder.note("backward", start + 500, start + STEP)
        builder.operator(f"{ENGINE}TanhBackwardBackward0", start + 500, start + 500 + twice_us)
        builder.operator(BACKWARD, start + 500 + twice_us, start + STEP)

    return fill


def test_gradients_inside_of_forward_are_found(tmp_path: Path) -> None:
    finding = ask(GradientsInForward(), repeated(STEP, 5, penalty(150, 100), deviceProperties=[]).facts(tmp_path))
    assert isinstance(finding, Finding) and finding.severity is Severity.WARNING
    assert finding.evidence[0].value == pytest.approx(25)
    assert finding.claims == pytest.approx({"forward": 0.15, "backward": 0.10})
    assert finding.recoverable is None  # it may be what is wanted
    clear = ask(GradientsInForward(), repeated(STEP, 5, penalty(40, 10), deviceProperties=[]).facts(tmp_path))
    assert isinstance(clear, Cleared) and "5.0 %" in clear.summary


def test_of_several_ranks_a_pause_may_be_a_wait_for_another(tmp_path: Path) -> None:
    several = {"deviceProperties": [], "distributedInfo": {"rank": 0, "world_size": 2}}
    facts = repeated(STEP, 5, calls(40, 7, 3), **several).facts(tmp_path)
    reply = ask(ManySmallCalls(), facts)
    assert isinstance(reply, NotMeasured) and "other ranks" in reply.why
    operators = Operators.of(facts)
    assert operators.calls("forward") == 40  # which ones there are is known all the same
    with pytest.raises(NotMeasured):
        operators.pauses_share()


def unrolled(
    cells: int,
    each: float,
    back: float,
    *,
    name: str = "aten::lstm_cell",
    passes: int = 1,
    tensors: int = 6,
    then: str = "",
):
    """So many recurrent cells in forward and two operators of backward for each of them, and a head of one operator."""

    def fill(builder: TraceBuilder, start: float) -> None:
        at = start
        for _ in range(passes):
            begin = at
            for _ in range(cells // passes):
                builder.operator(name, at, at + (each - 1 if then else each))
                builder.operator("aten::linear", at + each / 4, at + each / 2)
                if then:
                    builder.operator(then, at + each - 1, at + each)
                at += each
            builder.operator("aten::linear", at, at + 50)
            at += 50
            builder.note("forward", begin, at)
            begin = at
            builder.operator(f"{ENGINE}NllLossBackward0", at, at + 50)
            at += 50
            for _ in range(cells // passes):
                builder.operator(BACKWARD, at, at + back / 2)
                builder.operator(f"{ENGINE}TanhBackward0", at + back / 2, at + back)
                at += back
            for number in range(tensors):
                builder.operator("torch::autograd::AccumulateGrad", at - 2 + number / 100, at - 1)
            builder.note("backward", begin, at)
        builder.note("optimizer", at, start + STEP)
        builder.operator("aten::_foreach_add_", at, start + STEP)

    return fill


def told(tmp_path: Path, fill):
    return ask(ManySmallCalls(), repeated(STEP, 5, fill, deviceProperties=[]).facts(tmp_path))


def test_recurrent_cells_one_by_one_are_a_loop_over_time_steps(tmp_path: Path) -> None:
    assert isinstance(told(tmp_path, unrolled(5, 60, 100)), Cleared)  # five time steps
    finding = told(tmp_path, unrolled(10, 25, 40))
    # 10 x 25 and 10 x 40 of 1000 us; the head and the loss are not of the loop.
    assert isinstance(finding, Finding) and finding.severity is Severity.WARNING
    assert finding.evidence[0].value == pytest.approx(65) and finding.evidence[0].limit == pytest.approx(30)
    assert finding.claims == pytest.approx({"forward": 0.25, "backward": 0.40})
    assert "aten::lstm_cell is called 10 times a step" in finding.summary
    assert finding.recoverable is None  # nobody has measured what the whole sequence would take
    (remedy,) = finding.remedies
    assert "torch.nn.LSTM" in remedy.says and "feeds its output back" in remedy.says


def test_a_recurrence_that_joins_or_attends_between_its_cells_is_mentioned_only(tmp_path: Path) -> None:
    for then in ("aten::cat", "aten::bmm", "aten::argmax"):
        finding = told(tmp_path, unrolled(11, 25, 40, then=then))  # ten gaps
        assert isinstance(finding, Finding) and finding.severity is Severity.INFO
        assert f"Between two of them it calls {then}, as" in finding.summary
    for fill in (
        unrolled(11, 25, 40, then="aten::linear"),  # of all time steps at once, afterwards
        unrolled(10, 25, 40, then="aten::cat"),  # nine: after the last one what all gave may be joined
    ):
        finding = told(tmp_path, fill)
        assert isinstance(finding, Finding) and finding.severity is Severity.WARNING
        assert "Between" not in finding.summary


def test_cells_that_may_be_fed_back_hide_no_fault_of_calls(tmp_path: Path) -> None:
    # Cells and their backward take 11 x 64 of 1000 us, calling all operators about half of that.
    plain = told(tmp_path, unrolled(11, 25, 40, tensors=1))
    assert "aten::lstm_cell" in plain.summary
    fed = told(tmp_path, unrolled(11, 25, 40, tensors=1, then="aten::cat"))
    assert fed.severity is Severity.WARNING and "a loop in Python." in fed.summary
    assert fed.evidence[0].metric == "calling operators"


def test_between_the_cells_of_two_micro_batches_is_no_time_step(tmp_path: Path) -> None:
    fill = unrolled(20, 12, 20, passes=2, then="aten::cat")
    cells = Cells.of(Operators.of(repeated(STEP, 5, fill, deviceProperties=[]).facts(tmp_path)))
    assert cells is not None and (cells.each_pass, cells.fed_back, cells.feeding) == (10, 9, ("aten::cat",))


def test_of_cells_and_of_calling_what_speaks_of_more_of_the_step_is_told(tmp_path: Path) -> None:
    # 11 operators of forward for one tensor: a loop; calling these and 22 of backward takes 33 x 10 of 1000 us.
    cells = told(tmp_path, unrolled(10, 25, 40, tensors=1))
    assert cells.evidence[0].value == pytest.approx(65) and "aten::lstm_cell" in cells.summary
    other = told(tmp_path, unrolled(10, 25, 40, tensors=1, name="aten::linear"))
    assert other.evidence[0].value == pytest.approx(32.1, abs=0.2) and other.recoverable is not None
    short = told(
        tmp_path, unrolled(10, 10, 20, tensors=1)
    )  # cells: 10 x 30 us; calling them, the head and the loss: 32
    assert short.evidence[0].value == pytest.approx(32, abs=0.3) and "a loop in Python." in short.summary


def test_cells_that_take_little_or_stand_inside_of_another_operator_are_no_loop(tmp_path: Path) -> None:
    little = told(tmp_path, unrolled(10, 10, 19))  # 29 % of the step
    assert "cells and what backward" not in " ".join(item.metric for item in little.evidence)
    whole = told(tmp_path, unrolled(10, 25, 40, name="aten::lstm"))
    assert "cells and what backward" not in " ".join(item.metric for item in whole.evidence)


def test_cells_of_micro_batches_are_counted_by_their_passes(tmp_path: Path) -> None:
    fill = unrolled(10, 25, 40, passes=2)  # 5 time steps in each
    cells = Cells.of(Operators.of(repeated(STEP, 5, fill, deviceProperties=[]).facts(tmp_path)))
    assert cells is not None and (cells.calls, cells.each_pass) == (10, 5)
    assert list(cells.forward_ns) == [250_000] * 5 and list(cells.backward_ns) == [400_000] * 5


def test_gru_and_elman_cells_count_as_well(tmp_path: Path) -> None:
    for name in ("aten::gru_cell", "aten::rnn_tanh_cell", "aten::rnn_relu_cell", "aten::_thnn_fused_lstm_cell"):
        assert f"{name} is called" in told(tmp_path, unrolled(10, 25, 40, name=name)).summary


def test_phases_without_an_operator_ask_nothing_of_anybody(tmp_path: Path) -> None:
    def fill(builder: TraceBuilder, start: float) -> None:
        builder.note("forward", start, start + 100)
        builder.note("backward", start + 100, start + 200)
        builder.operator("aten::_foreach_add_", start + 500, start + 900)  # the update, outside of both

    facts = repeated(STEP, 5, fill, deviceProperties=[]).facts(tmp_path)
    for rule in (ManySmallCalls(), GradientsInForward()):
        answer = ask(rule, facts)
        assert isinstance(answer, NotMeasured) and "no operators" in answer.why
