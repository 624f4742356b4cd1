"""Collectives in traces: how many and how large (COM001), beside what (COM003), and who waits for whom (COM004)."""

from __future__ import annotations

from pathlib import Path

import pytest

from perf_diagnostics.diagnose.facts import NotApplicable
from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.trace.collectives import collectives
from perf_diagnostics.diagnose.trace.events import Kind
from perf_diagnostics.diagnose.trace.rules.cmp014_tiny_kernels import TinyKernels
from perf_diagnostics.diagnose.trace.rules.com001_communication_bound import CommunicationBound
from perf_diagnostics.diagnose.trace.rules.com003_little_overlap import RunsAlone
from perf_diagnostics.diagnose.trace.rules.com004_rank_imbalance import TakingTurns
from tests.diagnose.answers import clear, found, missing, number
from tests.diagnose.trace.builder import BACKWARD, NCCL, POINTWISE, TraceBuilder, ask, repeated

STEP = 10_000
GATHER = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def told(elements: int) -> dict[str, object]:
    return {
        "Collective name": "allreduce",
        "dtype": "Float",
        "In msg nelems": elements,
        "Out msg nelems": elements,
        "Group size": 8,
    }


def exchanging(
    messages: int, elements: int, *, of_kernel: bool = True, gradients: int = 0, name: str = NCCL
) -> TraceBuilder:
    """Steps of 10 ms: 6 ms of computing, then 4 ms of so many messages, all queued; nothing overlaps."""

    def fill(builder: TraceBuilder, start: float) -> None:
        builder.kernel(start - 900, start, start + 6000, name=POINTWISE)
        for n in range(gradients):
            builder.operator("torch::autograd::AccumulateGrad", start + n, start + n + 0.5, tid=BACKWARD)
        each = 4000 / messages
        for n in range(messages):
            launched, at = start - 800 + 7 * n, start + 6000 + n * each
            if elements and not of_kernel:
                builder.operator("record_param_comms", launched - 1, launched + 6, **told(elements))
            args = told(elements) if elements and of_kernel else {}
            builder.kernel(launched, at, at + each, name=name, stream=20, **args)

    return repeated(STEP, 5, fill)


@pytest.mark.parametrize("of_kernel", [True, False])
def test_messages_are_read_from_the_kernel_or_from_the_hosts_note(of_kernel: bool, tmp_path: Path) -> None:
    messages = collectives(exchanging(4, 250_000, of_kernel=of_kernel).facts(tmp_path))
    assert messages.bytes.tolist() == [1_000_000] * 20 and messages.sized
    assert messages.kinds == {"allreduce": 20} and messages.all_reduces == 20


def test_without_sizes_they_are_counted_only(tmp_path: Path) -> None:
    facts = exchanging(4, 0).facts(tmp_path)
    assert collectives(facts).bytes.tolist() == [-1] * 20 and not collectives(facts).sized
    finding = found(ask(CommunicationBound(), facts))
    assert number(finding, "collectives a step").value == 4
    assert not any("MB" in item.metric or item.unit == "MB" for item in finding.evidence)
    assert "bucket_cap_mb" not in finding.remedies[0].says


def test_small_messages_are_to_be_bundled(tmp_path: Path) -> None:
    finding = found(ask(CommunicationBound(), exchanging(100, 1000).facts(tmp_path)))  # 4 kB each
    assert number(finding, "exposed under 1 MB a message").value == pytest.approx(40)
    assert number(finding, "moved a step").value == pytest.approx(0.4)
    assert "100 collectives a step (allreduce), in the middle of 0.00400 MB" in finding.summary
    assert finding.remedies[0].says.startswith("Bundle messages")


def test_large_messages_are_not(tmp_path: Path) -> None:
    finding = found(ask(CommunicationBound(), exchanging(4, 6_000_000).facts(tmp_path)))  # 24 MB each
    assert number(finding, "exposed under 1 MB a message").value == 0
    assert finding.remedies[0].says.startswith("Start the exchange earlier")


