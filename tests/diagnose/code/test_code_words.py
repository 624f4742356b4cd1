"""How lines of code are told: places and texts cut where they are long, who called them, and what they call."""

from __future__ import annotations

import dataclasses

import pytest

from perf_diagnostics.diagnose.code.code_words import (
    among_lines,
    called_unsaid,
    callers_in_loop,
    function,
    lines_apart,
    place,
    places,
    seen,
    seen_at,
    source,
)
from perf_diagnostics.diagnose.code_share import CodeShare, LineShare
from perf_diagnostics.diagnose.finding import Diagnosis, Family, Severity, Verdict
from perf_diagnostics.diagnose.statistics.intervals import Interval
from perf_diagnostics.diagnose.verdict_place import verdict_label, verdict_place, verdict_seen, verdict_words
from perf_diagnostics.records import CodePlace
from tests.code_lines import BACKWARD, CELL, ITEM, LOOP, LOOPING, MAIN, READ, WAITING, diagnosis_of, share, waiting


def at(file: str = "train.py", line: int = 7, name: str = "f", text: str = "") -> CodePlace:
    return CodePlace(file=file, line=line, function=name, text=text)


@pytest.mark.parametrize(
    ("file", "shown"),
    [
        ("train.py", "train.py:7"),
        ("src/models/encoder.py", "src/models/encoder.py:7"),  # 23 letters
        ("src/project/models/text/encoder.py", "src/…/text/encoder.py:7"),
        ("/home/someone/project/encoder.py", "/…/project/encoder.py:7"),
        ("a_folder_with_a_long_name/encoder.py", "…/encoder.py:7"),
        ("src/project/a_module_with_a_very_long_name.py", "a_module_w…ong_name.py:7"),
    ],
)
def test_of_a_long_path_the_file_and_its_line_stay(file: str, shown: str) -> None:
    assert place(at(file), 24) == shown
    assert len(shown) <= 24


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("x = x * 1.01", "x = x * 1.01"),
        ("0123456789ab", "0123456789ab"),  # just as long as there is room
        ("0123456789abc", "0123456789a…"),
        ("变量 = 模型(输入, 标签)", "变量 = 模型…"),  # 4, 3, 4 and the ellipsis
        ("变量 == 模型(输入, 标签)", "变量 == 模…"),  # 4, 4, 2 and the ellipsis: 11, where another sign would make 13
        ("0123456789e\u0301x", "0123456789e\u0301x"),  # 12 columns
        ("0123456789e\u0301xy", "0123456789e\u0301…"),
        ("0123456789ae\u0301x", "0123456789a…"),  # an accent is not left without its letter, nor a letter without it
        ("a  =\t1", "a = 1"),
        ("a\x1b[31m\u202eb", "a\ufffd[31m\ufffdb"),
        ("", ""),
    ],
)
def test_a_long_text_is_cut_by_columns_and_never_in_a_letter(text: str, shown: str) -> None:
    assert source(at(text=text), 12) == shown


def test_functions_go_by_their_own_names() -> None:
    assert function(at(name="<module>")) == ""
    assert function(at(name="make.<locals>.collate")) == "make.collate"
    assert function(at(name="f" * 80)) == "f" * 59 + "…"


@pytest.mark.parametrize(
    ("text", "called", "told"),
    [
        ("loss.backward()", "torch._tensor.Tensor.backward", False),
        ("h = self.cell(z, h)", "torch.nn.modules.rnn.GRUCell.forward", True),
        ("y = self.linear(x)", "torch.nn.modules.linear.Linear.forward", False),
        ("torch.save(state, path)", "torch.serialization.save", False),
        ("checkpoint(state)", "torch.serialization.save", True),
        ("", "torch.serialization.save", True),
        ("x = x * 1.01", "", False),
    ],
)
def test_what_a_line_calls_is_told_where_its_text_does_not_say_it(text: str, called: str, told: bool) -> None:
    assert called_unsaid(share(text, called=called)) == (called if told else "")


