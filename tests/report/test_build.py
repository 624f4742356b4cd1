"""What a report says of a run: every number from the records, nothing that was not measured."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from perf_diagnostics.diagnose.engine import diagnose
from perf_diagnostics.diagnose.finding import Cleared, Diagnosis, Family, Finding, Severity, Unchecked
from perf_diagnostics.records import BATCH_SEARCH, OWN_TRAINING, Gap, Length, Outcome, Phase, Quantity, Run, StepTable
from perf_diagnostics.report.build import build_report
from perf_diagnostics.report.formats.html import render_html
from perf_diagnostics.report.formats.markdown import render_markdown
from perf_diagnostics.report.gains import saving
from perf_diagnostics.report.lead import lead_of
from perf_diagnostics.report.model import ChartKind, Report, ReportTable
from perf_diagnostics.report.summary import summary_text
from perf_diagnostics.testing import run_of, trial_of
from tests.report.conftest import CPU_BATCHES, GENERATED_AT, cpu_result, gpu_result

NOTHING = Diagnosis(verdict=None)


def report_of(*results, diagnosis: Diagnosis = NOTHING, planned=None, **more) -> Report:
    planned = tuple(r.trial for r in results) if planned is None else planned
    run = Run(name="r", created_at="", tool_version="0", planned=planned, results=results, **more)
    return build_report(run, diagnosis, generated_at=GENERATED_AT)


def table(report: Report, key: str) -> ReportTable:
    return next(t for t in report.tables if t.key == key)


def column(shown: ReportTable, label: str) -> list:
    index = [c.label for c in shown.columns].index(label)
    return [row[index] for row in shown.rows]


def chart(report: Report, key: str):
    return next((c for c in report.charts if c.key == key), None)


def without(result, *quantities: str):
    return dataclasses.replace(result, quantities=tuple(q for q in result.quantities if q.name not in quantities))


def test_the_headline_is_the_verdict(report, diagnosis):
    assert report.headline == diagnosis.verdict.summary


def test_without_a_verdict_the_headline_says_why():
    because = Diagnosis(verdict=None, no_verdict_because="only one trial was measured.")
    assert report_of(cpu_result(8), diagnosis=because).headline == "No verdict: only one trial was measured."
    assert report_of().headline == "No verdict: no trial of this run completed."


def test_where_nobody_could_count_samples_no_batch_size_is_named():
    trial = trial_of(batch_size=1, columns={"samples": 0})
    report = report_of(trial, notes=(OWN_TRAINING,))
    assert report.subtitle == "cpu · completed"
    assert "Batch" not in [column.label for column in table(report, "trials").columns]
    assert "Batch" in [column.label for column in table(report_of(trial_of(batch_size=1)), "trials").columns]


def test_the_answer_names_the_recommended_size_with_its_throughput_and_interval(report, run):
    result = next(r for r in run.results if r.trial.settings.batch_size == 32 and r.trial.settings.device == "cpu")
    steady = result.steps[0].steady
    rate = steady.samples.sum() / (steady.wall_ns.sum() / 1e9)
    sentence = next(s for s in report.answer if s.startswith("On cpu, train"))
    assert f"batch size 32: {rate:.1f} samples/s (95 % interval" in sentence
    assert "the fastest of 8" in sentence


def test_a_smaller_size_within_five_percent_is_recommended_and_the_fastest_named():
    results = [cpu_result(batch) for batch in (1, 8, 16, 32)]
    # Stretch batch 32 until it is 3 % faster than batch 16, which is then close enough.
    wanted = 16 * float(results[3].steps[0].steady.wall_ns.mean()) / (32 * results[2].steps[0].steady.wall_ns.mean())
    columns = dict(results[3].steps[0].columns)
    factor = (1 / 1.03) / wanted
    columns = {n: (v * factor if n.endswith("_ns") else v) for n, v in columns.items()}
    results[3] = dataclasses.replace(results[3], steps=(StepTable(columns),))
    report = report_of(*results)
    assert "train at batch size 16" in report.answer[0]
    assert "97.1 % of the fastest, batch size 32 (" in report.answer[0]
    assert report.key_figures[0].value == 16
    assert chart(report, "throughput").series[0].highlight == "16"
    assert chart(report, "course_1").title.endswith("batch size 16")


def test_where_the_time_goes_adds_up(report):
    phases = table(report, "phases_2")
    assert phases.title == "Where a step's time goes, cpu, batch size 32"
    assert sum(column(phases, "Share of the step")) == pytest.approx(100, abs=0.01)
    step = next(row for row in table(report, "trials").rows if row[:2] == ("cpu", 32))
    labels = [c.label for c in table(report, "trials").columns]
    assert sum(column(phases, "Time in a step")) == pytest.approx(step[labels.index("Step")], rel=1e-6)


def test_gains_are_told_with_their_interval_and_as_untried(report):
    change = report.changes[0]
    # 1 / (1 - 0.031) = 1.032, 1 / (1 - 0.024) = 1.025, 1 / (1 - 0.036) = 1.037
    assert saving(change.gain) == (
        "a fix could save 3 % of the time (2 to 4 %): 1.03 times as fast (1.02 to 1.04); predicted, not measured"
    )
    assert change.confidence == 0.85 and change.tried == ""
    assert change.key in {f"finding {f.code} {f.scope}" for f in report.diagnosis.findings}


def test_a_gain_of_mere_information_is_told_as_a_guess(diagnosis):
    info = dataclasses.replace(diagnosis.findings[0], severity=diagnosis.findings[2].severity)
    report = report_of(cpu_result(8), diagnosis=Diagnosis(verdict=None, findings=(info,)))
    assert report.changes == ()
    (hint,) = (s for s in report.answer if "is a guess" in s)
    assert hint.startswith("No rule found a fault in the training;") and "3.1 %" in hint
    assert not any(figure.label == "Could be won back" for figure in report.key_figures)


def test_a_fault_of_unknown_gain_is_not_told_as_nothing_found(diagnosis):
    fault = dataclasses.replace(diagnosis.findings[0], recoverable=None)
    assert fault.severity is not Severity.INFO and fault.family is not Family.EXPERIMENT
    report = report_of(cpu_result(8), diagnosis=Diagnosis(verdict=None, findings=(fault,)))
    (told,) = (s for s in report.answer if "is not known" in s)
    assert told == (
        f"“{fault.name.replace('-', ' ')}” ({fault.scope}): what mending it would win is not known. "
        f"{fault.remedies[0].says}"
    )
    assert not any("No rule found" in sentence for sentence in report.answer)


def test_without_any_gain_in_sight_the_answer_says_so(diagnosis):
    info = dataclasses.replace(diagnosis.findings[0], severity=diagnosis.findings[2].severity, recoverable=None)
    report = report_of(cpu_result(8), diagnosis=Diagnosis(verdict=None, findings=(info,)))
    assert "No rule found anything that would speed up training at these batch sizes." in report.answer


def test_every_sentence_rests_on_something_that_is_there(report):
    keys = {c.key for c in report.charts} | {t.key for t in report.tables} | {"incomplete", "checks", ""}
    keys |= {f"finding {f.code} {f.scope}" for f in report.diagnosis.findings}
    assert len(report.answer_basis) == len(report.answer)
    assert {basis.key for basis in report.answer_basis} <= keys


def test_repeats_of_a_configuration_are_warned_of_together():
    few = []
    for number, steps in enumerate((5, 7, 5)):
        one = trial_of(forward=0.1, batch_size=8, steps=steps, repeat=number, steady=False)
        few.append(dataclasses.replace(one, trial=dataclasses.replace(one.trial, length=Length(min_steps=20))))
    report = build_report(run_of(*few), diagnose(run_of(*few)), generated_at=GENERATED_AT)
    assert "Few steps, so treat as a hint: cpu batch 8 (5 of at least 20 and 7 of at least 20)." in report.answer
    assert "The warm-up could not be shown to be over: cpu batch 8 (3 trials)." in report.answer


def test_few_steps_and_an_unfinished_warmup_are_warned_of(report):
    assert "Few steps, so treat as a hint: cpu batch 128 (5 of at least 20)." in report.answer
    assert "The warm-up could not be shown to be over: cpu batch 128." in report.answer
    steady = report_of(cpu_result(8))
    assert not any("Few steps" in s or "warm-up" in s for s in steady.answer)


def test_what_makes_a_verdict_less_sure_is_part_of_the_answer():
    def doubt(code: str, severity: Severity) -> Finding:
        return Finding(
            code=code, name="outside-contention", family=Family.EXPERIMENT, severity=severity, scope="x on cpu",
            summary="Others had the cores.", evidence=(), remedies=(), recoverable=None, confidence=0.9,
        )  # fmt: skip

    found = [doubt("EXP010", Severity.WARNING)] * 2
    answer = report_of(cpu_result(8), diagnosis=Diagnosis(verdict=None, findings=tuple(found))).answer
    assert answer.count("Less sure because of “outside contention” (x on cpu): Others had the cores.") == 1
    quiet = (doubt("EXP010", Severity.INFO), doubt("EXP001", Severity.WARNING))  # few steps are told elsewhere
    answer = report_of(cpu_result(8), diagnosis=Diagnosis(verdict=None, findings=quiet)).answer
    assert not any("Less sure" in sentence for sentence in answer)


def test_a_search_for_the_largest_batch_says_what_it_found():
    ran = tuple(trial_of(batch_size=size) for size in (1, 2, 4))
    failed = dataclasses.replace(trial_of(batch_size=8), outcome=Outcome.OUT_OF_MEMORY_HOST, steps=(), reason="no room")
    assert BATCH_SEARCH in report_of(*ran, notes=(BATCH_SEARCH,)).method
    (first, *_) = report_of(*ran, failed, notes=(BATCH_SEARCH,)).answer
    assert first == "The largest batch that ran whole is 4; the smallest that did not is 8."
    assert "more may fit" in report_of(*ran, notes=(BATCH_SEARCH,)).answer[0]
    assert not any("largest batch" in sentence for sentence in report_of(*ran, failed).answer)


def test_devices_are_compared_with_an_interval(report):
    sentence = next(s for s in report.answer if "times" in s and "as fast as" in s)
    assert sentence.startswith("At their fastest batch sizes, cuda:0 trains 80.")
    assert "95 % interval" in sentence


def test_the_throughput_charts_hold_the_trials_values(report, run):
    drawn = chart(report, "throughput_2")
    assert drawn.kind is ChartKind.LINE
    assert drawn.categories == (*map(str, CPU_BATCHES), "256", "512")
    expected = []
    for batch in CPU_BATCHES:
        steady = next(r for r in run.results if r.trial.settings.batch_size == batch).steps[0].steady
        expected.append(steady.samples.sum() / (steady.wall_ns.sum() / 1e9))
    assert drawn.series[0].values == (*(pytest.approx(v) for v in expected), None, None)
    assert all(
        low < value < high
        for low, value, high in zip(
            drawn.series[0].low[:8], drawn.series[0].values[:8], drawn.series[0].high[:8], strict=True
        )
    )
    assert drawn.marks == (("256", "out of memory"), ("512", "skipped, too large"))


def test_devices_of_like_speed_share_a_chart():
    one, other = cpu_result(8), cpu_result(16)
    other = dataclasses.replace(
        other, trial=dataclasses.replace(other.trial, settings=other.trial.settings.replace(num_workers=2))
    )
    report = report_of(one, other)
    assert [len(c.series) for c in report.charts if c.key == "throughput"] == [2]
    values = {series.name: series.values for series in chart(report, "throughput").series}
    assert values["cpu num_workers=default"][1] is None  # batch 16 ran with two workers only
    assert values["cpu num_workers=2"][0] is None


def test_breakdown_charts_have_a_layer_a_phase_in_ms_and_in_percent(report):
    times, shares = chart(report, "time_breakdown_1"), chart(report, "time_share_1")
    assert [s.key for s in times.series] == [str(phase) for phase in Phase]
    assert times.unit == "ms"
    assert "device clock" in times.y_label
    assert [sum(s.values[i] for s in shares.series) for i in range(5)] == [pytest.approx(100, abs=0.01)] * 5


def test_memory_is_drawn_in_gib_by_kind(report):
    drawn = chart(report, "memory")
    values = {s.name: s.values for s in drawn.series}
    assert values["cpu, process peak"][5] == pytest.approx(1.55 + 0.045 * 32)
    assert values["cuda:0, held by the device's allocator"][3] == pytest.approx(1.3 + 0.058 * 8)
    assert values["cuda:0, tensors on the device"][0] is None  # batch 1 did not run there


def test_memory_nobody_measured_is_listed_and_not_drawn():
    report = report_of(without(cpu_result(8), "host_memory_peak"))
    assert chart(report, "memory") is None
    assert any(signal == "host_memory_peak" for signal, _ in report.not_measured)
    assert "Process peak" not in [c.label for c in table(report, "trials").columns]
    figure = next(f for f in report.key_figures if f.label.startswith("Peak memory"))
    assert figure.value is None


def test_memory_that_was_measured_as_zero_is_shown_as_zero():
    zero = dataclasses.replace(cpu_result(8), quantities=(Quantity("host_memory_peak", 0.0, "bytes", "test"),))
    report = report_of(zero, cpu_result(16))
    assert chart(report, "memory").series[0].values == (0.0, pytest.approx(1.55 + 0.045 * 16))
    assert column(table(report, "trials"), "Process peak")[0] == 0.0
    assert not any(signal == "host_memory_peak" for signal, _ in report.not_measured)


def test_energy_is_drawn_only_where_it_was_measured(report):
    drawn = chart(report, "energy")
    assert drawn.categories == ("8", "16", "32", "64", "128")
    assert drawn.series[0].values[0] == pytest.approx((38.0 + 4.1 * 8) * 0.2 / 8)
    gpu = without(gpu_result(8), "energy_device")
    missing = report_of(gpu)
    assert chart(missing, "energy") is None
    assert ("energy_device", "energy of the device: the trial recorded neither a value nor a reason") in (
        missing.not_measured
    )


def test_a_recorded_reason_takes_the_place_of_the_silent_one():
    gpu = dataclasses.replace(without(gpu_result(8), "energy_device"), gaps=(Gap("energy_device", "NVML not found"),))
    signals = [why for signal, why in report_of(gpu).not_measured if signal == "energy_device"]
    assert signals == ["NVML not found"]


def test_not_measured_names_each_signal_once_and_whom_it_concerns(report, run):
    signals = [entry for entry in report.not_measured if entry[0] == "energy_cpu"]
    assert len(signals) == 1
    assert "(" not in signals[0][1]  # all trials that ran lack it
    gap = Gap("device_clock", "no events here")
    some = [dataclasses.replace(r, gaps=(gap,)) if r.trial.settings.device == "cpu" else r for r in run.results]
    told = dict(report_of(*some).not_measured)
    assert told["device_clock"] == "no events here (all trials on cpu)"
    one = [dataclasses.replace(r, gaps=(gap,)) if i == 0 else r for i, r in enumerate(run.results)]
    assert dict(report_of(*one).not_measured)["device_clock"] == "no events here (cpu batch 1)"


def test_rules_that_could_not_look_are_listed_with_their_codes():
    unchecked = (Unchecked("A001", "a", "clock", "none"), Unchecked("B002", "b", "clock", "none"))
    report = report_of(cpu_result(8), diagnosis=Diagnosis(verdict=None, unchecked=unchecked))
    assert ("clock", "none (needed by A001 and B002)") in report.not_measured


def test_a_gap_and_the_rule_it_stopped_are_one_entry():
    unchecked = (Unchecked("A001", "a", "clock", "none"),)
    result = dataclasses.replace(cpu_result(8), gaps=(Gap("clock", "none"),))
    report = report_of(result, diagnosis=Diagnosis(verdict=None, unchecked=unchecked))
    assert [entry for entry in report.not_measured if entry[0] == "clock"] == [("clock", "none")]


def test_what_did_not_complete_is_listed_with_its_reason(report):
    assert report.incomplete == (
        "distilbert-sst2 cpu batch 256: out of memory. The kernel ended the trial's process (SIGKILL) at 30.9 GiB "
        "resident of 31.4 GiB.",
        "distilbert-sst2 cpu batch 512: skipped, too large. Batch size 256 was already out of memory on cpu.",
        "distilbert-sst2 cuda:0 batch 256: planned, not run",
    )
    assert next(f for f in report.key_figures if f.label == "Trials completed").value == "13 of 16"


def test_trials_that_failed_alike_are_told_in_one_line():
    def failed(size, reason="no data", **settings):
        result = cpu_result(size)
        trial = dataclasses.replace(result.trial, settings=result.trial.settings.replace(**settings))
        return dataclasses.replace(result, trial=trial, outcome=Outcome.CRASHED, reason=reason, steps=())

    again = dataclasses.replace(failed(8), trial=dataclasses.replace(failed(8).trial, repeat=1))
    report = report_of(failed(8), failed(16), failed(32, "other"), failed(64), failed(8, precision="bfloat16"), again)
    assert report.incomplete == (
        "distilbert-sst2 cpu batch 8, 16 and 64 (4 trials); distilbert-sst2 cpu batch 8 bfloat16: crashed. No data",
        "distilbert-sst2 cpu batch 32: crashed. Other",
    )
    assert report.incomplete_trials == 6
    assert "6 trials incomplete" in summary_text(report)


def test_a_run_of_which_nothing_completed_still_tells_its_story(empty_report):
    assert empty_report.headline == "No verdict: no trial completed."
    assert empty_report.charts == ()
    assert (
        "None of 16 trials completed (1 out of memory, 1 skipped, too large and 14 not run)" in empty_report.answer[0]
    )
    assert (len(empty_report.incomplete), empty_report.incomplete_trials) == (3, 16)
    assert empty_report.incomplete[2].endswith(": planned, not run")
    assert len(table(empty_report, "trials").rows) == 2


def test_a_run_without_any_record_is_a_report_too():
    report = report_of()
    assert report.charts == ()
    assert report.tables == ()
    assert report.title == "Training performance"


def test_one_trial_alone_gets_no_ranking():
    report = report_of(cpu_result(8))
    assert "one batch size was measured: 8" in report.answer[0]
    assert "fastest" not in report.answer[0]


def test_one_size_of_a_sweep_that_lost_the_others_is_told_so():
    lost = trial_of(batch_size=16, steps=0, warmup_steps=0, outcome=Outcome.SKIPPED_OVER_TIME_BUDGET)
    told = report_of(trial_of(batch_size=8, forward=0.5), lost).answer[0]
    assert "only one of 2 batch sizes can be judged: 8, at 16.0 samples/s" in told  # 8 in 0.5 s
    assert "The others: 16 (skipped, out of time);" in told and "Whether another is faster was not" not in told


def test_a_size_of_too_few_steps_is_shown_and_not_recommended():
    # Batch 16 looks twice as fast as 8, by two steps: too few for any rule, and so for the recommendation.
    few = trial_of(batch_size=16, forward=0.5, steps=2)
    sound = [trial_of(batch_size=size, forward=0.5, noise=0.01) for size in (4, 8)]
    run = run_of(*sound, few)
    report = build_report(run, diagnose(run), generated_at=GENERATED_AT)
    assert "train at batch size 8" in report.answer[0] and "the fastest of 2" in report.answer[0]
    assert "No conclusion can be drawn from what was measured at 16." in report.answer[0]
    assert report.key_figures[0].value == 8 and "of 2 measured" in report.key_figures[0].note
    sizes = table(report, "sizes")
    assert column(sizes, "Note") == [None, "recommended", "not compared"] and "Not compared" in sizes.note
    assert column(sizes, "Throughput")[2] == pytest.approx(32)  # 16 in 0.5 s is shown all the same
    assert "peaks" not in chart(report, "throughput").takeaway
    assert chart(report, "throughput").series[0].highlight == "8"


def test_where_no_size_can_be_judged_the_best_of_what_there_is_stands():
    run = run_of(*(trial_of(batch_size=size, forward=0.5, steps=2) for size in (4, 8)))
    report = build_report(run, diagnose(run), generated_at=GENERATED_AT)
    assert report.key_figures[0].value == 8 and "No conclusion" not in report.answer[0]


def test_a_comparison_across_batch_sizes_says_so():
    half = {"precision": "bfloat16"}
    two = [trial_of(batch_size=size, forward=0.5) for size in (8, 16)]
    sentences = [
        next(s for s in report_of(*two, *others).answer if "as fast as" in s)
        for others in (
            [trial_of(batch_size=8, forward=0.5, settings=half)],
            [trial_of(batch_size=size, forward=0.5, settings=half) for size in (8, 16)],
        )
    ]
    assert "not measured at the same batch sizes (8 and 16 against 8)" in sentences[0]
    assert "at the same batch sizes" not in sentences[1]
    assert "neither is shown to be the faster one" in sentences[1]  # equal steps
    assert "neither" not in sentences[0]  # 32 against 16 samples/s


def test_a_faster_configuration_is_not_taken_back():
    slow = trial_of(batch_size=8, forward=0.6, settings={"precision": "bfloat16"})
    (told,) = (s for s in report_of(trial_of(batch_size=8, forward=0.5), slow).answer if "as fast as" in s)
    assert "1.20 times" in told and "neither" not in told  # 0.6 / 0.5


def test_a_single_batch_size_is_no_chart_against_batch_size():
    report = report_of(cpu_result(8))
    assert [c.key for c in report.charts] == ["time_breakdown_1", "course_1"]
    phases = chart(report, "time_breakdown_1")
    assert phases.kind is ChartKind.LYING_BAR and phases.categories[:3] == ("data wait", "transfer", "forward")
    step = next(v for v in column(table(report, "trials"), "Step"))
    assert sum(phases.series[0].values) == pytest.approx(step, rel=1e-6)  # the phases add up to the step, in ms
    assert report.answer_basis[0].key == "trials"


def test_configurations_of_one_batch_size_are_compared_with_each_other():
    one, other = cpu_result(8), cpu_result(8)
    other = dataclasses.replace(
        other, trial=dataclasses.replace(other.trial, settings=other.trial.settings.replace(num_workers=2))
    )
    report = report_of(one, other)
    drawn = chart(report, "throughput")
    assert drawn.kind is ChartKind.LYING_BAR
    assert set(drawn.categories) == {"cpu num_workers=default", "cpu num_workers=2"}
    times, memory = chart(report, "time_breakdown"), chart(report, "memory")
    assert times.categories == drawn.categories and len(times.series) == 6
    assert memory.kind is ChartKind.LYING_BAR and memory.unit == "GiB"
    assert memory.series[0].values == (pytest.approx(1.55 + 0.045 * 8),) * 2
    assert not any(c.x_label == "Batch size" for c in report.charts if not c.section)


def test_many_configurations_of_one_batch_size_are_not_squeezed_beside_each_other():
    results = [
        dataclasses.replace(r, trial=dataclasses.replace(r.trial, settings=r.trial.settings.replace(num_workers=n)))
        for n, r in enumerate([cpu_result(8)] * 6)
    ]
    report = report_of(*results)
    assert [c.key for c in report.charts if c.key.startswith("time_breakdown")] == [
        f"time_breakdown_{n}" for n in (1, 2, 3, 4)
    ]


def test_a_batch_size_that_ran_out_of_memory_beside_the_one_that_ran_is_worth_a_chart():
    lost = dataclasses.replace(cpu_result(16), outcome=Outcome.OUT_OF_MEMORY_HOST, steps=(), reason="too much")
    report = report_of(cpu_result(8), lost)
    assert chart(report, "throughput").marks == (("16", "out of memory"),)


def test_a_trial_of_one_step_has_no_interval():
    result = cpu_result(8)
    keep = np.arange(len(result.steps[0])) < 4  # three warm-up steps and one measured
    report = report_of(dataclasses.replace(result, steps=(result.steps[0].where(keep),)))
    assert "(too few steps for an interval)" in report.answer[0]
    assert column(table(report, "trials"), "Steps") == [1]
    assert "±" not in [c.label for c in table(report, "trials").columns]


def test_a_trial_that_completed_without_steps_is_no_point():
    report = report_of(dataclasses.replace(cpu_result(8), steps=()))
    assert report.charts == ()
    assert column(table(report, "trials"), "Steps") == [0]


def test_the_method_speaks_only_of_what_was_done(report):
    text = " ".join(report.method)
    assert "perf_counter_ns" in text
    assert "timing events on the device's stream" in text
    assert "The first 3 steps" in text
    assert "Why measuring ended: precise enough (12 trials) and time budget (1 trial)." in text
    assert "cpu 32, cpu 1, cpu 8" in text  # the order of the start times, not of the table
    alone = " ".join(report_of(cpu_result(8)).method)
    assert "timing events" not in alone
    assert "started" not in alone  # one trial has no order
    bare = dataclasses.replace(cpu_result(8), provenance={}, stop_reason="")
    assert "Wall times" not in " ".join(report_of(bare).method)


def test_repeats_change_what_is_said_about_intervals():
    base = cpu_result(8)
    results = [dataclasses.replace(base, trial=dataclasses.replace(base.trial, repeat=i)) for i in range(3)]
    assert "ran up to 3 times" in " ".join(report_of(*results).method)
    assert "ran once" in " ".join(report_of(base).method)


def test_a_planned_number_of_steps_is_told_as_such():
    base = cpu_result(8)
    exact = dataclasses.replace(base.trial, length=Length.exactly(80))
    text = " ".join(report_of(dataclasses.replace(base, trial=exact, stop_reason="max_steps")).method)
    assert "Why measuring ended: planned steps done (1 trial)." in text
    assert "half-width of the 95 % interval of the mean step time" not in text


def test_the_method_says_what_a_confidence_stands_for_where_there_is_one(report):
    assert "95 % where both settings were run, 85 % where a profiler window shows it" in " ".join(report.method)
    assert "confidence" not in " ".join(report_of(cpu_result(8)).method)


def test_facts_about_the_machine_are_shown_and_unknown_ones_marked(report):
    sheets = {sheet.title: dict(sheet.facts) for sheet in report.environment}
    assert sheets["Machine"]["cpu model"] == "Intel(R) Xeon(R) CPU @ 2.20GHz"
    assert sheets["Machine"]["governor"] == "unknown"
    assert sheets["Machine"]["memory"] == "31.36 GiB"
    assert sheets["Device: Tesla T4"]["name"] == "Tesla T4"
    assert sheets["Sources of the numbers"]["energy_device"] == "NVML total energy counter"


def test_outcomes_that_are_no_fault_are_worded(run):
    ended = dataclasses.replace(cpu_result(8), outcome=Outcome.TIMEOUT, stop_reason="timeout", reason="over 60 s")
    report = report_of(ended)
    assert column(table(report, "trials"), "Outcome") == ["timed out"]
    assert column(table(report, "trials"), "Steps") == [80]
    assert report.charts  # nothing else completed, and 80 steps tell where their time went
    few = StepTable({name: values[:22] for name, values in ended.steps[0].columns.items()})  # 3 of them warm-up
    assert report_of(dataclasses.replace(ended, steps=(few,))).charts == ()


def test_rules_that_looked_and_found_nothing():
    diagnosis = Diagnosis(verdict=None, cleared=(Cleared("A001", "a"),))
    report = report_of(cpu_result(8), diagnosis=diagnosis)
    assert "No rule found anything that would speed up training at these batch sizes." in report.answer
    assert "No rule could look for what would help." in report_of(cpu_result(8)).answer


def test_where_nothing_completed_nothing_is_explained_that_is_not_there() -> None:
    lost = [trial_of(outcome=Outcome.CRASHED, reason="no data", batch_size=n, steps=0, warmup_steps=0) for n in (8, 16)]
    report = build_report(run_of(*lost), diagnose(run_of(*lost)), generated_at=GENERATED_AT)
    assert report.answer[0].startswith("Mend this first: cpu batch 8 crashed: no data. ") and not report.key_figures
    assert not any(table.key == "sizes" for table in report.tables)
    page = render_html(report)
    assert "Two numbers in brackets" not in page and "Doubts about the measuring" not in page
    some = build_report(run_of(*lost, trial_of()), diagnose(run_of(*lost, trial_of())), generated_at=GENERATED_AT)
    assert any(table.key == "sizes" for table in some.tables) and "Two numbers in brackets" in render_html(some)


def test_a_script_that_broke_off_says_so_before_all_else() -> None:
    broken = trial_of(outcome=Outcome.CRASHED, reason="ValueError: label 12", steps=30)
    run = dataclasses.replace(run_of(broken), notes=(OWN_TRAINING,))
    report = build_report(run, diagnose(run), generated_at=GENERATED_AT)
    ended = "training crashed after 33 recorded steps. The reason: ValueError: label 12."  # 3 of them warm-up
    begins = f"No verdict: the {ended} Until then: no rule found a fault in the steps that were measured; a step of "
    assert report.headline.startswith(begins)
    assert report.diagnosis.findings[0].code == "EXP002" and not any("crashed" in words for words in report.answer)
    waiting = dataclasses.replace(run_of(trial_of(data_wait=0.6, outcome=Outcome.CRASHED, reason="a (b. C)", steps=30)))
    slow = dataclasses.replace(waiting, notes=(OWN_TRAINING,))
    told = build_report(slow, diagnose(slow), generated_at=GENERATED_AT)
    first = (
        "The training crashed after 33 recorded steps. The reason: a (b. C). Until then: The training waits for data"
    )
    assert told.headline.startswith(first) and lead_of(told)[0] == "The training crashed after 33 recorded steps."
    assert [finding.code for finding in told.diagnosis.findings[:2]] == ["EXP002", "INP001"]
    assert " ".join(summary_text(told).split("VERDICT")[1].split()).startswith(f"(critical) {first}")
    # No label says less than the sentence below it: the crash stands first there, too.
    rules = "EXP002 failed-trials; until then INP001 input-bound"
    assert f'<span class="code">{rules}</span>' in render_html(told) and f"\n{rules}\n" in render_markdown(told)
    ran = dataclasses.replace(run_of(trial_of(data_wait=0.6, steps=30)), notes=(OWN_TRAINING,))
    whole = build_report(ran, diagnose(ran), generated_at=GENERATED_AT)
    assert '<span class="code">INP001 input-bound</span>' in render_html(whole)
    stopped = dataclasses.replace(run_of(trial_of(data_wait=0.6, outcome=Outcome.INTERRUPTED)), notes=(OWN_TRAINING,))
    by_hand = build_report(stopped, diagnose(stopped), generated_at=GENERATED_AT)
    assert by_hand.headline.startswith("The training waits for data")
    assert by_hand.answer[0].startswith("The training was interrupted after ")
    assert report.subtitle.endswith(" · crashed") and all(one.value != "crashed" for one in report.key_figures)
    whole = dataclasses.replace(run_of(trial_of(steps=30)), notes=(OWN_TRAINING,))
    told = build_report(whole, diagnose(whole), generated_at=GENERATED_AT)
    assert not any("crashed" in sentence for sentence in told.answer) and told.subtitle.endswith(" · completed")


def test_a_sentinel_that_did_not_run_is_counted_apart() -> None:
    skipped = trial_of(outcome=Outcome.SKIPPED_OVER_TIME_BUDGET, reason="no time was left", steps=0, warmup_steps=0)
    sentinel = dataclasses.replace(skipped, trial=dataclasses.replace(skipped.trial, role="sentinel"))
    run = run_of(trial_of(), trial_of(batch_size=16), sentinel)
    report = build_report(run, diagnose(run), generated_at=GENERATED_AT)
    assert report.subtitle.endswith("2 of 2 trials completed · 1 of 1 sentinel skipped")
    figure = next(figure for figure in report.key_figures if figure.label == "Trials completed")
    assert (figure.value, figure.note) == ("2 of 2", "1 of 1 sentinel skipped")
    assert report.incomplete == ("sentinel synthetic cpu batch 8: skipped, out of time. No time was left",)
    lost = run_of(sentinel, dataclasses.replace(skipped, outcome=Outcome.CRASHED))
    told = build_report(lost, diagnose(lost), generated_at=GENERATED_AT)
    assert told.answer[0].startswith("Mend this first: cpu batch 8 crashed: no time was left. Nothing was measured, so")
    assert told.headline == "No verdict: the only trial did not complete (crashed)"
