"""Collectives in traces: how many and how large (COM001), beside what (COM003), and who waits for whom (COM004)."""

from __future__ import annotations

from pathlib import Path

import pytest

from perf_diagnostics.diagnose.facts.facts import NotApplicable, NotMeasured
from perf_diagnostics.diagnose.finding import Cleared, Finding, Severity
from perf_diagnostics.diagnose.trace.breakdown import Part
from perf_diagnostics.diagnose.trace.collectives import collectives
from perf_diagnostics.diagnose.trace.events import Kind
from perf_diagnostics.diagnose.trace.passes import passes_of
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
    assert "100 collectives a step (allreduce), with a median of 0.00400 MB" in finding.summary
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


ENGINE = "autograd::engine::evaluate_function: "


def accumulating(
    batches: int,
    *,
    exchanged: str = "last",
    annotated: bool = False,
    last_ms: float | None = None,
    parameters: int = 3,
    exchange_ms: float = 4.0,
    messages: int = 1,
    steps: int = 6,
) -> TraceBuilder:
    """Steps of so many batches, 6 ms of computing in all, a third of it forward; then the exchange, all of it exposed.

    The host is a step ahead of the device. Of each batch ``parameters`` gradients are written, in as many nodes with a
    pause between. Gradients are exchanged, in so many messages, after the ``last`` batch, after ``each``, or by
    ``hand``, after the last backward pass; which has ``last_ms``, if given, of the 4 ms that all of them compute.
    """
    length = 6000 + 1000 * exchange_ms
    builder = TraceBuilder()
    for step in range(steps):
        builder.step(step, step * length, (step + 1) * length)
    # The device begins when the host's first step ends.
    for step in range(-1, steps):
        host, at = step * length + 10, (step + 1) * length
        each = 4000 / batches
        backwards = [each] * batches
        if last_ms is not None:
            backwards = [(4000 - 1000 * last_ms) / (batches - 1)] * (batches - 1) + [1000 * last_ms]
        for batch, backward in enumerate(backwards):
            forward = 2000 / batches
            builder.operator("aten::linear", host, host + 20)
            builder.kernel(host + 5, at, at + forward, name=POINTWISE)
            host, at = host + 50, at + forward
            began = host
            for _ in range(parameters):
                builder.operator(f"{ENGINE}AddmmBackward0", host, host + 20, tid=BACKWARD)
                builder.kernel(host + 5, at, at + backward / parameters, name=POINTWISE, tid=BACKWARD)
                builder.operator(f"{ENGINE}torch::autograd::AccumulateGrad", host + 22, host + 30, tid=BACKWARD)
                builder.operator("torch::autograd::AccumulateGrad", host + 23, host + 29, tid=BACKWARD)
                host, at = host + 40, at + backward / parameters
            if annotated:
                builder.note("backward", began, host)
            last = batch == batches - 1
            if exchanged == "each" or last:
                took = 1000 * exchange_ms / (batches if exchanged == "each" else 1)
                launched = host + 60 if exchanged == "hand" else host - 12
                for n in range(messages):
                    begins = at + n * took / messages
                    builder.kernel(launched + n, begins, begins + took / messages, name=NCCL, stream=20, tid=BACKWARD)
                at += took
            host += 100
    return builder


def room(builder: TraceBuilder, tmp_path: Path) -> float:
    """The share of the step, in %, that is exposed and that computing could hide."""
    answer = ask(RunsAlone(), builder.facts(tmp_path))
    assert isinstance(answer, Finding | Cleared), answer
    return float(number(answer, "exposed, and computing could hide it").value)


@pytest.mark.parametrize("annotated", [False, True])
def test_of_accumulated_batches_only_the_last_ones_backward_can_hide_the_exchange(
    annotated: bool, tmp_path: Path
) -> None:
    """4 of 10 ms are exposed. A third of the 6 ms of computing is 2 ms, of which one of three batches has 0.67 ms."""
    finding = found(ask(RunsAlone(), accumulating(3, annotated=annotated).facts(tmp_path)))
    assert number(finding, "exposed communication").value == pytest.approx(40, abs=0.1)
    assert number(finding, "exposed, and computing could hide it").value == pytest.approx(6.67, abs=0.01)
    assert number(finding, "backward passes a step").value == 3
    assert number(finding, "backward passes that communicate").value == pytest.approx(100 / 3)
    assert finding.recoverable is not None and finding.recoverable.high == pytest.approx(0.0667, abs=0.001)


def test_one_of_many_backward_passes_has_too_little_to_hide_anything(tmp_path: Path) -> None:
    answer = clear(ask(RunsAlone(), accumulating(8).facts(tmp_path)))  # 2 ms / 8 of 10 ms
    assert number(answer, "exposed, and computing could hide it").value == pytest.approx(2.5, abs=0.05)
    assert "of the 8 backward passes of a step those that exchange compute too little" in answer.summary


def test_what_each_batch_exchanges_its_own_backward_can_hide(tmp_path: Path) -> None:
    """Four exchanges of 1 ms, each beside a batch that has 0.5 ms for it: 2 ms."""
    assert room(accumulating(4, exchanged="each"), tmp_path) == pytest.approx(20.0, abs=0.1)