def test_callers_are_told_from_the_loop_on() -> None:
    # All lines have <module> and main in common: how main was called says nothing.
    assert callers_in_loop(ITEM, WAITING) == (LOOP,)
    assert callers_in_loop(BACKWARD, WAITING) == ()
    deep = share(callers=(MAIN, LOOP, at(line=30, name="load")))
    assert callers_in_loop(deep, diagnosis_of(waiting(deep), deep, BACKWARD)) == (at(line=30, name="load"), LOOP)
    # A loop at the outermost level of the file.
    own = share(callers=(at(line=12, name="<module>"),))
    loop = share("loss.backward()", function="<module>", callers=())
    assert callers_in_loop(own, diagnosis_of(waiting(own), own, loop)) == (at(line=12, name="<module>"),)
    # One line alone: where the loop stands is not known.
    assert callers_in_loop(ITEM, diagnosis_of(waiting(ITEM), ITEM)) == (LOOP,)


def test_a_finding_names_the_lines_that_matter() -> None:
    (told,) = seen_at(WAITING.findings[0], WAITING)  # the second has 5 % of a step, less than a third of the first's 23
    assert told.words() == (
        "Seen at train.py:9 in Data.__getitem__: `x = x * 1.01` (23 % of a step), called from train.py:41"
    )
    near = dataclasses.replace(READ, share=ITEM.share.scaled(0.5))
    both = seen_at(waiting(ITEM, near), WAITING)
    assert [one.lead for one in both] == ["Seen at", "Also at"] and both[1].share == "12 % of a step"
    (cell,) = seen_at(waiting(CELL), WAITING)
    assert cell.words(code="<{}>".format) == (
        "Seen at train.py:22 in Net.forward: <h = self.cell(z, h)> (26 % of a step), called from train.py:42, "
        "calls torch.nn.modules.rnn.GRUCell.forward"
    )
    (bare,) = seen_at(waiting(share("", function="<module>", callers=())), WAITING)
    assert bare.words() == "Seen at train.py:9 (23 % of a step)"
    assert seen_at(waiting(), WAITING) == ()


def test_the_verdict_ends_with_the_place_it_is_about() -> None:
    assert verdict_place(WAITING) == "At train.py:9 in Data.__getitem__: `x = x * 1.01`, called from train.py:41."
    unread = share("", callers=(), function="<module>")
    assert verdict_place(diagnosis_of(waiting(unread), unread)) == "At train.py:9."
    long = share("loss = " + "a" * 90, callers=(), function="<module>")
    assert verdict_place(diagnosis_of(waiting(long), long)) == f"At train.py:9: `loss = {'a' * 52}…`."  # 60 in all


def test_of_a_deep_line_the_nearest_caller_is_told_and_the_loops_own_line() -> None:
    deep = share(callers=(MAIN, LOOP, at(file="data.py", line=30, name="load")))
    told = diagnosis_of(waiting(deep), deep, BACKWARD)
    assert verdict_place(told).endswith(", called from data.py:30 (from train.py:41).")
    (seen,) = seen_at(told.findings[0], told)
    assert seen.words().endswith(" (23 % of a step), called from data.py:30 (from train.py:41)")


def test_time_that_is_spread_over_a_function_is_told_with_its_lines() -> None:
    told = diagnosis_of(waiting(LOOPING, claimed=0.26), LOOPING, BACKWARD)
    assert verdict_place(told) == (
        "At train.py:21-24 in Net.forward, mostly line 22: `h = self.cell(z, h)`, called from train.py:42."
    )
    (seen,) = seen_at(waiting(LOOPING, claimed=0.26), told)
    assert seen.words() == (
        "Seen at train.py:21-24 in Net.forward, mostly line 22: `h = self.cell(z, h)` (together 26 % of a step), "
        "called from train.py:42, calls torch.nn.modules.rnn.GRUCell.forward"
    )
    assert places(LOOPING) == "train.py:21-24"
    far = dataclasses.replace(LOOPING, place=dataclasses.replace(LOOPING.place, file="src/project/models/text/net.py"))
    assert places(far, 26) == "src/…/text/net.py:21-24"
    assert (LOOPING.first_line, LOOPING.last_line, CELL.first_line, CELL.last_line) == (21, 24, 22, 22)


