"""A diagnosis in a terminal: legible numbers, and each reason once."""

from __future__ import annotations

import dataclasses

from perf_diagnostics.cli.code_text import MOST, code_lines
from perf_diagnostics.cli.diagnosis_text import diagnosis_text, evidence_line
from perf_diagnostics.cli.progress import outcome_line
from perf_diagnostics.cli.tried_text import gain_text
from perf_diagnostics.diagnose.facts.facts import Interval
from perf_diagnostics.diagnose.finding import Cleared, Diagnosis, Evidence, Unchecked
from perf_diagnostics.testing import trial_of
from tests.code_lines import BACKWARD, CELL, ITEM, LOOPING, TRAINER_CALL, WAITING, diagnosis_of, share, waiting


def test_large_numbers_have_no_exponent():
    assert evidence_line(Evidence(metric="steps", value=42504.3, low=12010.0, high=9.5e4)) == (
        "steps = 42,504 (95 % interval 12,010 to 95,000)"
    )
    assert evidence_line(Evidence(metric="share", value=0.02215, unit="%")) == "share = 0.02215 %"


def test_a_throughput_is_told_without_exponents():
    line = outcome_line(trial_of(batch_size=4, forward=0.0032, noise=0.3, steps=20))
    assert line.startswith("cpu batch 4  1") and "e+" not in line and " ± " in line


def test_an_interval_wider_than_the_throughput_is_not_told():
    three = outcome_line(trial_of(batch_size=4, forward=0.0032, noise=3.0, steps=3))
    assert " ± " not in three and three.endswith(" samples/s over 3 steps (max steps)")


def test_rules_that_could_not_look_for_the_same_reason_share_a_line():
    def unchecked(count):
        return tuple(Unchecked(f"HST00{n}", f"rule-{n}", "trials", "no trial completed") for n in range(count))

    few = diagnosis_text(Diagnosis(verdict=None, unchecked=unchecked(2)))
    assert "  rule-0 (HST000), rule-1 (HST001): no trial completed" in few
    many = diagnosis_text(Diagnosis(verdict=None, unchecked=unchecked(4)))
    assert "  HST000, HST001, HST002, HST003: no trial completed" in many


def test_the_rules_that_told_nothing_are_counted_or_named():
    told = Diagnosis(
        verdict=None,
        no_verdict_because="nothing was found",
        cleared=(Cleared("INP001", "input-bound", "no wait"), Cleared("EXP009", "observer-effect", "it costs 9 µs")),
        unchecked=(
            Unchecked("HST004", "host-work", "trials", "no window was recorded"),
            Unchecked("COM001", "communication-bound", "trials", "the trial has one rank", applies=False),
            Unchecked("COM002", "straggler", "trials", "the trial has one rank", applies=False),
        ),
    )
    assert diagnosis_text(told, every_rule=False).splitlines() == [
        "No verdict: nothing was found.",
        "",
        "It costs 9 µs.",
        "",
        "Cleared: 2 rules found nothing wrong.",
        "Not checked: 1 rule, because something was not measured.",
        "Does not apply here: 2 rules.",
        "Their names, and why: the same command with --all.",
    ]
    named = diagnosis_text(told)
    assert "Cleared: input-bound (INP001), observer-effect (EXP009)." in named and "It costs 9 µs." in named
    assert "  host-work (HST004): no window was recorded" in named
    assert "  the trial has one rank: COM001, COM002" in named and "--all" not in named
    assert diagnosis_text(Diagnosis(verdict=None, no_verdict_because="why"), every_rule=False) == "No verdict: why."


def test_an_interval_that_reaches_below_twice_as_long_is_told_as_one():
    assert gain_text(Interval(0.479, 0.44, 0.512, 5)) == "47.9 % (44.0 to 51.2 %)"
    # Student's t of two pairs, 12.7 standard errors wide.
    assert gain_text(Interval(-0.144, -115.2, 0.989, 2)) == "-14.4 % (less than -100 to 98.9 %)"


def test_the_verdict_and_its_finding_say_where_in_the_code():
    lines = diagnosis_text(WAITING).splitlines()
    assert lines[:3] == [
        "Verdict: The training waits for data 28 % of each step. At train.py:9 in Data.__getitem__: `x = x *",
        "  1.01`, called from train.py:41. [INP001]",
        "",
    ]
    assert (
        "  Seen at train.py:9 in Data.__getitem__: `x = x * 1.01` (23 % of a step), called from train.py:41." in lines
    )
    nowhere = diagnosis_text(diagnosis_of(waiting()))
    assert nowhere.startswith("Verdict: The training waits for data 28 % of each step. [INP001]\n")
    assert "Seen at" not in nowhere