def test_each_exchange_is_held_against_its_own_pass_and_not_against_their_sum(tmp_path: Path) -> None:
    """The last of two passes has 3 of the 4 ms, so 1.5 of 2 ms to hide in, and the first one 0.5; 1 ms each."""
    assert room(accumulating(2, exchanged="each", last_ms=3.0, exchange_ms=2.0), tmp_path) == pytest.approx(
        100 * (0.5 + 1.0) / 8, abs=0.1
    )


def test_a_pass_counts_by_what_it_computes(tmp_path: Path) -> None:
    """Of four passes the last one has 2 of the 4 ms: 1 of the 2 ms, and not a quarter."""
    assert room(accumulating(4, last_ms=2.0), tmp_path) == pytest.approx(10.0, abs=0.1)


def test_an_exchange_by_hand_after_the_last_pass_could_have_been_beside_it(tmp_path: Path) -> None:
    assert room(accumulating(4, exchanged="hand"), tmp_path) == pytest.approx(5.0, abs=0.05)


def test_without_accumulation_all_computing_counts_as_before(tmp_path: Path) -> None:
    finding = found(ask(RunsAlone(), accumulating(1).facts(tmp_path)))
    assert number(finding, "exposed, and computing could hide it").value == pytest.approx(20.0, abs=0.1)
    assert not any("backward passes" in item.metric for item in finding.evidence)


def test_one_gradient_that_is_accumulated_is_one_gradient(tmp_path: Path) -> None:
    one = ask(RunsAlone(), accumulating(4, parameters=1).facts(tmp_path))
    assert isinstance(one, NotApplicable) and "one gradient" in one.why


def test_the_passes_of_each_step_are_found_with_what_they_compute_and_exchange(tmp_path: Path) -> None:
    passes = passes_of(accumulating(4).facts(tmp_path))
    assert passes is not None and passes.a_step == 4 and passes.step.size == 4 * 7
    # 1 ms of backward each; of each step's four passes the last one's 4 ms of communication is exposed.
    assert passes.computing_ns.tolist() == pytest.approx([1_000_000] * 28, rel=1e-3)
    assert passes.exposed_ns.tolist() == pytest.approx([0, 0, 0, 4_000_000] * 7, rel=1e-3)
    assert passes.messages.tolist() == [0, 0, 0, 1] * 7 and passes.exchanging == 0.25


@pytest.mark.parametrize(("messages", "one_by_one"), [(24, True), (6, False)])
def test_gradients_that_are_accumulated_are_counted_once_for_each_exchange(
    messages: int, one_by_one: bool, tmp_path: Path
) -> None:
    """24 gradients, 48 times added to in a step of two batches, and exchanged after the last batch alone."""
    builder = accumulating(2, parameters=24, messages=messages)
    finding = found(ask(CommunicationBound(), builder.facts(tmp_path)))
    says = f"24 gradients and {messages} all-reduces a backward pass"
    assert (says in finding.remedies[0].says) is one_by_one


def test_traces_without_the_engines_operators_tell_of_no_passes(tmp_path: Path) -> None:
    assert passes_of(exchanging(4, 0, gradients=3).facts(tmp_path)) is None


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


def on_host(*, waits: bool, world_size: int = 2) -> TraceBuilder:
    """Steps of 10 ms on the CPU: 4 ms of operators, then 5 of nothing; gloo's range from 2 ms on covers 6 of them."""

    def fill(builder: TraceBuilder, start: float) -> None:
        builder.operator("aten::mm", start, start + 4000)
        builder.operator("c10d::allreduce_", start + 1990, start + 2000)
        builder.operator("_c10d_functional::wait_tensor", start + 4000, start + 8000)  # a wait is no work
        if waits:
            builder.note("gloo:all_reduce", start + 2000, start + 8000, tid=BACKWARD)

    return repeated(STEP, 5, fill, deviceProperties=[], distributedInfo={"rank": 0, "world_size": world_size})


def test_a_wait_for_gloo_is_communication_and_no_other_work_of_the_host(tmp_path: Path) -> None:
    facts = on_host(waits=True).facts(tmp_path)
    answer = found(ask(CommunicationBound(), facts))

    # 4 of 10 ms: the 2 ms before them lie behind the operator.
    assert number(answer, "exposed communication").value == pytest.approx(40)
    assert number(answer, "overlap with computation").value == pytest.approx(100 / 3)
    assert number(answer, "collectives a step").value == 1
    assert "(all_reduce)" in answer.summary
    shares = {part: facts.share(part).value for part in Part if facts.share(part).value}
    assert shares == {
        Part.COMPUTE: pytest.approx(0.4),
        Part.COMMUNICATION: pytest.approx(0.4),
        Part.HOST: pytest.approx(0.2),
    }


@pytest.mark.parametrize(("world_size", "kind"), [(2, NotMeasured), (1, NotApplicable)])
def test_on_the_cpu_ranks_without_a_range_of_a_collective_are_not_measured(
    world_size: int, kind: type, tmp_path: Path
) -> None:
    assert type(ask(CommunicationBound(), on_host(waits=False, world_size=world_size).facts(tmp_path))) is kind
