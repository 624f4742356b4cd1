"""STB002 to STB005 and SWP004: stalls, jitter, rhythm, one-off costs, and an odd batch size."""

from __future__ import annotations

import numpy as np
import pytest

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.stb002_stalls import LongSteps
from perf_diagnostics.diagnose.rules.stb003_jitter import Jitter
from perf_diagnostics.diagnose.rules.stb004_periodic_work import PeriodicWork
from perf_diagnostics.diagnose.rules.stb005_one_off_costs import OneOffCosts
from perf_diagnostics.diagnose.rules.swp004_odd_batch_size import OddBatchSize
from perf_diagnostics.testing import run_of, sweep_of, trial_of
from tests.diagnose.answers import ask_group, ask_run, ask_trial, changes, clear, found, missing, number

#: 12 stalls without a rhythm, one in each 20 steps but never at the same place of them.
IRREGULAR = np.array([3, 31, 44, 78, 85, 117, 129, 142, 170, 195, 201, 236])
QUIET = 1 + 0.02 * np.random.default_rng(7).standard_normal(240)


def stalling(rule, at, *, seconds=0.4, where="other", steps=240, **trial):
    """Steps of about 0.1 s in forward, of which those at ``at`` take ``seconds`` more in one phase."""
    extra = np.zeros(steps)
    extra[at] = seconds * 1e9
    base = 1e8 * QUIET[:steps]
    columns = {"wall_ns": base + extra, "host_forward_ns": base}
    if where != "other":
        columns[f"host_{where}_ns"] = extra + (base if where == "forward" else 0)
    return ask_trial(rule, steps=steps, columns=columns | trial.pop("columns", {}), **trial)


# -- STB002


@pytest.mark.parametrize("where", ["other", "data_wait"])
def test_stalls_in_one_place_are_found(where):
    finding = found(stalling(LongSteps(), IRREGULAR, where=where))
    # 12 x 0.4 of 24 + 4.8 s.
    assert finding.severity is Severity.WARNING
    assert number(finding, "lost in stalls").value == pytest.approx(100 * 4.8 / 28.8, rel=0.03)
    assert finding.claims[where] == pytest.approx(4.8 / 28.8, rel=0.03)


def test_one_long_stall_is_told_alone_and_not_by_the_middle_of_all():
    extra = np.zeros(240)
    extra[[30, 90, 171]], extra[120] = 0.06e9, 9e9  # 9 s of 24 + 9.18
    base = 1e8 * QUIET
    columns = {"wall_ns": base + extra, "host_forward_ns": base}
    summary = found(ask_trial(LongSteps(), steps=240, columns=columns)).summary
    assert summary.startswith(
        "One step of 240, steady step 121, took 9.00 s longer than the others (3 others together 1"
    )


@pytest.mark.parametrize(
    ("at", "passes_at", "says"),
    [
        ([120], [60, 120], "One step of 240, the first of a pass over the data, took 4.00 s longer"),
        ([121], [60, 120], "One step of 240, steady step 122, took 4.00 s longer"),
        ([44, 120], [44, 120], "2 steps of 240, each the first of a pass over the data, took 4.00 s longer"),
        ([44, 120], [120], "2 steps of 240 took 4.00 s longer"),
    ],
)
def test_stalls_where_a_pass_over_the_data_begins_are_said_to(at, passes_at, says):
    epochs = np.searchsorted(passes_at, np.arange(240), side="right")
    finding = found(stalling(LongSteps(), np.array(at), seconds=4.0, columns={"epoch": epochs}))
    assert finding.summary.startswith(says)


def test_a_deeper_queue_is_proposed_where_the_data_stalls():
    finding = found(stalling(LongSteps(), IRREGULAR, where="data_wait", facts={"prefetch_factor": 2}))
    assert changes(finding) == [{"prefetch_factor": 4}]


