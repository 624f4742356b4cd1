"""What was tried, as every format tells it."""

from __future__ import annotations

import dataclasses
import json

import pytest

from perf_diagnostics.diagnose.engine import diagnose
from perf_diagnostics.diagnose.rule_parts.experiments import About, Experiments, LeftOut
from perf_diagnostics.records import Settings, Trial
from perf_diagnostics.report.build import build_report
from perf_diagnostics.report.formats.html import render_html
from perf_diagnostics.report.formats.json import report_json
from perf_diagnostics.report.formats.markdown import render_markdown
from perf_diagnostics.report.model import Report, ReportTable, TableColumn
from perf_diagnostics.report.slides.pptx import render_pptx
from perf_diagnostics.report.summary import summary_text
from perf_diagnostics.report.tried import told_briefly, tried_frame, tried_on_a_slide
from perf_diagnostics.report.words import cell
from perf_diagnostics.testing import run_of, trial_of
from tests.diagnose.tried_runs import (
    CACHED,
    GROUP,
    WORKERS,
    experiment,
    measured,
    results,
    tried,
    unsettled,
    waiting_run,
)

HALF = (0.50, 0.505, 0.495, 0.50, 0.50)
SLOWER = (1.2, 1.21, 1.19, 1.2, 1.2)
UNSURE = (0.3, 0.6, 1.2, 0.6, 0.6)


def report_of(experiments: Experiments | None) -> Report:
    run = waiting_run()
    return build_report(run, diagnose(run, experiments=experiments), generated_at="2026-11-21T09:30:00Z")


def table_of(report: Report) -> ReportTable:
    return next(table for table in report.tables if table.key == "tried")


def row(report: Report, number: int = 0) -> dict[str, object]:
    table = table_of(report)
    return dict(zip((column.label for column in table.columns), table.rows[number], strict=True))


def test_without_anything_tried_there_is_no_table() -> None:
    assert all(table.key != "tried" for table in report_of(None).tables)


def test_a_row_has_the_prediction_and_the_gain() -> None:
    told = row(report_of(tried((experiment(WORKERS), HALF))))
    assert (told["Finding"], told["Result"], told["Pairs"]) == ("INP001", "confirmed, as predicted", 5)
    # A step of 8 samples takes 1.0 s, and 0.5 s with the change.
    assert told["Base to changed"] == "8.00 to 16.0"
    assert told["Gain"] == pytest.approx(50.0, abs=0.2)
    assert 48 < told["at least"] < 50 < told["at most"] < 52  # type: ignore[operator]
    assert told["Predicted"] == "10 to 60"
    assert told["Note"] == ""


def test_a_ceiling_is_marked_as_one_and_called_neither_confirmed_nor_refuted() -> None:
    told = row(report_of(tried((experiment(CACHED), HALF))))
    assert told["Result"] == "measured" and "no way to train" in str(told["Note"])
    assert told["Predicted"] is None


def test_what_changes_the_optimisation_says_so() -> None:
    assert "changes the optimisation" in str(row(report_of(tried((experiment({"batch_size": 16}), HALF))))["Note"])


def test_what_was_not_tried_has_no_gain_and_a_reason() -> None:
    told = row(report_of(Experiments(planned=(experiment(WORKERS),))))
    assert told["Result"] == "not tried" and told["Gain"] is None and "no pair" in str(told["Note"])


def test_a_reason_that_several_share_is_told_once() -> None:
    planned = (experiment(WORKERS), experiment({"threads": 2}, number=1), experiment({"batch_size": 16}, number=2))
    table = table_of(report_of(Experiments(planned=planned)))
    assert "3 changes were not tried, for the same reason: no pair has been run yet." in table.note
    notes = [cells[-1] for cells in table.rows]
    assert notes == ["", "", "changes the optimisation"]


def test_of_too_few_pairs_the_table_has_no_gain_and_says_what_is_missing() -> None:
    advised = diagnose(waiting_run()).findings[0].remedies[0].change
    report = report_of(tried((experiment(advised), HALF[:2])))
    told = row(report)
    assert (told["Result"], told["Pairs"], told["Gain"], told["at least"]) == ("too early to say", 2, None, None)
    assert told["Base to changed"] is None
    assert "a verdict needs 3" in str(told["Note"])
    (change,) = report.changes
    # Beside the change stands the prediction that its gain will be held against, and no other.
    assert (change.gain.low, change.gain.high) == (0.1, 0.6) and told["Predicted"] == "10 to 60"
    assert "predicted" not in change.tried and "needs 3" in change.tried
    assert row(report_of(tried((experiment(WORKERS), HALF[:3]))))["Gain"] == pytest.approx(50.0, abs=0.2)