def test_a_symptom_says_what_explains_it():
    cause = dataclasses.replace(waiting(), code="STB004", explains=("HST006",), lines=())
    symptom = dataclasses.replace(waiting(), code="HST006", lines=())
    told = diagnosis_text(Diagnosis(verdict=None, findings=(cause, symptom)))
    assert told.count("Explained by STB004") == 1
    assert "Explained by" not in diagnosis_text(Diagnosis(verdict=None, findings=(symptom,)))


def test_the_lines_with_most_of_a_step_stand_in_a_table():
    table = code_lines(diagnosis_of(waiting(ITEM), LOOPING, ITEM, BACKWARD, share(low=None, high=None)), 100)
    assert table == [
        "Where in the code: share of a step with its 95 % interval, from 360 samples of the call stack",
        "  26 %  25 % to 27 %  forward    train.py:21-24 in Net.forward, from train.py:42",
        "                                 22: h = self.cell(z, h)",
        "  23 %  20 % to 25 %  data wait  train.py:9 in Data.__getitem__, from train.py:41",
        "                                 x = x * 1.01",
        "  20 %  19 % to 20 %  backward   train.py:43 in main",
        "                                 loss.backward()",
        "  23 %                data wait  train.py:9 in Data.__getitem__, from train.py:41",
        "                                 x = x * 1.01",
    ]
    assert code_lines(diagnosis_of(waiting()), 100) == []
    many = [share(line=number) for number in range(1, 9)]
    assert len(code_lines(diagnosis_of(waiting(), *many), 100)) == 1 + 2 * MOST


def test_parts_of_a_frameworks_call_say_what_they_call():
    assert code_lines(diagnosis_of(waiting(), *TRAINER_CALL, CELL), 100)[1:] == [
        "   36 %  34 % to 38 %    forward    hf.py:23",
        "                                    trainer.train()",
        "                                    calls transformers.trainer.Trainer.training_step",
        "   30 %  28 % to 32 %    backward   hf.py:23",
        "                                    trainer.train()",
        "                                    calls transformers.trainer.Trainer.training_step",
        "  5.0 %  3.0 % to 7.0 %  optimizer  hf.py:23",
        "                                    trainer.train()",
        "                                    calls transformers.trainer.Trainer._clip_grad_norm",
        "   26 %  25 % to 27 %    forward    train.py:22 in Net.forward, from train.py:51",
        "                                    h = self.cell(z, h)",
    ]


def test_an_interval_that_reaches_far_below_its_share_is_explained():
    late = share(value=0.59, low=0.14, high=0.60)  # 45 points below, 1 above
    assert code_lines(diagnosis_of(waiting(), late, ITEM), 100)[-2:] == [
        "  Where an interval reaches far below its share, many samples were taken late: they may belong to",
        "  code just before the line, and the lower end leaves them out.",
    ]


def test_no_line_of_a_diagnosis_is_wider_than_the_terminal():
    long = share("total = " + "x + " * 60, file="src/project/data/sets.py", function="DataSet.load_everything")
    told = diagnosis_of(waiting(long), long, LOOPING, BACKWARD)
    for width in (60, 80, 100):
        lines = diagnosis_text(told, width).splitlines()
        assert max(map(len, lines)) <= width
        assert any(len(line) > width - 25 for line in lines)


def test_what_a_line_calls_is_told_where_its_text_does_not_say_it():
    told = " ".join(diagnosis_text(diagnosis_of(waiting(CELL), CELL)).split())
    assert "called from train.py:42, calls torch.nn.modules.rnn.GRUCell.forward." in told


def test_source_text_cannot_reach_the_terminal_as_anything_else():
    line = share("print('\x1b[2J\u202e')", file="a\x07.py")
    told = diagnosis_text(diagnosis_of(waiting(line), line))
    assert "At a\ufffd.py:9 in Data.__getitem__: `print('\ufffd[2J\ufffd')`" in " ".join(told.split())
    assert told.replace("\n", "").isprintable()


def test_at_a_lines_end_a_number_keeps_its_unit_and_a_name_its_hyphens():
    why = f"{'x' * 85} 65 % of it {'y' * 76} gradient-free work"  # 65 and gradient- alone would fit
    assert diagnosis_text(Diagnosis(verdict=None, no_verdict_because=why)).splitlines() == [
        f"No verdict: {'x' * 85}",
        f"  65 % of it {'y' * 76}",
        "  gradient-free work.",
    ]