def test_a_queue_is_made_deeper_only_where_batches_come_late():
    # Without workers nobody works ahead.
    alone = found(stalling(LongSteps(), IRREGULAR, where="data_wait", facts={"num_workers": 0}))
    assert "work further ahead" not in str(alone.remedies)
    assert "Load in workers" in alone.remedies[1].says
    # The thread was ready to run, and had no core, for all of the 4.8 s that it waited in 28.8 s.
    counted = {"process_cpu_s": 28.8, "workers_cpu_s": 20.0, "other_cpu_s": 0.0, "loop_cpu_share": 24 / 28.8}
    counted |= {
        "loop_run_delay_share": 4.8 / 28.8,
        "process_run_delay_share": 4.8 / 28.8,
        "worker_run_delay_share": 0.5,
    }
    ran = {"thread_cpu_ns": 1e8 * QUIET, "data_wait_cpu_ns": np.zeros(240)}
    facts = {"num_workers": 8, "prefetch_factor": 2, "threads": 1, "cpu_count": 1, "cpu_window_s": 28.8}
    ready = found(stalling(LongSteps(), IRREGULAR, where="data_wait", facts=facts, quantities=counted, columns=ran))
    (only,) = ready.remedies
    assert only.says.endswith("the loop had no core to take it: try fewer workers, or none.")


@pytest.mark.parametrize(("drawn", "told"), [(0.9, True), (0.6, True), (0.4, False)])
def test_a_sampler_that_draws_as_long_as_stalls_take_is_to_be_made_cheaper(drawn, told):
    """Of rows of ten batches, 0.5 s of waits each, this part is the sampler's; all of it is lost in stalls."""
    own = {"file": "train.py", "line": 24, "function": "ByLength.__iter__"}
    parts = {"rows": [[10, 0.5, 0.5 * drawn, 0.0]] * 9, "sampler": {"name": "ByLength", "place": own}}
    facts = {"num_workers": 0, "loader_parts": parts}
    remedies = found(stalling(LongSteps(), IRREGULAR, where="data_wait", facts=facts)).remedies
    assert ("Make ByLength.__iter__ (train.py:24) cheaper" in remedies[0].says) is told
    assert ("Load in workers" in str(remedies)) is not told


def test_few_stalls_little_stalls_and_stalls_in_the_computing_are_not():
    clear(stalling(LongSteps(), IRREGULAR[:1]))  # 0.4 of 24.4 s
    clear(stalling(LongSteps(), [], seconds=0.0))
    clear(stalling(LongSteps(), IRREGULAR, where="forward"))  # may be other programs


def test_in_a_short_trial_stalls_are_only_mentioned():
    at = IRREGULAR[IRREGULAR < 90]
    assert found(stalling(LongSteps(), at, seconds=2.0, steps=90)).severity is Severity.INFO
    assert missing(stalling(LongSteps(), [3], steps=19)).signal == "steps"


def test_what_has_another_owner_is_no_stall():
    gc = np.zeros(240)
    gc[IRREGULAR] = 4e8
    clear(stalling(LongSteps(), IRREGULAR, columns={"gc_ns": gc}))
    epoch = np.zeros(240, dtype=int)
    epoch[IRREGULAR] = 1
    clear(stalling(LongSteps(), IRREGULAR, where="data_wait", columns={"epoch": np.cumsum(epoch)}))


def test_stalls_that_others_load_would_cost_in_their_place_are_not_the_loops_own():
    """60 steps are stopped for 0.4 s in the forward, 12 outside of all phases, which take 0.3 of the forward's time.

    60 x 0.37 s surely without a processor let expect 60 x 0.37 x 0.3 = 6.7 s outside; 12 x 0.4 = 4.8 were found.
    """
    stopped = np.setdiff1d(np.arange(0, 240, 3), IRREGULAR)[:60]

    def crowd(at):
        forward, extra = 1e8 * QUIET, np.zeros(240)
        used = forward + 3e7
        extra[IRREGULAR] = 4e8
        forward = forward + np.isin(np.arange(240), at) * 4e8
        columns = {"wall_ns": forward + 3e7 + extra, "host_forward_ns": forward, "thread_cpu_ns": used}
        return ask_trial(LongSteps(), steps=240, columns=columns | {"data_wait_cpu_ns": 0})

    assert "others had the processors" in clear(crowd(stopped)).summary
    assert found(crowd(stopped[:5])).severity is Severity.WARNING


