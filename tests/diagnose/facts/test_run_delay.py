"""Time without a core: whose fault it was, where it lay, and what of a wait would be left without others."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from perf_diagnostics.diagnose.facts import processor, run_delay
from perf_diagnostics.diagnose.facts.facts import Interval, NotMeasured, TrialFacts
from perf_diagnostics.records import Phase
from tests.diagnose.answers import facts_of

#: 100 steps of 1 s.
STEPS_S = 100.0


def loop(
    *,
    wait: float = 0.4,
    wait_cpu: float = 0.0,
    cpu: float = 0.6,
    delay: float = 0.0,
    others: float = 0.0,
    cores: int = 1,
    threads: int = 1,
    process_delay: float | None = None,
    without: tuple[str, ...] = (),
    more: Mapping[str, float] | None = None,
) -> TrialFacts:
    """Steps of 1 s without workers; all but ``others`` (cores that others used) in parts of the step.

    The thread runs for ``cpu`` of it, ``wait_cpu`` of that in the wait, and is ready without a core for ``delay``.
    """
    ready = cpu + (delay if process_delay is None else process_delay)
    return facts_of(
        data_wait=wait,
        forward=1 - wait,
        columns={"thread_cpu_ns": cpu * 1e9, "data_wait_cpu_ns": wait_cpu * 1e9},
        facts={"threads": threads, "cpu_count": cores, "num_workers": 0},
        quantities={
            "process_cpu_s": cpu * STEPS_S,
            "workers_cpu_s": 0.0,
            "other_cpu_s": others * STEPS_S,
            "loop_cpu_share": cpu,
            "loop_run_delay_share": delay,
            "process_run_delay_share": 1 - cpu / ready,
            **(more or {}),
        },
        without=without,
    )


def with_workers(
    *, workers: int, each_cpu: float, each_delay: float, others: float, cores: int = 2, **more: float
) -> TrialFacts:
    """Steps of 1 s, half of them waiting; a mean worker runs and is delayed for these parts of the time."""
    delay = more.get("delay", 0.0)
    cpu = more.get("cpu", 0.5 - delay)
    ready = each_cpu + each_delay
    return facts_of(
        data_wait=0.5,
        forward=0.5,
        columns={"thread_cpu_ns": cpu * 1e9, "data_wait_cpu_ns": 0.0},
        facts={"threads": 1, "cpu_count": cores, "num_workers": workers},
        quantities={
            "process_cpu_s": cpu * STEPS_S,
            "workers_cpu_s": workers * each_cpu * STEPS_S,
            "other_cpu_s": others * STEPS_S,
            "loop_cpu_share": cpu,
            "loop_run_delay_share": delay,
            "process_run_delay_share": delay / (cpu + delay),
            "worker_run_delay_share": each_delay / ready if ready else 0.0,
        },
    )


# -- whose fault


def test_others_explain_no_more_than_the_cores_they_used() -> None:
    # One core: the loop ran for 0.6 and lacked it for 0.3 of the time, of which others used 0.3, or 0.06.
    assert run_delay.robbed_share(loop(delay=0.3, others=0.3)) == pytest.approx(0.3)
    assert run_delay.robbed_share(loop(delay=0.3, others=0.06)) == pytest.approx(0.06)
    assert run_delay.own_share(loop(delay=0.3, others=0.06)) == 0.0  # it has no other thread that ran


def test_who_had_the_core_is_split_by_what_each_ran() -> None:
    # Beside the loop, which ran for 0.3 and lacked the core for 0.6, others ran for 0.4 and its own workers for 0.2.
    facts = with_workers(workers=2, each_cpu=0.1, each_delay=0.3, others=0.4, cores=1, cpu=0.3, delay=0.6)
    assert run_delay.robbed_share(facts) == pytest.approx(0.4)  # 0.6 x 0.4 / 0.6
    assert run_delay.own_share(facts) == pytest.approx(0.2)
    # Beside one of the workers there are the loop's 0.3, the other's 0.1, and 0.4 of others: half of its 0.3.
    assert run_delay.workers_robbed_share(facts) == pytest.approx(0.15)


def test_a_delay_of_zero_is_nobodys_fault() -> None:
    assert run_delay.robbed_share(loop(delay=0.0, others=0.5)) == 0.0
    assert run_delay.own_share(loop(delay=0.0, others=0.5)) == 0.0


def test_workers_on_too_few_cores_rob_each_other() -> None:
    # 4 workers, each running for 0.4 and waiting for 0.6 of the time; others used 0.02 of the two cores.
    facts = with_workers(workers=4, each_cpu=0.4, each_delay=0.6, others=0.02)
    assert run_delay.workers_robbed_share(facts) < 0.01


def test_without_what_others_used_it_stays_open_whose_fault_it_was() -> None:
    # As between ranks of one training on the same cores: each would be the other's somebody else.
    with pytest.raises(NotMeasured) as reply:
        run_delay.robbed_share(loop(delay=0.3, without=("other_cpu_s",)))
    assert reply.value.signal == "other_cpu_s"


@pytest.mark.parametrize(("periods", "known"), [(0, True), (2, True), (20, False)])  # of 100
def test_what_a_quota_holds_back_is_nobodys_doing(periods: int, known: bool) -> None:
    held = {"cpu_periods": 100.0, "cpu_throttled_periods": float(periods)}
    facts = loop(delay=0.3, others=0.3, more=held)
    if known:
        assert run_delay.robbed_share(facts) == pytest.approx(0.3)
    else:
        with pytest.raises(NotMeasured):
            run_delay.robbed_share(facts)


def test_threads_of_one_operation_wait_for_each_other() -> None:
    # The loop's own of 2 threads lacked nothing, but both together lacked 0.5 cores at a mean moment.
    facts = loop(threads=2, cores=2, cpu=1.0, wait=0.0, delay=0.0, process_delay=0.5, others=0.5)
    assert run_delay.delayed_share(facts) == pytest.approx(0.25)
    assert run_delay.delayed_share(loop(delay=0.3)) == 0.3


@pytest.mark.parametrize("name", ["loop_run_delay_share", "loop_cpu_share"])
def test_a_kernel_that_does_not_count_leaves_it_open(name: str) -> None:
    with pytest.raises(NotMeasured):
        run_delay.robbed_share(loop(delay=0.3, others=0.3, without=(name,)))


# -- where it lay


def test_what_the_loop_lacks_while_computing_is_no_part_of_its_wait() -> None:
    # 0.6 of forward with 0.2 of CPU time: 0.4 lacking, which is all of its delay. So the wait was blocked throughout.
    blocked = run_delay.loading(loop(cpu=0.21, wait_cpu=0.01, delay=0.4, others=0.4))
    assert (blocked.delayed_low, blocked.delayed_high) == pytest.approx((0.0, 0.0), abs=1e-9)
    assert blocked.computing_with_a_core == pytest.approx((0.025, 0.025))  # 0.01 of 0.4
    # The same loop with 0.7 of delay: 0.3 of it can lie in the wait only, whose rest computes for 0.01 of 0.1.
    robbed = run_delay.loading(loop(cpu=0.21, wait_cpu=0.01, delay=0.7, others=0.7))
    assert robbed.delayed == pytest.approx(0.75)
    assert robbed.computing_with_a_core == pytest.approx((0.1, 0.1))


def test_a_loop_that_loads_with_what_it_gets_of_the_core_computes() -> None:
    # A third of the core throughout: 0.4 of wait with 0.13 of CPU time, and 0.27 of it without a core.
    robbed = run_delay.loading(loop(cpu=1 / 3, wait_cpu=0.4 / 3, delay=2 / 3, others=2 / 3))
    assert robbed.computing == pytest.approx(1 / 3)
    assert robbed.computing_with_a_core == pytest.approx((1.0, 1.0))


def test_with_several_threads_the_place_of_the_delay_stays_open() -> None:
    # What forward lacks may be waiting for the other thread: between none and all of 0.3 lies in the wait of 0.4.
    open_ = run_delay.loading(loop(threads=2, cores=2, cpu=0.21, wait_cpu=0.01, delay=0.3, others=0.3))
    assert (open_.delayed_low, open_.delayed_high) == pytest.approx((0.0, 0.75), abs=1e-9)
    assert open_.computing_with_a_core == pytest.approx((0.025, 0.1))


def test_the_loop_s_phases_have_to_be_known() -> None:
    with pytest.raises(NotMeasured):
        run_delay.loading(loop(delay=0.3, without=("thread_cpu_ns",)))
    with pytest.raises(NotMeasured):
        run_delay.loading(loop(wait=0.0, cpu=1.0))


# -- what would be left


def left(facts: TrialFacts) -> tuple[float, float]:
    return run_delay.wait_left(facts, facts.exposed_data_wait_share)


def only(share: float) -> object:
    """Least and most are the same."""
    return pytest.approx((share, share), rel=0.002)


def test_a_blocked_wait_stays_whatever_others_took_of_the_rest() -> None:
    # 0.4 of waiting; of 0.6 of forward others took 0.4. Without them a step takes 0.6 s, 0.4 of it waiting.
    assert left(loop(cpu=0.21, wait_cpu=0.01, delay=0.4, others=0.4)) == only(0.4 / 0.6)


def test_a_loop_that_is_robbed_everywhere_alike_waits_as_much_without_others() -> None:
    assert left(loop(cpu=1 / 3, wait_cpu=0.4 / 3, delay=2 / 3, others=2 / 3)) == only(0.4)


def test_of_a_wait_as_most_steps_show_it_what_the_thread_computed_stays() -> None:
    """Waits of 0.3 of all time, 0.2 in most steps; two thirds of them, and of all, others had the core."""
    facts = loop(wait=0.3, wait_cpu=0.1, cpu=1 / 3, delay=2 / 3, others=1.0)
    for share in (0.3, 0.2):
        usual = Interval(share, None, None, 100)
        assert run_delay.wait_left(facts, usual) == pytest.approx((share, share), abs=0.01)  # and never 0


def test_a_wait_in_which_only_a_core_was_missing_is_gone() -> None:
    # The wait of 0.4 is 0.02 of computing and 0.38 without a core: 0.02 of 0.62 s would be left of it.
    assert left(loop(cpu=0.62, wait_cpu=0.02, delay=0.38, others=0.38)) == only(0.02 / 0.62)
    # Nobody else was there: then it is the trial's own doing, and stays.
    assert left(loop(cpu=0.62, wait_cpu=0.02, delay=0.38, others=0.0)) == only(0.4)


def test_where_the_place_of_the_delay_is_open_so_is_what_would_be_left() -> None:
    # Between none and 0.3 of the wait of 0.4 was delay; a step takes 0.7 s without.
    facts = loop(threads=2, cores=2, cpu=0.21, wait_cpu=0.01, delay=0.3, others=0.3)
    assert left(facts) == pytest.approx((0.1 / 0.7, 0.4 / 0.7))


def test_robbed_workers_would_keep_up() -> None:
    # Each of 2 workers runs 0.2 and lacks a core for 0.7 of the time. Others have it for 1.4 / (1.4 + 0.5 + 0.2) of
    # that, 0.467: a batch would take 0.533 of a step beside the 0.5 of the rest.
    assert left(with_workers(workers=2, each_cpu=0.2, each_delay=0.7, others=1.4)) == only(0.0333 / 0.5333)


def test_sleeping_workers_would_not() -> None:
    # A delay of 0.01 of the time is nothing beside 0.97 of sleep: about half of a step would still be waited for.
    facts = with_workers(workers=1, each_cpu=0.02, each_delay=0.01, others=1.4)
    assert left(facts) == only(0.4926 / 0.9926)  # of its delay 1.4 / (1.4 + 0.5) was others': 0.0074
    assert run_delay.loading(facts).computing_with_a_core[1] == pytest.approx(0.02 / 0.99)


def test_workers_that_rob_each_other_are_the_trials_own() -> None:
    assert left(with_workers(workers=4, each_cpu=0.4, each_delay=0.6, others=0.0)) == only(0.5)


def test_workers_whose_batches_lay_ready_may_sleep_or_not() -> None:
    # The loop runs for 0.2 and lacks a core for 0.7: at least 0.4 of its wait of 0.5. The worker is blocked for 0.8 of
    # the time, on storage or because its queue is full. The one would leave most of a step waiting, the other nothing.
    facts = with_workers(workers=1, each_cpu=0.05, each_delay=0.15, others=0.75, cores=1, cpu=0.1, delay=0.8)
    assert run_delay.batches_lay_ready(facts)
    least, most = left(facts)
    assert least == pytest.approx(0.0, abs=1e-9) and most > 0.7


@pytest.mark.parametrize("value", [0.0, 0.5, 1.0])
def test_numbers_at_the_edge(value: float) -> None:
    names = ("loop_cpu_share", "loop_run_delay_share", "process_run_delay_share", "worker_run_delay_share")
    for workers in (0, 2):
        facts = facts_of(
            data_wait=0.5,
            forward=0.5,
            columns={"thread_cpu_ns": 0.0, "data_wait_cpu_ns": 0.0},
            facts={"threads": 1, "cpu_count": 2, "num_workers": workers},
            quantities=dict.fromkeys((*names, "process_cpu_s", "workers_cpu_s", "other_cpu_s"), value),
        )
        assert all(0.0 <= end <= 1.0 for end in left(facts))
        assert 0.0 <= run_delay.robbed_share(facts) <= 1.0


def test_more_than_all_of_the_time_is_no_measurement() -> None:
    assert run_delay.delayed_share(loop(delay=1.0)) == 1.0
    with pytest.raises(NotMeasured) as reply:
        run_delay.delayed_share(loop(delay=1.5, process_delay=0.3))
    assert "recorded as 1.5" in reply.value.why


def test_what_a_blocked_thread_did_not_run_was_not_taken_from_it() -> None:
    # 0.6 s of forward with 0.2 s of CPU time: of what it lacks 0.1 had no core, or nobody knows how much.
    counted = loop(cpu=0.21, wait_cpu=0.01, delay=0.1, others=0.1)
    assert processor.granted_share(counted) == pytest.approx(0.5 / 0.6)
    assert processor.granted_share(loop(cpu=0.21, wait_cpu=0.01, delay=0.0)) == 1.0
    unknown = loop(cpu=0.21, wait_cpu=0.01, without=("loop_run_delay_share",))
    assert processor.granted_share(unknown) == pytest.approx(0.2 / 0.6)


def test_a_wait_for_the_own_workers_core_is_no_wait_for_data() -> None:
    # One core: the loop runs for 0.3, its worker for 0.3, nobody else. The loop lacks the core for 0.5: its forward
    # pass of 0.5 for 0.2, so 0.3 of the wait of 0.5, in all of which the worker can have had it.
    facts = with_workers(workers=1, each_cpu=0.3, each_delay=0.0, others=0.0, cores=1, cpu=0.3, delay=0.5)
    assert run_delay.delay_in_wait(facts) == only(0.3)
    assert left(facts)[0] == pytest.approx(0.2 / 0.7)


# -- between the phases


def between(*, cpu: float, delay: float, others: float, **more: object) -> TrialFacts:
    """Steps of 1 s on one core, 0.6 of it in forward and 0.4 in none of the phases; parts of the step."""
    return facts_of(
        forward=0.6,
        other=0.4,
        columns={"thread_cpu_ns": cpu * 1e9, "data_wait_cpu_ns": 0.0},
        facts={"threads": 1, "cpu_count": 1, "num_workers": 0},
        quantities={
            "process_cpu_s": cpu * STEPS_S,
            "workers_cpu_s": 0.0,
            "other_cpu_s": others * STEPS_S,
            "loop_cpu_share": cpu,
            "loop_run_delay_share": delay,
            "process_run_delay_share": delay / (cpu + delay),
        },
        **more,
    )


def outside(facts: TrialFacts) -> tuple[float, float]:
    return run_delay.outside_left(facts, facts.share(Phase.OTHER), (Phase.OTHER,))


def test_a_thread_that_could_not_go_on_between_its_phases_did_not_work_there() -> None:
    # Forward ran throughout (0.6 of CPU time), so all of the delay of 0.4 lies outside, or in forward if it was blocked
    # there: nothing, or all 0.4 of the 0.6 s that the step would take.
    assert outside(between(cpu=0.6, delay=0.4, others=0.4)) == (pytest.approx(0.0), pytest.approx(0.4 / 0.6))


def test_a_delay_that_forward_lacks_was_not_outside() -> None:
    # Of forward's 0.6 s the thread ran for 0.3: the delay of 0.3 lies there, and 0.4 of 0.7 s are the loop's.
    assert outside(between(cpu=0.3, delay=0.3, others=0.3)) == only(0.4 / 0.7)


def test_of_what_most_steps_show_outside_the_part_is_taken_that_was_taken_of_all() -> None:
    facts = between(cpu=0.6, delay=0.25, others=1.0)
    whole, half = (Interval(share, None, None, 100) for share in (0.4, 0.2))
    low, high = run_delay.outside_left(facts, half, (Phase.OTHER,))
    most = run_delay.outside_left(facts, whole, (Phase.OTHER,))
    assert (low, high) == pytest.approx((most[0] / 2, most[1] / 2)) and high > 0


def test_what_the_thread_computed_outside_nobody_took() -> None:
    # 0.9 of CPU time, of which forward takes 0.6 at most: 0.3 are the loop's own work, and 0.1 may be others'.
    assert outside(between(cpu=0.9, delay=0.1, others=0.1)) == (pytest.approx(0.3 / 0.9), pytest.approx(0.4 / 0.9))


def test_without_a_delay_all_of_it_is_the_loops() -> None:
    assert outside(between(cpu=0.6, delay=0.0, others=0.4)) == only(0.4)  # measured zero
    with pytest.raises(NotMeasured) as reply:
        outside(between(cpu=0.6, delay=0.0, others=0.4, without=["loop_run_delay_share"]))
    assert reply.value.signal == "loop_run_delay_share"


def test_waits_too_short_for_the_threads_clock_leave_a_range() -> None:
    # Forward of 0.6 s, a wait of 0.1, and 0.3 outside; the thread ran for 0.7 s and lacked the core for 0.3. In the
    # wait it ran for 0 to 0.1: of forward it can have run all, for 0.6 or 0.7 s.
    columns, quantities = {"thread_cpu_ns": 0.7e9}, {"loop_cpu_share": 0.7, "loop_run_delay_share": 0.3}
    quantities |= {"process_cpu_s": 70.0, "workers_cpu_s": 0.0, "other_cpu_s": 30.0, "process_run_delay_share": 0.3}
    given = {"data_wait": 0.1, "forward": 0.6, "other": 0.3, "quantities": quantities}
    facts = facts_of(**given, columns=columns, facts={"threads": 1, "cpu_count": 1, "num_workers": 0})
    assert processor.ran_outside_wait_ns(facts) == (pytest.approx(60e9), pytest.approx(70e9))
    assert processor.granted_share(facts) == 1.0
    with pytest.raises(NotMeasured) as reply:
        outside(facts)  # with that range, too, next to nothing could be said of the time outside
    assert reply.value.signal == "data_wait_cpu_ns"


def test_a_loop_that_waits_for_no_loader_has_no_wait_to_read() -> None:
    # As between(), where the wait was read as 0: 0.9 of CPU time, of which forward takes 0.6 at most.
    facts = between(cpu=0.9, delay=0.1, others=0.1, without=["host_data_wait_ns", "data_wait_cpu_ns"])
    assert outside(facts) == (pytest.approx(0.3 / 0.9), pytest.approx(0.4 / 0.9))


def test_steps_too_short_for_the_threads_clock_have_its_count_over_blocks() -> None:
    # 0.2 of all time, read in no step: of 0.6 s of forward (waits: none) it ran for a third at most.
    short = between(cpu=0.2, delay=0.8, others=0.8, without=["thread_cpu_ns", "data_wait_cpu_ns"])
    assert processor.ran_ns(short) == pytest.approx(20e9)
    assert processor.granted_share(short) == pytest.approx(0.2 / 0.6)
    unread = ["thread_cpu_ns", "loop_cpu_share"]
    with pytest.raises(NotMeasured) as reply:
        processor.granted_share(between(cpu=0.2, delay=0.8, others=0.8, without=unread))
    assert reply.value.signal == "thread_cpu_ns"
    idle = between(cpu=0.0, delay=0.8, others=0.8)  # measured: it never ran
    assert processor.ran_ns(idle) == 0.0


def test_on_a_device_the_hosts_delay_is_none_of_the_steps() -> None:
    with pytest.raises(NotMeasured):
        outside(between(cpu=0.6, delay=0.4, others=0.4, device="cuda:0"))