def looks_of(*lines: tuple[int, int, float]) -> CodeShare:
    """A stretch of code: each line with its looks and its share of a step."""
    within = [
        LineShare(at(line=line, name="f", text=f"text of {line}"), Interval(value, None, None, 400), looks)
        for line, looks, value in lines
    ]
    most = max(within, key=lambda one: one.share.value)
    whole = Interval(sum(one.share.value for one in within), None, None, 400)
    looks = sum(one.looks for one in within)
    return dataclasses.replace(CELL, place=most.place, share=whole, looks=looks, within=tuple(within))


def test_one_line_is_told_as_most_only_where_it_surely_has_more_than_half() -> None:
    half = looks_of((45, 49, 0.245), (46, 31, 0.155), (47, 20, 0.10))
    assert among_lines(half) == ", lines 45 (24 %), 46 (16 %) and 47 (10 % of a step)"
    told = seen(half, "At", "").at()
    assert told == "At train.py:45-47 in f, lines 45 (24 %), 46 (16 %) and 47 (10 % of a step); line 45: `text of 45`"
    # Wilson's lower end of 59 in 100 is 0.492, of 61 it is 0.512.
    assert among_lines(looks_of((45, 59, 0.29), (46, 41, 0.20))) == ", lines 45 (29 %) and 46 (20 % of a step)"
    assert among_lines(looks_of((45, 61, 0.30), (46, 39, 0.19))) == ", mostly line 45"
    assert among_lines(CELL) == ""


def test_lines_with_a_twentieth_of_a_step_are_kept_apart() -> None:
    several = looks_of((23, 10, 0.02), (24, 30, 0.07), (25, 90, 0.30), (26, 20, 0.05))
    assert [one.place.line for one in lines_apart(several)] == [24, 25, 26]
    small = looks_of((3, 30, 0.030), (4, 20, 0.020), (5, 10, 0.010))
    assert [one.place.line for one in lines_apart(small)] == [3, 4]
    many = looks_of(*((line, 10, 0.1) for line in range(1, 8)))
    assert [one.place.line for one in lines_apart(many)] == [1, 2, 3, 4]
    assert lines_apart(CELL) == ()


def test_where_nothing_is_wrong_the_line_stands_first_and_what_nobody_looked_at_last() -> None:
    looping = dataclasses.replace(LOOPING, of_phase=0.52)
    work = dataclasses.replace(
        waiting(looping), code="CMP002", claims={"forward": 0.5, "backward": 0.4}, summary="90 % of a step is work."
    )
    healthy = Verdict(
        "CMP002", "compute-bound", Family.COMPUTE, "Nothing is wrong. 90 % of a step is work.", fault=False,
        opening="Nothing is wrong.", note="Nobody looked inside.",
    )  # fmt: skip
    told = dataclasses.replace(diagnosis_of(work, looping, BACKWARD), verdict=healthy)
    assert verdict_words(told) == (
        "Nothing is wrong. Most of forward at train.py:21-24 in Net.forward, mostly line 22: `h = self.cell(z, h)` "
        "(together 26 % of a step, 52 % of forward), called from train.py:42. 90 % of a step is work. [CMP002] "
        "Nobody looked inside."
    )
    assert verdict_label(told) == "Verdict"
    bare = dataclasses.replace(told, findings=(dataclasses.replace(work, lines=()),), lines=())
    assert verdict_words(bare) == "Nothing is wrong. 90 % of a step is work. [CMP002] Nobody looked inside."
    for part, lead in ((0.5, "Most of forward at "), (0.49, "The largest part of forward at ")):
        less = dataclasses.replace(work, lines=(dataclasses.replace(looping, of_phase=part),))
        assert verdict_place(dataclasses.replace(told, findings=(less,))).startswith(lead)
    # One line for all phases is a framework's loop: no news.
    whole = [dataclasses.replace(looping, phase=phase) for phase in ("forward", "backward")]
    framework = diagnosis_of(dataclasses.replace(work, lines=tuple(whole)), *whole)
    assert verdict_place(dataclasses.replace(framework, verdict=healthy)) == ""
    unknown = dataclasses.replace(work, lines=(LOOPING,))
    assert "(together 26 % of a step), called" in verdict_place(dataclasses.replace(told, findings=(unknown,)))