# -- STB004


def test_long_steps_with_a_rhythm_are_periodic_work_and_no_stalls():
    at = np.arange(17, 240, 40)  # 6 of them: 17, 57, … 217
    finding = found(stalling(PeriodicWork(), at, seconds=0.8))
    assert finding.severity is Severity.WARNING
    assert "Every 40 steps one takes" in finding.summary
    assert number(finding, "period").value == 40
    # Whole cycles of 40 x 0.1 + 0.8 s.
    assert number(finding, "lost in long steps").value == pytest.approx(100 * 0.8 / 4.8, rel=0.05)
    assert "STB004" in clear(stalling(LongSteps(), at, seconds=0.8)).summary


@pytest.mark.parametrize("where", ["other", "forward"])
def test_a_step_that_does_not_count_among_the_others_does_not_shift_the_beat(where):
    """Every 20th step takes longer; after half of these beats one step was looked through."""
    at, looked_through = np.arange(19, 240, 20), {"warmup": np.arange(240) == 125}
    finding = found(stalling(PeriodicWork(), at, where=where, warmup_steps=0, columns=looked_through))
    assert number(finding, "period").value == 20
    assert number(finding, "of what is lost on this beat").value == 100
    clear(stalling(LongSteps(), at, where=where, warmup_steps=0, columns=looked_through))


def test_others_long_steps_between_the_beats_do_not_hide_a_rhythm():
    """Every 20th step stands outside of the phases for 0.4 s, and six others are held up while they compute."""
    at, held = np.arange(19, 240, 20), np.array([8, 47, 90, 133, 171, 214])
    extra, computing = np.zeros(240), np.zeros(240)
    extra[at], computing[held] = 0.4e9, 0.25e9  # 12 x 0.4 s are 76 % of all that is lost: no rhythm by itself
    base = 1e8 * QUIET
    columns = {"wall_ns": base + extra + computing, "host_forward_ns": base + computing}
    finding = found(ask_trial(PeriodicWork(), steps=240, columns=columns))
    assert number(finding, "period").value == 20
    assert finding.severity is Severity.WARNING


def between_phases_each(period, *, seconds=0.1, steps=240, facts=None, **columns):
    """Steps of 0.02 to 0.18 s in forward, each ``period``-th with ``seconds`` more of work outside of all phases."""
    forward = 1e8 * np.random.default_rng(11).uniform(0.2, 1.8, steps)
    outside = np.where(np.arange(steps) % period == 1, seconds * 1e9, 3e5)
    given = {"wall_ns": forward + outside, "host_forward_ns": forward} | columns
    return ask_trial(PeriodicWork(), steps=steps, columns=given, facts=facts or {})


def test_work_in_every_second_step_is_set_against_the_other_half():
    # 0.1 of 2 x 0.1 + 0.1 s; the median of all lies halfway up.
    finding = found(between_phases_each(2))
    assert number(finding, "period").value == 2
    assert number(finding, "lost in long steps").value == pytest.approx(100 * 0.1 / 0.3, rel=0.1)


def test_a_rhythm_between_the_phases_is_heard_where_the_phases_scatter():
    finding = found(between_phases_each(4))
    assert number(finding, "period").value == 4
    # 0.1 of 4 x 0.1 + 0.1 s.
    assert number(finding, "lost in long steps").value == pytest.approx(100 * 0.1 / 0.5, rel=0.1)
    assert "every 4 steps one takes 99.7 ms longer" in finding.summary.lower()
    assert finding.claims == {"other": pytest.approx(0.2, rel=0.1)}
    assert not any("loader's workers" in remedy.says for remedy in finding.remedies)
    loaded = found(between_phases_each(4, facts={"num_workers": 0}))
    assert "loader's workers" in loaded.remedies[-1].says


