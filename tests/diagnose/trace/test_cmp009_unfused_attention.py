"""CMP009 for traces: softmax between two batched products is attention that writes its scores out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.nn import functional

from perf_diagnostics.diagnose.facts.facts import NotApplicable, NotMeasured
from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.trace.rules.cmp009_unfused_attention import WrittenScores
from tests.diagnose.answers import clear, found, missing, number
from tests.diagnose.trace.builder import BACKWARD, MATRIX, POINTWISE, TraceBuilder, ask, repeated
from tests.diagnose.trace.test_nodes_of_torch import recorded

SOFTMAX = "void (anonymous namespace)::cunn_SoftMaxForward<8, float>"


def sequence(*parts: tuple[str, str, float]):
    """A step of 1 ms, busy throughout and launched 500 µs ahead: operator, kernel and µs of each part in turn."""

    def fill(builder: TraceBuilder, start: float) -> None:
        at = start
        for n, (operator, kernel, took) in enumerate(parts):
            launched = start - 500 + 20 * n
            scores = {"Input Dims": [[8, 12, 77, 2048]], "Input type": ["float"]} if "softmax" in operator else {}
            builder.operator(operator, launched - 1, launched + 6, **scores)
            builder.kernel(launched, at, at + took, name=kernel)
            at += took
        builder.kernel(start - 100, at, start + 1000, name=POINTWISE)

    return repeated(1000, 5, fill)


def eager(product: float, softmax: float, between: float = 0.0):
    return sequence(
        ("aten::bmm", MATRIX, product),
        ("aten::add", POINTWISE, max(1.0, between)),
        ("aten::_softmax", SOFTMAX, softmax),
        ("aten::bmm", MATRIX, product),
    )


def test_eager_attention_is_a_warning_where_its_scores_take_the_time(tmp_path: Path) -> None:
    finding = found(ask(WrittenScores(), eager(100, 200, between=100).facts(tmp_path)))
    assert finding.severity is Severity.WARNING
    assert number(finding, "device's work in unfused attention").value == pytest.approx(50)  # 100+100+200+100 of 1000
    assert number(finding, "step on its scores, beside the products").value == pytest.approx(30)  # 100 + 200
    assert number(finding, "tokens attended to, at most").value == 2048
    assert finding.recoverable.high == pytest.approx(0.3) and finding.recoverable.low == pytest.approx(0.09)


def test_scores_that_take_little_are_an_info_and_less_is_nothing(tmp_path: Path) -> None:
    assert found(ask(WrittenScores(), eager(50, 20).facts(tmp_path))).severity is Severity.INFO  # 12 %, of it 2.1
    assert number(clear(ask(WrittenScores(), eager(10, 10).facts(tmp_path))), "device's work in unfused attention")


def test_the_backward_pass_counts_on_its_own_thread(tmp_path: Path) -> None:
    def fill(builder: TraceBuilder, start: float) -> None:
        for n, name in enumerate(("aten::bmm", "aten::_softmax_backward_data", "aten::bmm")):
            launched = start - 500 + 20 * n
            builder.operator(name, launched - 1, launched + 6, tid=BACKWARD)
            builder.kernel(launched, start + 100 * n, start + 100 * n + 100, name=POINTWISE, tid=BACKWARD)
        # The main thread launches meanwhile, and is not inside that attention.
        builder.kernel(start - 470, start + 300, start + 1000, name=POINTWISE)

    finding = found(ask(WrittenScores(), repeated(1000, 5, fill).facts(tmp_path)))
    assert number(finding, "device's work in unfused attention").value == pytest.approx(30)


@pytest.mark.parametrize("first", ["aten::mm", "aten::addmm"])
def test_softmax_after_a_plain_product_is_no_attention(first: str, tmp_path: Path) -> None:
    """A router of experts: a linear layer, softmax, then batched products."""
    trace = sequence((first, MATRIX, 300), ("aten::_softmax", SOFTMAX, 300), ("aten::bmm", MATRIX, 300))
    assert isinstance(ask(WrittenScores(), trace.facts(tmp_path)), NotApplicable)


def test_fused_attention_is_clear(tmp_path: Path) -> None:
    trace = sequence(("aten::_scaled_dot_product_flash_attention", "void pytorch_flash::flash_fwd_kernel", 500))
    assert clear(ask(WrittenScores(), trace.facts(tmp_path))).summary == "attention is fused"


def test_the_plain_form_of_torchs_attention_is_not_fused(tmp_path: Path) -> None:
    def fill(builder: TraceBuilder, start: float) -> None:
        builder.operator("aten::_scaled_dot_product_attention_math", start - 510, start - 400)
        for n, name in enumerate(("aten::bmm", "aten::_softmax", "aten::bmm")):
            launched = start - 500 + 20 * n
            builder.operator(name, launched - 1, launched + 6)
            builder.kernel(launched, start + 100 * n, start + 100 * n + 100, name=POINTWISE)
        builder.kernel(start - 100, start + 300, start + 1000, name=POINTWISE)

    found(ask(WrittenScores(), repeated(1000, 5, fill).facts(tmp_path)))


def test_without_attention_the_question_does_not_arise_and_without_operators_nobody_knows(tmp_path: Path) -> None:
    assert isinstance(ask(WrittenScores(), sequence(("aten::mm", MATRIX, 900)).facts(tmp_path)), NotApplicable)
    bare = repeated(1000, 5, lambda b, start: b.kernel(start - 100, start, start + 1000))
    reply = missing(ask(WrittenScores(), bare.facts(tmp_path)))
    assert isinstance(reply, NotMeasured) and not isinstance(reply, NotApplicable) and reply.signal == "operators"


def test_where_the_host_sets_the_pace_it_is_an_info_without_a_gain(tmp_path: Path) -> None:
    def fill(builder: TraceBuilder, start: float) -> None:
        for n, name in enumerate(("aten::bmm", "aten::_softmax", "aten::bmm")):
            at = start + 300 * n
            builder.operator(name, at - 1, at + 6)
            builder.kernel(at, at + 6, at + 206, name=POINTWISE)  # starts at once

    finding = found(ask(WrittenScores(), repeated(1000, 5, fill).facts(tmp_path)))
    assert finding.severity is Severity.INFO and finding.recoverable is None and "host sets the pace" in finding.summary


Q = torch.rand(2, 4, 64, 32)


def attention(*, dropout: float = 0.0, heads: bool = True, mask: bool = False) -> Callable[[], None]:
    query = (Q if heads else Q.flatten(0, 1)).clone().requires_grad_()
    bias = torch.zeros(64, 64, requires_grad=True) if mask else None

    def step() -> None:
        for _ in range(8):
            found = functional.scaled_dot_product_attention(query, query, query, attn_mask=bias, dropout_p=dropout)
            found.sum().backward()

    return step


@pytest.mark.parametrize(
    ("step", "because"),
    [
        (attention(dropout=0.1), ", for its dropout_p is above 0."),
        (attention(heads=False), ", for its inputs have three dimensions"),
        (attention(mask=True), "takes these steps itself. On the CPU"),
    ],
)
def test_where_torchs_own_attention_takes_the_steps_the_reason_is_told(
    step: Callable[[], None], because: str, tmp_path: Path
) -> None:
    (remedy,) = found(ask(WrittenScores(), recorded(step, tmp_path))).remedies
    assert because in remedy.says and "dropout_p=0" in remedy.says


def test_attention_that_torch_fuses_on_the_cpu_is_clear(tmp_path: Path) -> None:
    clear(ask(WrittenScores(), recorded(attention(), tmp_path)))


def test_values_of_another_width_are_a_reason(tmp_path: Path) -> None:
    query, value = Q.clone().requires_grad_(), torch.rand(2, 4, 64, 48, requires_grad=True)

    def step() -> None:
        for _ in range(8):
            functional.scaled_dot_product_attention(query, query, value).sum().backward()

    (remedy,) = found(ask(WrittenScores(), recorded(step, tmp_path))).remedies
    assert "for its values have another width than its queries" in remedy.says


def test_attention_by_hand_is_not_explained_by_a_call_beside_it(tmp_path: Path) -> None:
    query, small = Q.clone().requires_grad_(), torch.rand(1, 1, 4, 8, requires_grad=True)

    def step() -> None:
        for _ in range(8):
            ((query @ query.mT).softmax(-1) @ query).sum().backward()
        functional.scaled_dot_product_attention(small, small, small, dropout_p=0.1).sum().backward()

    (remedy,) = found(ask(WrittenScores(), recorded(step, tmp_path))).remedies
    assert remedy.says.startswith("Use scaled_dot_product_attention")