def test_a_saving_is_told_with_its_own_line() -> None:
    found = dataclasses.replace(waiting(ITEM), severity=Severity.INFO, code="OPT001")
    saving = Verdict("OPT001", "x", Family.OPTIMIZER, f"A saving: {found.summary}", fault=False, note="And so on.")
    told = dataclasses.replace(diagnosis_of(found, ITEM, BACKWARD), verdict=saving)
    assert verdict_words(told, "OPT001 x") == (
        "A saving: The training waits for data 28 % of each step. At train.py:9 in Data.__getitem__: `x = x * 1.01`, "
        "called from train.py:41. [OPT001 x] And so on."
    )
    assert verdict_label(told) == "No fault, but worth trying first"


def test_without_a_verdict_the_suspicion_is_told_with_its_line() -> None:
    told = dataclasses.replace(WAITING, verdict=None, no_verdict_because="suspected: x", suspected="INP001")
    assert verdict_words(told) == (
        "suspected: x. At train.py:9 in Data.__getitem__: `x = x * 1.01`, called from train.py:41."
    )
    assert verdict_label(told) == "No verdict"
    decided = dataclasses.replace(told, would_decide="To decide it, look.")
    assert verdict_words(decided).endswith(", called from train.py:41. To decide it, look.")
    nowhere = dataclasses.replace(decided, findings=(waiting(),))
    assert verdict_words(nowhere) == "suspected: x. To decide it, look."
    assert verdict_words(dataclasses.replace(told, suspected="")) == "suspected: x."
    assert verdict_words(Diagnosis(verdict=None)) == "the evidence is too thin."


def test_a_line_with_less_than_half_of_the_finding_is_its_largest_part() -> None:
    assert verdict_place(diagnosis_of(waiting(ITEM, claimed=0.46), ITEM)).startswith("At train.py:9")
    assert verdict_place(diagnosis_of(waiting(ITEM, claimed=0.47), ITEM)).startswith("The largest part at train.py:9")


def test_of_a_frameworks_loop_it_is_told_what_it_calls() -> None:
    fetch = share("trainer.train()", function="<module>", callers=(), called="transformers.trainer.Trainer.get_batch")
    update = dataclasses.replace(fetch, called="torch.optim.adamw.AdamW.step", phase="optimizer")
    told = diagnosis_of(waiting(fetch), fetch, update)
    assert verdict_place(told) == "At train.py:9: `trainer.train()`, in transformers.trainer.Trainer.get_batch."
    assert verdict_place(diagnosis_of(waiting(fetch), fetch)) == "At train.py:9: `trainer.train()`."


def test_where_no_line_was_seen_no_place_is_told() -> None:
    assert verdict_place(diagnosis_of(waiting())) == "" and verdict_seen(diagnosis_of(waiting())) is None
    assert verdict_place(Diagnosis(verdict=None, lines=(ITEM,))) == ""


def test_but_why_a_line_is_slow_is_told_with_it_whoever_names_it() -> None:
    slow = share("idx = np.random.choice(n, k, p=probs)")
    told = diagnosis_of(dataclasses.replace(waiting(slow), summary="62 % goes into drawing at train.py:9."), slow)
    assert verdict_place(told).startswith("At train.py:9 in Data.__getitem__: `idx = np.random.choice(n, k, p=probs)`")
    assert "Known to be slow: np.random.choice(…, p=…) adds all weights up" in verdict_place(told)


def test_a_verdict_that_names_its_line_is_not_told_it_again() -> None:
    for says, again in (("62 % goes into a tensor at train.py:9 in f.", ""), ("62 % at train.py:90.", "At train.py:9")):
        finding = dataclasses.replace(waiting(ITEM), summary=says)
        told = dataclasses.replace(
            WAITING, findings=(finding,), verdict=dataclasses.replace(WAITING.verdict, summary=says)
        )
        assert verdict_place(told).startswith(again) and bool(verdict_place(told)) == bool(again)
        assert verdict_words(told).startswith(f"{says} {again}" if again else f"{says} [")