def test_what_the_collector_or_a_compilation_does_between_the_phases_is_no_periodic_work():
    at = np.arange(240) % 4 == 1
    clear(between_phases_each(4, gc_ns=np.where(at, 1e8, 0.0)))
    clear(between_phases_each(4, graphs=3 + np.cumsum(at)))
    clear(between_phases_each(4, seconds=0.01))  # 0.01 of 0.41 s
    found(between_phases_each(4, gc_ns=np.zeros(240), graphs=np.full(240, 3)))  # measured: neither


@pytest.mark.parametrize(("lasts", "beat_s"), [(60, 0.07), (100, 0.07), (150, 0.2)])
def test_a_rhythm_is_found_after_and_within_a_slow_start(lasts, beat_s):
    """150 steps of 0.1 s, the first ones up to 0.3 s longer, and each fifth a beat: none of the start is cut off."""
    steps = np.arange(150)
    base = 1e8 * (1 + 0.05 * np.random.default_rng(2).standard_normal(150))
    outside = 0.3e9 * np.maximum(0, 1 - steps / lasts) + beat_s * 1e9 * (steps % 5 == 2)
    columns = {"wall_ns": base + outside, "host_forward_ns": base}
    finding = found(ask_trial(PeriodicWork(), steps=150, columns=columns, steady=False))
    assert number(finding, "period").value == 5 and finding.severity is Severity.WARNING


def evaluating(*, calls=10, each=40, seconds=0.3, longer_backward=False, a_pass=40, **columns):
    """Steps of 0.03 s in forward and 0.06 s in backward; each 40th calls the model more often, with gradients."""
    beats = np.arange(240) % each == 17
    base = 1e7 * QUIET
    backward = 6 * base + np.where(beats & longer_backward, seconds * 1e9, 0.0)
    forward = 3 * base + np.where(beats, seconds * 1e9, 0.0)
    given = {
        "wall_ns": forward + backward,
        "host_forward_ns": forward,
        "host_backward_ns": backward,
        "forwards": 1.0 + calls * beats,
        "backwards": np.ones(240),
    }
    return ask_trial(PeriodicWork(), steps=240, columns=given | columns, facts={"batches_a_pass": a_pass})


def test_a_rhythm_is_no_evaluation_because_another_step_calls_the_model():
    beats = np.arange(240) % 40 == 17  # 0.3 s are lost in these; 10 calls of 0.5 ms lie in others
    asks = np.roll(beats, 5)
    forward = 3e7 * QUIET + np.where(beats, 3e8, 0.0) + np.where(asks, 5e6, 0.0)
    columns = {"wall_ns": forward + 6e7 * QUIET, "host_forward_ns": forward, "forwards": 1.0 + 10 * asks}
    finding = found(evaluating(**columns))
    assert finding.severity is Severity.WARNING
    assert "for an evaluation" not in finding.summary
    (remedy,) = finding.remedies
    assert remedy.says.startswith("Look at what happens in the forward pass")


def test_an_evaluation_after_each_pass_is_mentioned_and_one_with_gradients_is_told_to_go_without():
    # 0.3 s of 40 x 0.09 + 0.3 s: 7.7 %.
    finding = found(evaluating())
    assert finding.severity is Severity.INFO
    assert "for an evaluation after a pass over the data" in finding.summary
    (remedy,) = finding.remedies
    assert "called 10 times" in remedy.says and "30.0 ms a call" in remedy.says
    assert "model.eval()" in remedy.says and "hooks" not in remedy.says


