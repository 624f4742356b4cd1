"""HST010: so little work for each layer that calling it is most of the step, told from one batch size."""

from __future__ import annotations

import pytest

from perf_diagnostics.diagnose.engine import diagnose
from perf_diagnostics.diagnose.facts.facts import NotApplicable
from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.hst010_tiny_operations import TinyOperations
from perf_diagnostics.testing import run_of, trial_of
from tests.diagnose.answers import ask_trial, changes, clear, found, missing, number

RULE = TinyOperations()


def ask(each_us, *, tensors=120, rest=0.0, noise=0.02, **trial):
    """Forward and backward take so long for each of so many tensors, and ``rest`` of the step goes elsewhere."""
    work = each_us * 1e-6 * tensors
    facts = {"optimizer_tensors": tensors} | trial.pop("facts", {})
    return ask_trial(
        RULE,
        forward=work / 3,
        backward=2 * work / 3,
        data_wait=work * rest / (1 - rest),
        noise=noise,
        facts=facts,
        **trial,
    )


def test_sixty_tiny_layers_at_a_batch_of_two():
    # 120 tensors at 16 µs: a step of 1.92 ms, of which calling operators takes 12 of every 16 µs.
    finding = found(ask(16.0, batch_size=2))
    assert finding.severity is Severity.WARNING
    assert "at batch 2" in finding.summary
    assert finding.recoverable.high == pytest.approx(12 / 16, abs=0.02)
    assert changes(finding) == [{"batch_size": 4}, {"compile_mode": "default"}]


def test_a_tiny_model_at_a_batch_that_is_not_small_is_only_mentioned():
    assert found(ask(16.0, batch_size=8)).severity is Severity.WARNING
    assert found(ask(16.0, batch_size=9)).severity is Severity.INFO


@pytest.mark.parametrize("each_us", [50.0, 200.0, 1000.0])
def test_layers_with_work_are_clear(each_us):
    clear(ask(each_us))


def test_an_interval_across_the_limit_is_clear():
    clear(ask(29.9, noise=0.3, steps=20))


def test_little_work_beside_a_long_wait_is_not_what_takes_the_time():
    clear(ask(12.0, rest=0.8))


def test_accumulated_batches_are_counted_one_by_one():
    # Four batches a step: 48 µs a step for each tensor are 12 µs a batch.
    finding = found(ask(48.0, settings={"accumulation_steps": 4}))
    assert number(finding, "forward and backward a trained tensor").value == pytest.approx(12.0, rel=0.05)


def test_of_accumulated_batches_fewer_and_larger_ones_train_the_same():
    finding = found(ask(48.0, batch_size=2, settings={"accumulation_steps": 4}))
    assert changes(finding) == [{"batch_size": 4, "accumulation_steps": 2}, {"compile_mode": "default"}]
    assert "the same samples in each update" in finding.remedies[0].says
    assert not any("learning rate" in remedy.says for remedy in finding.remedies)
    odd = found(ask(48.0, batch_size=2, settings={"accumulation_steps": 3}))  # 3 cannot be halved by a setting
    assert changes(odd) == [{"compile_mode": "default"}]


def test_time_in_which_others_had_the_processor_is_no_work_of_the_layers():
    # 60 µs of wall time for each of 120 tensors, in a fifth of which the thread ran: 12 µs of its own.
    crowded = {"thread_cpu_ns": 0.2 * 60e3 * 120, "data_wait_cpu_ns": 0}
    assert number(found(ask(60.0, columns=crowded)), "forward and backward a trained tensor").value == pytest.approx(
        12.0, rel=0.05
    )
    clear(ask(60.0, columns={"thread_cpu_ns": 60e3 * 120, "data_wait_cpu_ns": 0}))