def test_what_had_not_settled_has_no_gain_and_says_what_to_do() -> None:
    advised = diagnose(waiting_run()).findings[0].remedies[0].change
    for change in (advised, CACHED):
        one = experiment(change)
        both = [one.pair(index) for index in range(3)]
        pairs = [result for base, new in both for result in (measured(base, 1.0), unsettled(new, 0.5))]
        report = report_of(Experiments(planned=(one,), results=tuple(pairs)))
        told = row(report)
        assert (told["Result"], told["Pairs"], told["Gain"]) == ("not settled", 0, None)
        assert "tries it anew after a longer warm-up" in str(told["Note"])
        assert "Not settled: the warm-up was not over" in table_of(report).note
        if change is advised:
            assert report.changes[0].tried.startswith("tried, not settled: 3 pairs had not settled")
    assert "Not settled" not in table_of(report_of(tried((experiment(WORKERS), HALF)))).note


def test_a_gain_outside_the_prediction_says_so() -> None:
    told = row(report_of(tried((experiment(WORKERS), (0.2, 0.201, 0.199, 0.2, 0.2)))))
    assert told["Result"] == "confirmed, not as predicted"  # 80 % where 10 to 60 % were predicted
    (change,) = report_of(tried((experiment(WORKERS), (0.2, 0.201, 0.199, 0.2, 0.2)))).changes
    assert ", measured 80 % (" in change.tried and change.tried.endswith("the prediction did not hold")


def test_the_answer_says_what_was_won_and_what_was_tried_in_vain() -> None:
    (change,) = report_of(tried((experiment(WORKERS), HALF))).changes
    assert change.gain.measured and change.gain.value == pytest.approx(0.5, abs=0.002)
    # The rules would propose 3 workers here; the gain that was measured is that of the 2 that were tried.
    assert change.code == "num_workers=2, persistent_workers=True"
    assert change.tried.startswith("tried in 5 pairs of trials: confirmed, from ")
    assert " samples/s; predicted 10 to 60 % less time a sample, measured 50 % (49" in change.tried
    assert change.tried.endswith(" %): the prediction held")
    assert change.tried in " ".join(summary_text(report_of(tried((experiment(WORKERS), HALF)))).split())
    assert report_of(None).changes[0].tried == ""
    vain = " ".join(report_of(tried((experiment(WORKERS), SLOWER))).answer)
    assert "not worth doing: num_workers=2, persistent_workers=True costs 20 % (19 % to 21 %) of the time" in vain


def test_a_base_that_ran_at_another_pace_beside_its_change_is_told() -> None:
    """Else two speeds of one configuration stand in one report without a word."""
    one = experiment(WORKERS)
    slower = Experiments(planned=(one,), results=results(one, (1.0, 1.01, 0.99, 1.0, 1.0), base_s=2.0))
    answer = " ".join(report_of(slower).answer)
    # A step of 8 samples took 1.0 s in the run and 2.0 s beside the change.
    says = "Tried beside its change, the base trained 4.00 samples/s (cpu, batch 8), against 7.99 in the run itself"
    assert says in answer
    assert "the machine was slower when the change was tried" in answer
    assert "beside its change" not in " ".join(report_of(tried((experiment(WORKERS), HALF))).answer)


def test_every_format_has_it() -> None:
    report = report_of(tried((experiment(WORKERS), HALF), (experiment(CACHED, number=1), HALF)))
    assert "What was tried" in render_markdown(report)
    html = render_html(report)
    text = html if isinstance(html, str) else html.decode()
    assert "What was tried" in text and "no way to train" in text
    told = json.loads(report_json(report))
    assert [one["verdict"] for one in told["diagnosis"]["tried"]] == ["confirmed", "confirmed"]
    assert render_pptx(report)[:2] == b"PK"


def test_the_frame_has_shares_and_gaps() -> None:
    report = report_of(tried((experiment(WORKERS), HALF), (experiment(CACHED, number=1), ())))
    frame = tried_frame(report.diagnosis.tried)
    assert frame["gain"].tolist()[0] == pytest.approx(0.5, abs=0.002)
    assert frame["gain"].isna().tolist() == [False, True]  # not tried is not a gain of 0
    assert tried_frame(()).empty


def test_a_ceiling_in_a_sweep_is_never_recommended() -> None:
    """It is twice as fast, and trains nothing useful."""
    run = run_of(trial_of(forward=1.0), trial_of(forward=0.5, settings={"ceiling": "cached_batches"}))
    report = build_report(run, diagnose(run), generated_at="2026-11-21T09:30:00Z")
    said = " ".join(report.answer)
    assert "cpu ceiling=cached_batches is a ceiling experiment, no way to train" in said
    assert "times as fast" not in said
    assert report.charts[0].series[0].name != "cpu ceiling=cached_batches"
    alone = run_of(trial_of(forward=0.5, settings={"ceiling": "cached_batches"}))
    assert "none of them is a way to train" in diagnose(alone).no_verdict_because