@pytest.mark.parametrize(
    "other",
    [
        {"each": 20},  # twice a pass
        {"a_pass": None},  # who knows how often
        {"seconds": 0.8},  # 18 % of all time
        {"calls": 0},  # something else in the forward pass
        {"longer_backward": True},  # what is called is trained on
    ],
)
def test_what_is_no_usual_evaluation_is_a_warning(other):
    finding = found(evaluating(**other))
    assert finding.severity is Severity.WARNING
    if other.keys() & {"calls", "longer_backward"}:
        assert "hooks" in finding.remedies[0].says and "evaluation" not in finding.summary


def test_an_evaluation_without_gradients_after_each_pass_is_mentioned():
    calls = 10.0 * (np.arange(240) % 40 == 17)
    base = 1e8 * QUIET
    columns = {
        "wall_ns": base + 0.03e9 * calls,  # 0.3 s of 40 x 0.1 + 0.3 s
        "host_forward_ns": base,
        "forwards": np.ones(240),
        "forwards_without_gradients": calls,
    }
    usual = found(ask_trial(PeriodicWork(), steps=240, columns=columns, facts={"batches_a_pass": 40}))
    often = found(ask_trial(PeriodicWork(), steps=240, columns=columns, facts={"batches_a_pass": 41}))
    assert usual.severity is Severity.INFO and often.severity is Severity.WARNING
    assert "10 times" in usual.remedies[0].says and "gradients" not in usual.remedies[0].says


def test_no_rhythm_is_no_periodic_work():
    clear(stalling(PeriodicWork(), IRREGULAR))
    clear(stalling(PeriodicWork(), []))
    clear(stalling(PeriodicWork(), np.arange(17, 240, 40), seconds=0.1))  # 6 x 0.1 of 24.6 s
    missing(stalling(PeriodicWork(), [], steps=19))


def test_batches_that_cycle_in_length_are_not_periodic_work():
    length = 1 + np.arange(160) % 8
    columns = {"wall_ns": 1e7 * length, "host_forward_ns": 1e7 * length, "tokens": 32 * length}
    for rule in (PeriodicWork(), LongSteps(), Jitter()):
        clear(ask_trial(rule, steps=160, columns=columns))


def going(rule, course, at, *, seconds=0.8, seed=3):
    """240 steps of 0.1 s in forward times their ``course``; those at ``at`` take more outside of the phases."""
    base = 1e8 * course * (1 + 0.02 * np.random.default_rng(seed).standard_normal(240))
    extra = np.zeros(240)
    extra[at] = seconds * 1e9
    columns = {"wall_ns": base + extra, "host_forward_ns": base}
    return ask_trial(rule, steps=240, columns=columns, steady=False)


@pytest.mark.parametrize(
    "course",
    [np.repeat([1.0, 1.3], 120), np.repeat([1.0, 2.0], 120), np.repeat([2.0, 1.0], 120), np.linspace(1, 3, 240)],
)
def test_stalls_and_rhythms_are_found_beside_a_new_level_and_a_drift(course):
    beats = found(going(PeriodicWork(), course, np.arange(17, 240, 40)))
    assert number(beats, "period").value == 40 and beats.severity is Severity.WARNING
    # 6 x 0.8 s.
    assert number(beats, "lost in long steps").value == pytest.approx(480 / (0.1 * course.sum() + 4.8), rel=0.05)
    assert found(going(LongSteps(), course, IRREGULAR)).severity is Severity.WARNING
    for rule in (PeriodicWork(), LongSteps(), Jitter()):
        clear(going(rule, course, []))


# -- STB003


def test_a_long_slow_end_is_mentioned():
    times = 1e8 * np.where(np.arange(200) % 11 == 5, 1.32, QUIET[:200])
    wide = 1e8 * (1 + 0.25 * np.random.default_rng(1).standard_normal(200)).clip(0.5)
    assert found(ask_trial(Jitter(), steps=200, columns={"wall_ns": wide})).severity is Severity.INFO
    assert number(found(ask_trial(Jitter(), steps=200, columns={"wall_ns": times})), "lost in outliers").value < 5
    clear(ask_trial(Jitter(), steps=200, columns={"wall_ns": 1e8 * QUIET[:200]}))


