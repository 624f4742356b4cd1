"""CMP009 by what one step computed: what lies between attention's products, and what a kernel took instead."""

from __future__ import annotations

from typing import Any

import pytest

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.cmp009_unfused_attention import UnfusedAttention
from tests.diagnose.answers import Reply, ask_trial, clear, found, missing, number

RULE = UnfusedAttention()


def composed(line: int = 20, **more: Any) -> dict[str, Any]:
    told = {"file": "lm.py", "line": line, "function": "Block.forward", "text": "a, _ = self.attn(h, h, h)", "calls": 2}
    told |= {"shape": [32, 384, 384], "used": False, "fused": True, "dropout": False, "causal": True}
    told |= {"module": "nn.MultiheadAttention", "forward": 0.4, "backward": 0.1, "whole": 0.25, "products": 0.4}
    return told | {"instead": 0.3} | more


def ask(*lines: dict[str, Any], timed: bool = True, **more: Any) -> Reply:
    """Forward takes 0.04 and backward 0.04 of 0.1 s, by one step's operators as long."""
    facts: dict[str, Any] = {"composed_attention": list(lines), **more}
    for phase in ("forward", "backward"):
        # On a device a few operators of the host's have a time.
        facts[f"operator_seconds_{phase}"] = 0.04 if timed else 1e-6
        facts[f"operator_bytes_{phase}"] = 0 if timed else 1e9
        facts[f"around_operators_seconds_{phase}"] = 0.0
    return ask_trial(RULE, forward=0.04, backward=0.04, optimizer=0.02, facts=facts)


def test_what_a_kernel_saves_is_told_with_the_line_and_the_weights_that_nobody_reads() -> None:
    finding = found(ask(composed()))
    assert number(finding, "softmax, masks and copies of attention's scores").value == pytest.approx(20.0)
    # Of the operators' time, 0.8 of the step, all of attention less the kernel: 0.25 + 0.4 - 0.3.
    assert number(finding, "time that one kernel of attention saves").value == pytest.approx(28.0)
    assert finding.severity is Severity.WARNING
    assert finding.recoverable is not None and finding.recoverable.high == pytest.approx(0.28)
    assert "at lm.py:20 in Block.forward (`a, _ = self.attn(h, h, h)`), which gives weights" in finding.summary
    (remedy,) = finding.remedies
    assert "need_weights=False and, as its mask is causal, is_causal=True" in remedy.says


def test_kernels_that_are_switched_off_are_to_be_left_on() -> None:
    text = "out = F.scaled_dot_product_attention(q, k, v)"
    finding = found(ask(composed(module="", switched_off=True, text=text)))
    assert "at lm.py:20 in Block.forward" in finding.summary and "its kernels are switched off" in finding.summary
    (remedy,) = finding.remedies
    assert "enable_flash_sdp(False)" in remedy.says and "holds for the CPU" in remedy.says


def test_where_the_kernel_was_not_tried_no_more_is_won_than_lies_between_the_products() -> None:
    finding = found(ask(composed(instead=None, module="", causal=False)))
    assert number(finding, "time that one kernel of attention saves").value == pytest.approx(20.0)
    (remedy,) = finding.remedies
    assert remedy.says.endswith("scaled_dot_product_attention(query, key, value).") and "weights" not in finding.summary


def test_a_kernel_that_saves_little_or_nothing_is_cleared() -> None:
    assert "save little" in clear(ask(composed(instead=0.6))).summary  # 0.05 of 0.8
    assert "save little" in clear(ask(composed(instead=0.9))).summary
    assert found(ask(composed(instead=0.55))).severity is Severity.INFO


def test_attention_that_has_to_be_composed_is_cleared_with_the_reason() -> None:
    assert "something reads its weights" in clear(ask(composed(used=True))).summary
    assert "torch has no kernel" in clear(ask(composed(fused=False))).summary
    assert "no kernel" in clear(ask(composed(fused=False), attention="eager")).summary


def test_without_times_it_is_told_by_its_kind() -> None:
    finding = found(ask(composed(), timed=False))
    assert finding.severity is Severity.INFO and finding.recoverable is None
    assert "step by step (eager)" in finding.summary
    assert "could be one kernel" in clear(ask()).summary
    assert clear(ask(attention="sdpa")).summary == "attention is sdpa"
    assert found(ask(attention="eager")).recoverable is None
    missing(ask_trial(RULE, forward=0.04, backward=0.04))