def test_one_message_a_gradient_is_told(tmp_path: Path) -> None:
    finding = found(ask(CommunicationBound(), exchanging(40, 0, gradients=40).facts(tmp_path)))
    assert "40 gradients and 40 all-reduces a step" in finding.remedies[0].says


def test_gathering_units_is_no_exchange_one_by_one(tmp_path: Path) -> None:
    """Sharded parameters: a gather for each unit, as many as there are flat parameters; nothing goes in buckets."""
    finding = found(ask(CommunicationBound(), exchanging(40, 0, gradients=40, name=GATHER).facts(tmp_path)))
    assert "gradients and" not in finding.remedies[0].says


@pytest.mark.parametrize(
    ("name", "says"),
    [
        (GATHER, "Gather the next unit"),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)", "Let what each rank is sent overlap"),
        ("ncclDevKernel_Broadcast_RING_LL(ncclDevComm*)", "Start the exchange earlier"),
    ],
)
def test_advice_fits_what_is_exchanged(name: str, says: str, tmp_path: Path) -> None:
    finding = found(ask(CommunicationBound(), exchanging(4, 0, name=name).facts(tmp_path)))
    assert finding.remedies[0].says.startswith(says)


def test_collectives_are_no_tiny_kernels(tmp_path: Path) -> None:
    """They have few blocks by design."""

    def fill(builder: TraceBuilder, start: float) -> None:
        builder.kernel(start - 900, start, start + 6100, name=POINTWISE, grid=[1000, 1, 1])
        builder.kernel(start - 890, start + 6100, start + STEP, name=NCCL, stream=20, grid=[24, 1, 1])

    facts = repeated(STEP, 5, fill, deviceProperties=[{"computeMajor": 8, "numSms": 108}]).facts(tmp_path)
    answer = clear(TinyKernels().check(facts))
    assert number(answer, "device's work in kernels of fewer than 108 blocks").value == 0


@pytest.mark.parametrize("hidden", [0, 1500, 2500])
def test_what_computing_could_hide_is_told(hidden: int, tmp_path: Path) -> None:
    """6 ms of computing, 3 ms of one collective of which so many µs overlap with it; a third of what computes alone,
    and no more than is exposed, could hide more of it.
    """

    def fill(builder: TraceBuilder, start: float) -> None:
        builder.kernel(start - 900, start, start + 6000, name=POINTWISE)
        begins = start + 6000 - hidden
        builder.kernel(start - 890, begins, begins + 3000, name=NCCL, stream=20)
        builder.kernel(start - 880, begins + 3000, start + STEP, name=POINTWISE)

    reply = ask(RunsAlone(), repeated(STEP, 5, fill).facts(tmp_path))
    if hidden >= 1500:  # half of it and more
        clear(reply)
        return
    finding = found(reply)
    assert finding.severity is Severity.WARNING
    assert number(finding, "overlap with computation").value == 0
    assert finding.evidence[2].value == pytest.approx(7000 / 3 / STEP * 100, abs=0.1)  # 6 + 1 ms compute alone
    assert finding.recoverable.high == pytest.approx(0.7 / 3, abs=0.001)


def test_without_collectives_overlap_is_no_question(tmp_path: Path) -> None:
    bare = repeated(STEP, 5, lambda b, start: b.kernel(start - 100, start, start + STEP))
    assert isinstance(ask(RunsAlone(), bare.facts(tmp_path)), NotApplicable)


def test_a_single_gradient_has_nothing_left_to_overlap_with(tmp_path: Path) -> None:
    one = ask(RunsAlone(), exchanging(1, 0, gradients=1).facts(tmp_path))
    assert isinstance(one, NotApplicable) and "one gradient" in one.why
    assert found(ask(RunsAlone(), exchanging(1, 0, gradients=2).facts(tmp_path))).code == "COM003"