def test_stalls_are_not_jitter():
    clear(stalling(Jitter(), np.arange(0, 240, 10)))  # lost: 9.6 of 33.6 s


# -- STB005


def costing(setup_s, first_s, **trial):
    return trial_of(forward=0.1, quantities={"setup_s": setup_s, "first_step_s": first_s}, **trial)


def test_one_off_costs_are_held_against_a_thousand_steps():
    # 10 s of set-up and 5.1 s in the first of steps of 0.1 s: 15 of 15 + 100 s.
    finding = found(ask_run(OneOffCosts(), run_of(costing(10.0, 5.1))))
    assert finding.severity is Severity.INFO
    assert number(finding, "of a training of 1000 steps").value == pytest.approx(100 * 15 / 115)
    clear(ask_run(OneOffCosts(), run_of(costing(1.0, 0.1))))
    clear(ask_run(OneOffCosts(), run_of(costing(0.0, 0.0))))
    assert missing(ask_run(OneOffCosts(), run_of(trial_of()))).signal == "first_step_s"


def test_compiling_pays_after_so_many_steps_or_never():
    plain = costing(1.0, 0.1)

    def against_compiled(step_s):
        compiled = trial_of(
            forward=step_s,
            settings={"compile_mode": "default"},
            quantities={"setup_s": 1.0, "first_step_s": 4 + step_s},
        )
        return found(ask_run(OneOffCosts(), run_of(plain, compiled)))

    # 4 s once against 0.02 s a step.
    assert number(against_compiled(0.08), "steps until compiling pays, batch 8").value == pytest.approx(200, abs=1)
    assert number(against_compiled(0.11), "steps until compiling pays, batch 8").value == "never"


# -- SWP004


def odd(slower, **sweep):
    """A sweep in which batch 24 takes so much longer than 0.1 s + 0.01 s a sample."""
    plain = sweep_of(a_s=0.1, b_s=0.01, batch_sizes=(8, 16, 32, 48, 64), **sweep)
    repeats = [r.trial.repeat for r in plain.results if r.trial.settings.batch_size == 8]
    return run_of(
        *plain.results,
        *(trial_of(forward=0.34 * (1 + slower), batch_size=24, repeat=r, noise=0.001) for r in repeats),
    )


def test_a_batch_size_slower_than_its_neighbours_is_odd():
    finding = found(ask_group(OddBatchSize(), odd(0.3)))
    assert finding.batch_sizes == (24,) and finding.severity is Severity.INFO
    assert number(finding, "step time beyond the expected, batch 24").value == pytest.approx(30, rel=0.02)
    assert {"batch_size": 32} in changes(finding)
    assert "one trial" in finding.summary
    assert "one trial" not in found(ask_group(OddBatchSize(), odd(0.3, repeats=3))).summary


def test_a_straight_line_has_no_odd_size():
    clear(ask_group(OddBatchSize(), odd(0.05)))
    clear(ask_group(OddBatchSize(), odd(0.0)))
    clear(ask_group(OddBatchSize(), sweep_of(a_s=0.1, b_s=0.01)))


def test_repeats_that_differ_as_much_speak_against_it():
    trials = [trial_of(forward=0.34 * factor, batch_size=24, repeat=r) for r, factor in enumerate((1.0, 1.3, 1.6))]
    clear(
        ask_group(
            OddBatchSize(),
            run_of(*sweep_of(a_s=0.1, b_s=0.01, batch_sizes=(8, 16, 32, 48, 64), repeats=3).results, *trials),
        )
    )


def test_four_sizes_are_too_few_to_leave_one_out():
    missing(ask_group(OddBatchSize(), sweep_of(a_s=0.1, b_s=0.01, batch_sizes=(8, 16, 32, 64))))
