"""CMP022: many tiny micro-batches, which of them are tiny, and what memory allows."""

from __future__ import annotations

import pytest

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.cmp022_tiny_micro_batches import TinyMicroBatches
from tests.diagnose.answers import ask_trial, changes, clear, found, missing, number

RULE = TinyMicroBatches()
GIB = 2**30


def ask(
    *,
    micro: int = 16,
    samples: int = 2,
    each_us: float = 100,
    used: float | None = 0.03,
    tensors: int = 50,
    operators=None,
    facts=None,
    **more,
):
    """Steps of so many micro-batches whose forward and backward take so long for each trained tensor."""
    work_s = micro * tensors * each_us * 1e-6
    memory = {} if used is None else {"host_memory_peak": used * 10 * GIB, "host_memory_total": 10 * GIB}
    return ask_trial(
        RULE,
        forward=0.4 * work_s,
        backward=0.5 * work_s,
        other=0.1 * work_s,
        noise=0.01,
        batch_size=samples,
        facts={"optimizer_tensors": tensors, "accumulation_steps": micro}
        | ({} if operators is None else {"operators": operators})
        | (facts or {}),
        quantities=memory,
        **more,
    )


def test_sixteen_of_two_samples_could_be_one_of_thirty_two():
    finding = found(ask())
    assert finding.severity is Severity.INFO
    assert "over 16 micro-batches of 2 samples, 4.50 ms each" in finding.summary  # 50 tensors of 90 µs
    assert changes(finding) == [{"batch_size": 32, "accumulation_steps": 1}]
    # What forward and backward have, less a sixteenth: nothing of it is sure.
    assert finding.recoverable.low == 0.0
    assert finding.recoverable.high == pytest.approx(0.9 * 15 / 16, rel=0.02)
    assert number(finding, "the same a micro-batch and trained tensor").value == pytest.approx(90, rel=0.02)


def test_no_more_than_memory_surely_holds():
    # A third is in use: twice that is below 90 %, four times is not.
    assert changes(found(ask(used=0.33))) == [{"batch_size": 4, "accumulation_steps": 8}]
    assert "no room" in clear(ask(used=0.6)).summary


def test_where_memory_is_not_known_it_is_to_be_looked_at():
    assert "fits into memory" in found(ask(used=None)).remedies[0].says


@pytest.mark.parametrize("healthy", [
    {"micro": 3}, {"samples": 32}, {"each_us": 1000}, {"micro": 4, "samples": 1, "each_us": 50_000},
])  # fmt: skip
def test_accumulation_of_a_sensible_size_is_clear(healthy):
    clear(ask(**healthy))


def test_a_recurrent_network_has_few_tensors_and_many_operators():
    finding = found(ask(each_us=1000, operators=16 * 50 * 100))
    assert number(finding, "forward and backward an operator").value == pytest.approx(9, rel=0.02)
    clear(ask(each_us=1000))
    clear(ask(each_us=1000, operators=16 * 50 * 10))


def test_without_accumulation_there_is_nothing_to_say():
    assert "no gradients are accumulated" in str(missing(ask(micro=1)))


def test_a_device_and_a_compiled_model_are_judged_otherwise():
    assert "device" in str(missing(ask(device="cuda:0")))
    assert "compiled" in str(missing(ask(settings={"compile_mode": "default"})))


def sliced(slices: int, backwards: int, *, samples: int = 128, each_us: float = 100):
    """Batches of the loader that are cut into slices."""
    work_s = slices * 50 * each_us * 1e-6
    return ask_trial(
        RULE,
        forward=0.4 * work_s,
        backward=0.5 * work_s,
        other=0.1 * work_s,
        noise=0.01,
        batch_size=samples,
        facts={"optimizer_tensors": 50, "accumulation_steps": 1, "slices_a_batch": slices},
        quantities={"host_memory_peak": 0.03 * 10 * GIB, "host_memory_total": 10 * GIB},
        columns={"backwards": backwards, "forwards": slices},
    )


def test_a_batch_that_is_cut_into_small_slices_is_told_with_what_it_costs():
    finding = found(sliced(16, 16))
    assert "Each batch of 128 samples is trained on in 16 slices of 8 samples" in finding.summary
    assert finding.remedies[0].says.startswith("Train on the batch of 128 at once") and changes(finding) == []
    assert finding.recoverable.low == 0.0 and finding.recoverable.high == pytest.approx(0.9 * 15 / 16, rel=0.02)


def test_slices_that_are_large_or_slow_or_share_a_backward_are_no_fault():
    found(sliced(16, 16, samples=512))
    clear(sliced(16, 16, samples=1024))  # of 64 each
    clear(sliced(16, 16, each_us=1000))
    clear(sliced(2, 2, samples=8))
    assert "no gradients are accumulated" in str(missing(sliced(16, 1)))


def looked(forward: float, backward: float, *, around: float = 0.02) -> dict[str, float]:
    """A step looked through: operators of 0.1 s in forward and backward each, of which so much does not grow."""
    return {
        **{f"operator_seconds_{phase}": 0.1 for phase in ("forward", "backward")},
        **{f"operator_bytes_{phase}": 0 for phase in ("forward", "backward")},
        **{f"around_operators_seconds_{phase}": around for phase in ("forward", "backward")},
        "fixed_seconds_forward": forward,
        "fixed_seconds_backward": backward,
    }


def test_what_each_micro_batch_pays_again_is_a_warning_with_its_gain():
    finding = found(ask(each_us=1000, samples=16, facts=looked(0.03, 0.03)))
    assert finding.severity is Severity.WARNING
    # 0.03 of 0.1 s, half of what lies around them counted: 0.04 of 0.11; of nine tenths of the step, 15 of 16 times.
    assert finding.recoverable.value == pytest.approx(0.9 * 4 / 11 * 15 / 16, rel=0.02)
    assert finding.recoverable.low == pytest.approx(0.9 * 0.3 / 1.5 * 15 / 16, rel=0.02)
    assert finding.recoverable.high == pytest.approx(0.9 * 15 / 16, rel=0.02)
    assert "16 times as large leave out about 31 % of the step" in finding.summary
    assert changes(finding) == [{"batch_size": 256, "accumulation_steps": 1}]


def test_operators_whose_time_grows_with_the_samples_are_no_fault():
    clear(ask(each_us=1000, samples=16, facts=looked(0.01, 0.01)))
    clear(ask(micro=3, samples=16, facts=looked(0.05, 0.05)))
    assert "no room" in clear(ask(used=0.6, facts=looked(0.05, 0.05))).summary
    # Of four in memory's reach two remain: half of it is won.
    assert found(ask(each_us=1000, used=0.4, facts=looked(0.05, 0.05))).recoverable.low == pytest.approx(0.15, rel=0.02)


def test_tiny_micro_batches_stay_an_info_where_operators_do_not_show_that_much_is_won():
    assert found(ask(facts=looked(0.01, 0.01))).severity is Severity.INFO
