"""HST016: what Python, NumPy and SciPy work on inside of forward, whose it is, and what is said to help."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from perf_diagnostics.diagnose.facts.facts import TrialFacts
from perf_diagnostics.diagnose.finding import Finding, Severity
from perf_diagnostics.diagnose.rules.hst016_work_outside_of_torch import WorkOutsideOfTorch
from perf_diagnostics.records import CodePath, CodePlace, CodeSamples, TrialResult
from perf_diagnostics.testing import trial_of
from tests.diagnose.answers import ask_trial, clear, found, missing, number

RULE = WorkOutsideOfTorch()
AT = CodePlace(file="loss.py", line=9, function="Boundary.forward", text="maps = distances(masks.numpy())")
INSIDE = CodePlace(file="loss.py", line=4, function="distances", text="return [edt(one) for one in masks]")
MODEL = CodePlace(file="net.py", line=2, function="Net.forward", text="return self.layers(x)")
EDT = "scipy.ndimage._morphology.distance_transform_edt"


def handed(of: str, seconds: float, *, line: int = 9, **more: Any) -> dict[str, Any]:
    told: dict[str, Any] = {"file": AT.file, "line": line, "function": AT.function, "text": AT.text}
    return told | {"of": of, "seconds_forward": seconds, "operators": 1, "makes": False, "until": 0} | more


def step(*entries: dict[str, Any], rest: float = 0.0, **trial: Any) -> dict[str, Any]:
    """A step of 0.1 s, 0.06 of it forward: in the one looked at 30 ms of operators, what is told, and a ``rest``."""
    outside = sum(one["seconds_forward"] for one in entries)
    facts = {"operator_seconds_forward": 0.03, "around_operators_seconds_forward": outside + rest}
    facts |= {"operator_bytes_forward": 0, "operator_bytes_backward": 0}
    facts |= {"outside_of_torch": list(entries), "outside_seconds_forward": outside}
    return {"forward": 0.06, "backward": 0.04, "facts": facts} | trial


def ask(*entries: dict[str, Any], **more: Any) -> Any:
    return ask_trial(RULE, **step(*entries, **more))


def test_what_depends_on_the_data_alone_is_warned_of_and_may_go_to_the_loader() -> None:
    finding = found(ask(handed("data", 0.03)))
    # Half of forward's time in the step that was looked at, and forward is 0.6 of all.
    share = number(finding, "work outside of torch in forward")
    assert share.value == pytest.approx(30, rel=0.02) and share.limit == 5 and share.n == 1
    assert finding.severity is Severity.WARNING
    assert finding.claims == {"forward": pytest.approx(0.3, rel=0.02)}
    assert "numbers that no parameter went into are read at loss.py:9" in finding.summary
    assert "collate_fn" in finding.remedies[0].says and "once, before the training" in finding.remedies[1].says
    assert finding.recoverable is not None and finding.recoverable.low > 0.05
    assert finding.recoverable.high == pytest.approx(0.3, rel=0.02)


def test_what_lies_between_operators_otherwise_counts_for_an_end_of_the_share() -> None:
    finding = found(ask(handed("data", 0.03), rest=0.03))
    # 0.6 of the step times 30 ms of 60, 75 or 90; the lower end allows for other steps.
    assert number(finding, "work outside of torch in forward").value == pytest.approx(24, rel=0.02)
    assert finding.recoverable is not None
    assert finding.recoverable.high == pytest.approx(0.3, rel=0.02)
    assert finding.recoverable.low == pytest.approx(0.3 * 0.2 / 1.5, rel=0.02)


def test_what_is_made_of_the_models_results_is_only_mentioned() -> None:
    finding = found(ask(handed("model", 0.03)))
    assert finding.severity is Severity.INFO and finding.recoverable is not None and finding.recoverable.low == 0
    assert "the model's results are read" in finding.summary and "stays in the step" in finding.remedies[0].says


def test_beside_what_the_data_asks_for_what_the_model_does_is_not_counted() -> None:
    finding = found(ask(handed("model", 0.02), handed("data", 0.02, line=12), handed("python", 0.01, line=14)))
    # 30 ms of 80 in 0.6 of a step.
    assert number(finding, "work outside of torch in forward").value == pytest.approx(22.5, rel=0.02)
    assert "loss.py:12" in finding.summary and ", and at 1 more line" in finding.summary
    assert "register_buffer" in finding.remedies[2].says


def test_of_little_nothing_is_said_and_a_little_more_is_mentioned() -> None:
    clear(ask(handed("data", 0.002)))
    clear(ask())
    assert found(ask(handed("data", 0.005))).severity is Severity.INFO


def test_what_no_loss_depends_on_is_done_seldom_whatever_it_is_of() -> None:
    def role(role: str) -> Finding:
        trial = trial_of(**step(handed("model", 0.03)))
        reply = RULE.check(TrialFacts.of(dataclasses.replace(trial, code=seen((role, "", "")))))
        assert isinstance(reply, Finding)
        return reply

    unread = role("unread")
    assert unread.severity is Severity.WARNING and "every so many steps" in unread.remedies[0].says
    assert role("method").severity is Severity.INFO


def test_a_line_that_nobody_saw_at_work_is_not_what_no_loss_depends_on() -> None:
    """Such as that which logs a number, and behind which others work on."""

    def severity(looks: int, *, makes: bool = False) -> Severity:
        trial = trial_of(**step(handed("model", 0.03, makes=makes)))
        reply = RULE.check(TrialFacts.of(dataclasses.replace(trial, code=seen(("unread", "", ""), looks=looks))))
        assert isinstance(reply, Finding)
        return reply.severity

    # The work is 0.3 of the step, and forward 0.6: half of the work are 25 of 100 looks.
    assert severity(30) is Severity.WARNING and severity(20) is Severity.INFO
    assert severity(30, makes=True) is Severity.INFO


def test_what_may_be_of_the_model_is_only_mentioned_with_both_remedies() -> None:
    finding = found(ask(handed("unclear", 0.03)))
    assert finding.severity is Severity.INFO and finding.recoverable is not None and finding.recoverable.low == 0
    assert "perhaps of the model's results" in finding.summary
    assert finding.remedies[0].says.startswith("If it is not made of the model's") and len(finding.remedies) == 2


def seen(
    roles: tuple[str, ...] = (),
    calls: tuple[str, ...] = (EDT,),
    *,
    looks: int = 50,
    line: int = 9,
    trains: bool = False,
) -> CodeSamples:
    """Of 100 looks at forward so many saw what the line has SciPy do."""
    paths = (
        CodePath(phase="forward", places=(0, 1), looks=looks - 10, calls=calls),
        CodePath(phase="forward", places=(0,), looks=10),
        CodePath(phase="forward", places=(2,), looks=100 - looks, calls=("torch.nn.modules.linear.Linear.forward",)),
        CodePath(phase="backward", places=(0 if trains else 2,), looks=70),
    )
    places = (dataclasses.replace(AT, line=line), INSIDE, MODEL)
    return CodeSamples(
        places=places, paths=paths, roles=roles, interval_s=0.025, rare_interval_s=0.1, cpu_s=0.01, stretch_s=0.0
    )


def test_who_is_at_work_is_named_with_the_line_that_has_it_do_so() -> None:
    def of(code: CodeSamples, **more: Any) -> Finding:
        trial: TrialResult = dataclasses.replace(trial_of(**step(handed("data", 0.03, **more))), code=code)
        reply = RULE.check(TrialFacts.of(trial))
        assert isinstance(reply, Finding)
        return reply

    finding = of(seen())
    assert f"(mostly {EDT})" in finding.summary
    assert [line.place for line in finding.lines] == [INSIDE]
    # The work may lie some lines below the one that reads.
    below = of(seen(line=11), until=12)
    assert [line.place for line in below.lines] == [INSIDE] and "mostly" in below.summary
    assert of(seen(line=13), until=12).lines == () and of(seen(line=11)).lines == ()
    assert "(in matchlib)" in of(seen(), library="matchlib").summary
    assert "mostly" not in of(seen(calls=())).summary
    # A framework's own loop is what calls everything.
    assert "mostly" not in of(seen(calls=("transformers.trainer.Trainer.train",), trains=True)).summary
    assert "mostly" not in of(seen(calls=("torch._tensor.Tensor.__array__",))).summary


def test_on_a_device_it_is_the_looks_seconds_over_the_steps() -> None:
    facts = {"operator_seconds_forward": 0.0, "operator_bytes_forward": 1e6, "operator_bytes_backward": 2e6}
    facts |= {"outside_of_torch": [handed("data", 0.03)], "outside_seconds_forward": 0.03}
    trial = {"forward": 0.06, "backward": 0.04, "facts": facts, "device": "cuda:0"}
    finding = found(ask_trial(RULE, **trial))
    # What was launched before may still run meanwhile.
    assert finding.severity is Severity.INFO and finding.recoverable is not None and finding.recoverable.low == 0
    assert number(finding, "work outside of torch in forward").value == pytest.approx(30, rel=0.02)


def test_where_nobody_looked_it_is_not_known() -> None:
    assert missing(ask_trial(RULE)).signal == "outside_of_torch"