def test_where_the_host_launches_late_nothing_can_overlap(tmp_path: Path) -> None:
    def fill(builder: TraceBuilder, start: float) -> None:
        for n in range(10):  # each kernel starts as soon as it is launched
            at = start + 1000 * n
            builder.kernel(at, at + 6, at + 606, name=POINTWISE)
            builder.kernel(at + 601, at + 607, at + 907, name=NCCL, stream=20)

    assert "host sets the pace" in clear(ask(RunsAlone(), repeated(STEP, 5, fill).facts(tmp_path))).summary


def taking_turns(rank: int, *, computing: bool, world: int = 3, steps: int = 9) -> TraceBuilder:
    """Steps of 10 ms, of which each rank in turn takes 8 ms to be ready and the others 4; then the collective.

    The longer time is computing, or host work with the device idle.
    """
    builder = TraceBuilder(distributedInfo={"rank": rank, "world_size": world})
    for step in range(steps):
        start = step * STEP
        builder.step(step, start, start + STEP)
        late = step % 3 == rank
        ready = start + (8000 if late else 4000)
        at = start + (4000 if late and not computing else 0)
        builder.kernel(at - 10 if at == start else at, at, ready, name=POINTWISE)
        builder.kernel(ready - 500, ready, start + STEP, name=NCCL, stream=20)
    return builder


def facts_of(tmp_path: Path, *builders: TraceBuilder):
    found = []
    for n, builder in enumerate(builders):
        folder = tmp_path / str(n)
        folder.mkdir()
        found.append(builder.facts(folder))
    return found


@pytest.mark.parametrize("computing", [True, False])
def test_ranks_that_are_late_in_turn_are_laid_to_their_batches_only_if_they_compute(
    computing: bool, tmp_path: Path
) -> None:
    ranks = facts_of(tmp_path, *(taking_turns(rank, computing=computing) for rank in range(3)))
    finding = found(ask(TakingTurns(), ranks))
    # (8 - (8 + 4 + 4) / 3) of 10 ms
    assert number(finding, "mean wait for the last rank").value == pytest.approx(26.7, abs=0.1)
    assert number(finding, "steps in which the same rank is last").value == pytest.approx(100 / 3)
    assert finding.severity is (Severity.WARNING if computing else Severity.INFO)
    assert (finding.recoverable is not None) is computing
    assert ("Group samples" in finding.remedies[0].says) is computing


def test_one_rank_that_is_always_late_is_a_straggler_and_no_imbalance(tmp_path: Path) -> None:
    def rank(number: int, work: float) -> TraceBuilder:
        def fill(builder: TraceBuilder, start: float) -> None:
            builder.kernel(start - 10, start, start + work, name=POINTWISE)
            builder.kernel(start + 10, start + work, start + STEP, name=NCCL, stream=20)

        return repeated(STEP, 9, fill, distributedInfo={"rank": number, "world_size": 2})

    clear(ask(TakingTurns(), facts_of(tmp_path, rank(0, 4000), rank(1, 8000))))


def test_ranks_are_not_cleared_for_those_that_are_missing(tmp_path: Path) -> None:
    def rank(number: int) -> TraceBuilder:
        def fill(builder: TraceBuilder, start: float) -> None:
            builder.kernel(start - 10, start, start + 8000, name=POINTWISE)
            builder.kernel(start + 10, start + 8000, start + STEP, name=NCCL, stream=20)

        return repeated(STEP, 5, fill, distributedInfo={"rank": number, "world_size": 4})

    ranks = facts_of(tmp_path, rank(0), rank(1))
    assert all(len(facts.trace.of(Kind.KERNEL)) for facts in ranks)
    assert "2 of 4 ranks" in missing(ask(TakingTurns(), ranks)).why
    assert isinstance(ask(TakingTurns(), ranks[:1]), NotApplicable)