def test_a_slide_has_in_its_notes_what_its_columns_cut() -> None:
    from io import BytesIO

    from pptx import Presentation

    slides = Presentation(BytesIO(render_pptx(report_of(tried((experiment(WORKERS), HALF)))))).slides
    slide = next(s for s in slides if s.shapes.title.text == "What was tried")
    assert "INP001, change: num_workers=2, persistent_workers=True" in slide.notes_slide.notes_text_frame.text
    (grid,) = (shape.table for shape in slide.shapes if shape.has_table)
    shown = {head.text: cell.text for head, cell in zip(grid.rows[0].cells, grid.rows[1].cells, strict=True)}
    assert shown["Gain\n%"].startswith("50.0 (49.") and shown["Base to changed\nsamples/s"] == "8.00 to 16.0"
    assert "Note" not in shown and "at least\n%" not in shown


def test_what_won_warns_of_the_loss_where_its_advice_does_not() -> None:
    halved = {"batch_size": 16}
    for says, warned in (("Try it.", True), ("Try it. This changes the optimisation.", False)):
        one = dataclasses.replace(experiment(halved), says=says)
        (change,) = report_of(tried((one, HALF))).changes
        assert change.says == says and change.tried.endswith("so look at the loss, too") is warned
    (loader,) = report_of(tried((experiment(WORKERS), HALF))).changes
    assert "the loss" not in loader.tried


def test_where_all_was_tried_in_one_place_that_is_said_once() -> None:
    several = tried((experiment(WORKERS, number=1), HALF), (experiment(CACHED), HALF))
    brief = told_briefly(table_of(report_of(several)))
    assert "Where" not in [column.label for column in brief.columns]
    assert brief.note.endswith("All are about cpu, batch 8.") and len(brief.rows) == 2
    alone = told_briefly(table_of(report_of(tried((experiment(WORKERS), HALF)))))
    assert alone.columns[1].label == "Where" and "All are about" not in alone.note


def test_a_ceiling_whose_interval_holds_0_shows_no_gain_in_any_format() -> None:
    report = report_of(tried((experiment(CACHED), UNSURE)))
    # A factor of 0.6 in the mean of logarithms, times or over exp(2.776 ln 2 / sqrt(2) / sqrt(5)) = 1.84.
    words = "shows no gain (40 % of the time a sample takes, with an interval of -10 % to 67 %)"
    assert words in report.headline and words in " ".join(summary_text(report).split())
    assert words in render_markdown(report) and words.replace(" %", "\N{NO-BREAK SPACE}%") in render_html(report)
    assert row(report)["Result"] == "no gain shown"
    surely = report_of(tried((experiment(CACHED), HALF)))
    assert "as an experiment, wins 50 % of the time" in surely.headline


def test_what_was_left_out_names_its_configuration() -> None:
    fast = Trial(workload="mlp", settings=Settings(batch_size=8, device="cuda:1", precision="bfloat16", num_workers=0))
    late = LeftOut(about=(About("INP001", GROUP),), says="Try it.", change=CACHED, batch_size=8, why="", base=fast)
    report = report_of(Experiments(left_out=(late,)))
    where = "cuda:1, batch 8, bfloat16, num_workers=0"
    assert row(report)["Where"] == where
    assert json.loads(report_json(report))["diagnosis"]["tried"][0]["where"] == where
    assert where in render_markdown(report).replace("\\_", "_") and where in render_html(report)


def test_what_an_older_version_left_out_names_its_place_as_what_was_tried() -> None:
    late = LeftOut(about=(About("INP001", GROUP),), says="Try it.", change=CACHED, batch_size=8, why="no time was left")
    tried_and_not = dataclasses.replace(tried((experiment(WORKERS), HALF)), left_out=(late,))
    report = report_of(tried_and_not)
    assert [row(report, number)["Where"] for number in (0, 1)] == ["cpu, batch 8", "cpu, batch 8"]
    assert told_briefly(table_of(report)).note.endswith("All are about cpu, batch 8.")


def test_what_the_slide_leaves_out_stands_in_its_notes() -> None:
    changed = report_of(tried((experiment({"batch_size": 16}), HALF)))
    assert tried_on_a_slide(table_of(changed)).note.endswith(" batch_size=16: changes the optimisation.")


def test_a_gain_of_nearly_nothing_reads_the_same_on_a_slide_as_in_the_table() -> None:
    labels = ("Finding", "Where", "Change", "Result", "Predicted", "Gain", "at least", "at most", "Base to changed")
    columns = tuple(TableColumn(label, "%" if label in ("Gain", "at least", "at most") else "") for label in labels)
    numbers = ("INP001", "cpu, batch 8", "num_workers=2", "refuted", "", -0.02, -0.31, 0.27, "8.00 to 8.00")
    columns, cells = (*columns, TableColumn("Pairs"), TableColumn("Note")), (*numbers, 5, "")
    (shown,) = tried_on_a_slide(ReportTable(key="tried", title="", columns=columns, rows=(cells,))).rows
    assert shown[5] == ">-0.1 (-0.31 to 0.27)"
    assert cell(-0.02, columns[5]) == ">-0.1"