def test_waits_too_short_to_read_hide_no_load():
    # 678 µs by the wall; the thread ran for a fifth of the time, read over blocks only: 136 µs of its own, and cleared
    # with that. At batch 2 it is said that one batch size tells no more; at 64, or with real work a layer, it is not.
    def crowded(each_us, **trial):
        return clear(ask(each_us, quantities={"loop_cpu_share": 0.2}, without=["thread_cpu_ns"], **trial))

    small = crowded(678.0, batch_size=2)
    assert number(small, "forward and backward a trained tensor").value == pytest.approx(136, rel=0.05)
    assert "can have run: 20 % of the time; whether that is calls" in small.summary
    assert "SWP001" not in crowded(678.0, batch_size=64).summary
    assert "SWP001" not in crowded(2000.0, batch_size=2).summary  # 400 µs: more than ten operators' calls


def looked(fixed: float, *, around: float = 0.02, moved: float = 0) -> dict[str, float]:
    """One step's operators took 0.1 s in forward and in backward, of which so much grows with no batch."""
    phases = ("forward", "backward")
    return {f"operator_seconds_{phase}": 0.1 for phase in phases} | {
        **{f"operator_bytes_{phase}": moved for phase in phases},
        **{f"around_operators_seconds_{phase}": around for phase in phases},
        **{f"fixed_seconds_{phase}": fixed for phase in phases},
    }


def test_layers_of_many_operators_are_told_by_what_does_not_grow_with_the_batch():
    finding = found(ask(200.0, batch_size=2, rest=0.1, facts=looked(0.06)))
    assert finding.severity is Severity.WARNING and "the 2 of this batch" in finding.summary
    # 0.06 of 0.1 s and half of the 0.02 around them: 7 of 11; of nine tenths of the step. Another step: 1.5 times less.
    repeated = number(finding, "the same for any batch")
    assert repeated.value == pytest.approx(100 * 0.9 * 7 / 11, rel=0.02)
    assert repeated.low == pytest.approx(100 * 0.9 * 0.6 / 1.5, rel=0.02)
    assert repeated.high == pytest.approx(100 * 0.9 * 8 / 12, rel=0.02)
    assert finding.recoverable.high == pytest.approx(0.9 * 8 / 12, rel=0.02)
    assert sum(finding.claims.values()) == pytest.approx(0.9 * 7 / 11, rel=0.02)
    assert changes(finding) == [{"batch_size": 4}, {"compile_mode": "default"}]


@pytest.mark.parametrize(("recurs", "seconds"), [(True, 0.04), (True, 0.005), (False, 0.04)])
def test_a_recurrence_in_python_is_first_to_be_one_call(recurs, seconds):
    loop = {"operators": 640, "passes": 64, "recurs": recurs, "seconds_forward": seconds, "seconds_backward": seconds}
    finding = found(ask(200.0, batch_size=2, rest=0.1, facts=looked(0.06) | {"repeated_calls": [loop]}))
    first = finding.remedies[0].says
    assert ("torch.nn.LSTM" in first) is (recurs and seconds > 0.01)
    assert changes(finding)[-2:] == [{"batch_size": 4}, {"compile_mode": "default"}]


@pytest.mark.parametrize(
    ("batch_size", "facts"),
    [
        (9, looked(0.06)),  # not small: the model may be meant to be so
        (2, looked(0.04)),  # 0.9 of 0.04 in 0.1 s, over 1.5: less than 30 % is sure
        (2, looked(0.06, moved=1e9)),  # on a device
    ],
)
def test_what_may_grow_with_the_batch_is_no_fault(batch_size, facts):
    clear(ask(200.0, batch_size=batch_size, rest=0.1, facts=facts))


def test_where_it_does_not_arise_or_was_not_counted():
    assert isinstance(missing(ask(12.0, device="cuda:0")), NotApplicable)
    assert isinstance(missing(ask(12.0, facts={"compiled": True})), NotApplicable)
    assert missing(ask_trial(RULE)).signal == "optimizer_tensors"
    assert "1 tensor say" in missing(ask(12.0, tensors=1)).why


def test_it_is_the_verdict_of_a_loop_with_one_batch_size():
    tiny = trial_of(forward=0.0005, backward=0.001, noise=0.02, batch_size=2, facts={"optimizer_tensors": 120})
    assert diagnose(run_of(tiny)).verdict.code == "HST010"
