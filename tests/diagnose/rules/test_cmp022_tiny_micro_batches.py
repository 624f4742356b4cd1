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
        | ({} if operators is None else {"operators": operators}),
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
