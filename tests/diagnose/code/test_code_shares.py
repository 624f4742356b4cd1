"""From looks at a thread's stack to the lines that a step's time goes to."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
import pytest

from perf_diagnostics.diagnose.code.code_shares import all_code_shares, claimed_lines, code_shares
from perf_diagnostics.diagnose.code.phase_looks import LEAST_LOOKS, proportion
from perf_diagnostics.diagnose.code_share import CodeShare
from perf_diagnostics.diagnose.engine import diagnose
from perf_diagnostics.diagnose.facts.facts import TrialFacts
from perf_diagnostics.diagnose.finding import Family, Finding, Severity
from perf_diagnostics.records import CodePath, CodePlace, CodeSamples
from perf_diagnostics.testing import run_of, trial_of

#: A path: its phase, the lines on the way as "file:line:function", its looks, and what it called.
Seen = tuple[str, str, int, tuple[str, ...]]

LOOP = "train.py:1:<module> "


def samples(*seen: Seen, rare: int = 0, part: str = "") -> CodeSamples:
    """Samples of these ways; ``rare`` looks more at the first one."""
    numbers: dict[CodePlace, int] = {}
    paths = []
    for number, (phase, way, looks, calls) in enumerate(seen):
        places = []
        for step in way.split():
            file, line, function = step.split(":")
            place = CodePlace(file=file, line=int(line), function=function, text=f"text of {line}")
            places.append(numbers.setdefault(place, len(numbers)))
        more = 0 if number else rare
        paths.append(CodePath(phase=phase, part=part, places=tuple(places), looks=looks, rare=more, calls=calls))
    return CodeSamples(places=tuple(numbers), paths=tuple(paths), interval_s=0.025, rare_interval_s=0.1, cpu_s=0.01)


def facts(code: CodeSamples | None, **phases: float) -> TrialFacts:
    return TrialFacts.of(dataclasses.replace(trial_of(**(phases or {"forward": 0.5, "other": 0.5})), code=code))  # type: ignore[arg-type]


def told(shares: tuple[CodeShare, ...]) -> Mapping[str, float]:
    """Share by place and what it calls."""
    return {f"{one.place.file}:{one.place.line} {one.called}".strip(): round(one.share.value, 4) for one in shares}


def test_a_phases_share_is_divided_among_the_loops_lines_by_their_looks() -> None:
    code = samples(
        ("other", "train.py:7:main", 60, ("torch.save", "torch.serialization._save")),
        ("other", "train.py:8:main", 30, ()),
        ("other", "train.py:9:main", 10, ()),  # 10 % of the phase: too little to stand for itself
        ("forward", "train.py:5:main", 100, ()),
    )
    found = facts(code, forward=0.6, other=0.4)
    assert told(code_shares(found, "other")) == {"train.py:7 torch.save": 0.24, "train.py:8": 0.12}
    assert told(all_code_shares(found)) == {"train.py:5": 0.6, "train.py:7 torch.save": 0.24, "train.py:8": 0.12}
    assert [one.looks for one in code_shares(found, "other")] == [60, 30]


def test_a_call_is_named_unless_one_line_in_it_has_nearly_all_of_its_time() -> None:
    spread = samples(
        ("other", "train.py:7:main train.py:20:evaluate", 50, ()),
        ("other", "train.py:7:main train.py:21:evaluate", 50, ()),
        ("forward", "train.py:5:main", 100, ()),
    )
    (one,) = code_shares(facts(spread), "other")
    assert (one.place.line, one.callers, one.called) == (7, (), "")
    assert [(line.place.line, line.share.value, line.looks) for line in one.below] == [
        (20, pytest.approx(0.25), 50),
        (21, pytest.approx(0.25), 50),
    ]
    single = samples(
        ("other", "train.py:7:main train.py:20:evaluate", 80, ("torch.nn.functional.linear",)),
        ("other", "train.py:7:main train.py:21:evaluate", 20, ()),
        ("forward", "train.py:5:main", 100, ()),
    )
    (one,) = code_shares(facts(single), "other")
    assert (one.place.line, one.called, one.share.value) == (20, "torch.nn.functional.linear", pytest.approx(0.4))
    assert [caller.line for caller in one.callers] == [7]


def test_the_loop_is_found_below_functions_that_only_start_it() -> None:
    start = "run.py:90:<module> run.py:80:main "
    code = samples(
        ("other", f"{start}trainer.py:7:Trainer.fit", 50, ()),
        ("other", f"{start}trainer.py:8:Trainer.fit", 50, ()),
        ("forward", f"{start}trainer.py:5:Trainer.fit model.py:3:Net.forward", 100, ()),
    )
    assert told(code_shares(facts(code), "other")) == {"trainer.py:7": 0.25, "trainer.py:8": 0.25}


def test_of_a_frameworks_loop_its_functions_are_told_apart_and_the_users_code_in_it() -> None:
    fit = ("transformers.trainer.Trainer.train", "transformers.trainer.Trainer._inner")
    line = "train.py:12:<module>"
    code = samples(
        ("forward", line, 90, (*fit, "transformers.trainer.Trainer.training_step")),
        ("forward", f"{line} model.py:4:Net.forward", 60, ()),
        ("backward", line, 50, (*fit, "transformers.trainer.Trainer.training_step")),
        ("other", line, 30, (*fit, "transformers.trainer.Trainer._save_checkpoint")),
        ("other", line, 20, (*fit, "transformers.trainer.Trainer.log")),
        ("other", f"{line} data.py:6:Data.__getitem__", 50, ()),
    )
    found = facts(code, forward=0.5, backward=0.1, other=0.4)
    assert told(code_shares(found, "other")) == {
        "data.py:6": 0.2,
        "train.py:12 transformers.trainer.Trainer._save_checkpoint": 0.12,
        "train.py:12 transformers.trainer.Trainer.log": 0.08,
    }
    assert told(code_shares(found, "forward")) == {
        "train.py:12 transformers.trainer.Trainer.training_step": 0.3,
        "model.py:4": 0.2,
    }


def spans(shares: tuple[CodeShare, ...]) -> Mapping[str, float]:
    """Share by file, lines and function."""
    return {
        f"{one.place.file}:{one.first_line}-{one.last_line} {one.place.function}": round(one.share.value, 4)
        for one in shares
    }


def test_inside_of_forward_a_function_whose_time_is_spread_is_told_with_its_lines() -> None:
    code = samples(
        ("forward", "t.py:5:main m.py:28:Net.forward", 60, ()),
        ("forward", "t.py:5:main m.py:30:Net.forward", 25, ()),
        ("forward", "t.py:5:main m.py:31:Net.forward", 10, ()),
        ("forward", "t.py:5:main m.py:40:Net.forward", 5, ()),  # 95 % are known without it
        ("other", "t.py:9:main", 100, ()),
    )
    (one,) = code_shares(facts(code), "forward")
    assert (one.place.line, one.first_line, one.last_line) == (28, 28, 31)
    assert [caller.line for caller in one.callers] == [5]
    assert (one.share.value, one.of_phase, one.looks) == (pytest.approx(0.5 * 0.95), pytest.approx(0.95), 95)
    assert [(line.place.line, line.looks) for line in one.within] == [(28, 60), (30, 25), (31, 10)]
    assert [line.share.value for line in one.within] == pytest.approx([0.3, 0.125, 0.05])
    assert one.within[0].share.low == pytest.approx(0.5 * proportion(0.6, 100).low)  # type: ignore[operator]


def test_inside_of_forward_the_innermost_functions_of_weight_are_told_apart() -> None:
    loop = "t.py:5:main"
    code = samples(
        ("forward", f"{loop} m.py:35:Net.forward m.py:14:encoding", 32, ()),
        ("forward", f"{loop} m.py:35:Net.forward m.py:15:encoding", 28, ()),
        ("forward", f"{loop} m.py:36:Net.forward m.py:23:mask", 8, ()),  # too little: Net.forward's
        ("forward", f"{loop} m.py:39:Net.forward", 30, ("torch.nn.functional.linear",)),
        ("forward", loop, 2, ()),
        ("other", "t.py:9:main", 100, ()),
    )
    found = code_shares(facts(code), "forward")
    # Of the 38 of Net.forward 30 are at line 39: nearly all.
    assert spans(found) == {"m.py:14-15 encoding": 0.3, "m.py:39-39 Net.forward": 0.15}
    assert [[caller.line for caller in one.callers] for one in found] == [[5, 35], [5]]
    assert [one.called for one in found] == ["", "torch.nn.functional.linear"]


def test_a_function_that_several_lines_call_is_told_once_with_the_way_that_all_have_in_common() -> None:
    code = samples(
        ("forward", "t.py:5:main m.py:16:Block.forward h.py:37:hook", 25, ()),
        ("forward", "t.py:5:main m.py:17:Block.forward h.py:40:hook", 20, ()),
        ("forward", "t.py:5:main h.py:41:hook", 10, ()),
        ("forward", "t.py:5:main m.py:17:Block.forward", 45, ()),
        ("other", "t.py:9:main", 100, ()),
    )
    found = code_shares(facts(code), "forward")
    assert spans(found) == {"h.py:37-41 hook": 0.275, "m.py:17-17 Block.forward": 0.225}
    assert [caller.line for caller in found[0].callers] == [5]


def test_what_lies_in_functions_too_small_to_be_told_is_their_callers() -> None:
    code = samples(
        ("forward", "t.py:5:main a.py:1:a", 10, ()),
        ("forward", "t.py:5:main a.py:2:a b.py:1:b", 10, ()),
        ("forward", "t.py:5:main a.py:2:a b.py:2:b c.py:1:c", 10, ()),
        ("forward", "t.py:5:main d.py:1:d", 70, ()),
        ("other", "t.py:9:main", 100, ()),
    )
    # c ends in b, which has 20 of 100 then; what is left of a is too little.
    assert spans(code_shares(facts(code), "forward")) == {"d.py:1-1 d": 0.35, "b.py:1-2 b": 0.1}


def test_of_an_evaluation_the_call_is_told_and_not_the_inside_of_the_model() -> None:
    model = "t.py:7:main t.py:20:evaluate m.py:"
    code = samples(
        ("other", f"{model}30:Net.forward", 60, ()),
        ("other", f"{model}31:Net.forward", 40, ()),
        ("forward", "t.py:5:main", 100, ()),
    )
    # Line 20 has all of evaluate's time: the line is told, and where the loop calls it.
    (one,) = code_shares(facts(code), "other")
    assert (one.place.line, one.within, [caller.line for caller in one.callers]) == (20, (), [7])


def test_a_rare_look_stands_for_more_time_and_makes_the_interval_no_narrower() -> None:
    ways = (("other", "t.py:7:main", 100, ()), ("other", "t.py:8:main", 100, ()))
    forward = ("forward", "t.py:5:main", 100, ())
    mixed = code_shares(facts(samples(*ways, forward, rare=25)), "other")
    assert told(mixed) == {"t.py:7": pytest.approx(0.5 * 200 / 300, abs=1e-4), "t.py:8": pytest.approx(1 / 6, abs=1e-4)}
    # 225 looks of unequal weight tell as much as 150 of equal weight: 300^2 / (200 + 25 * 16).
    assert mixed[0].share.n == 150
    assert mixed[0].looks == 125


def test_late_looks_count_for_the_estimate_and_not_for_its_lower_end() -> None:
    code = samples(
        ("other", "t.py:7:main", 60, ()), ("other", "t.py:8:main", 40, ()), ("forward", "t.py:5:main", 9, ())
    )
    first, *others = code.paths
    paths = (dataclasses.replace(first, looks=30), dataclasses.replace(first, looks=30, late=True), *others)
    late = code_shares(facts(dataclasses.replace(code, paths=paths)), "other")[0].share
    prompt = code_shares(facts(code), "other")[0].share
    assert (late.value, late.high) == (prompt.value, prompt.high)
    assert late.low == pytest.approx(proportion(0.3, 100).low * 0.5)  # type: ignore[operator]


def test_our_own_watching_is_never_named() -> None:
    code = samples(
        ("other", "t.py:7:main", 60, ("perf_diagnostics",)),
        ("other", "t.py:8:main", 40, ("torch.save",)),
        ("forward", "t.py:5:main", 100, ()),
    )
    assert [one.called for one in code_shares(facts(code), "other")] == ["", "torch.save"]


def test_nothing_is_said_of_too_few_looks_or_a_line_of_no_weight() -> None:
    few = samples(("other", "t.py:7:main", LEAST_LOOKS - 1, ()), ("forward", "t.py:5:main", 100, ()))
    assert code_shares(facts(few), "other") == ()
    enough = samples(("other", "t.py:7:main", LEAST_LOOKS, ()), ("forward", "t.py:5:main", 100, ()))
    assert len(code_shares(facts(enough), "other")) == 1
    assert code_shares(facts(enough, forward=0.99, other=0.01), "other") == ()  # 1 % of a step
    assert all_code_shares(facts(None)) == ()


def test_on_an_accelerator_lines_share_the_hosts_time() -> None:
    code = samples(("other", "t.py:7:main", 100, ()), ("forward", "t.py:5:main", 100, ()))
    trial = trial_of(forward=0.9, other=0.1, device="cuda:0", host={"forward": 0.02, "other": 0.5})  # type: ignore[dict-item]
    columns = dict(trial.steps[0].columns)
    columns["host_wall_ns"] = columns["host_forward_ns"] * 50
    result = dataclasses.replace(trial, code=code, steps=(dataclasses.replace(trial.steps[0], columns=columns),))
    assert told(all_code_shares(TrialFacts.of(result))) == {
        "t.py:7": pytest.approx(0.98),
        "t.py:5": pytest.approx(0.02),
    }


def finding(code: str, family: Family, claims: dict[str, float]) -> Finding:
    return Finding(
        code=code,
        name="x",
        family=family,
        severity=Severity.WARNING,
        summary="",
        scope="",
        evidence=(),
        claims=claims,
    )


def test_a_finding_names_the_lines_of_the_phases_that_it_claims() -> None:
    code = samples(
        ("other", "t.py:7:main", 100, ()),
        ("forward", "t.py:5:main", 100, ()),
        ("data_wait", "t.py:4:main", 100, ()),
    )
    found = facts(code, forward=0.5, other=0.3, data_wait=0.2)
    both = finding("HST006", Family.HOST, {"other": 0.3, "forward": 0.5, "data_wait": 0.01})
    assert told(claimed_lines(both, found)) == {"t.py:5": 0.5, "t.py:7": 0.3}
    assert claimed_lines(finding("CPU001", Family.PROCESSOR, {"other": 0.3}), found) == ()
    assert claimed_lines(finding("HST005", Family.HOST, {"other": 0.3}), found) == ()
    assert claimed_lines(finding("HST002", Family.HOST, {"waits": 0.3}), found) == ()


@pytest.mark.parametrize(("backward", "line"), [(0.6, "t.py:5"), (0.85, "t.py:6 torch.Tensor.backward")])
def test_forwards_lines_speak_for_a_backward_of_usual_length(backward: float, line: str) -> None:
    code = samples(("forward", "t.py:5:main", 100, ()), ("backward", "t.py:6:main", 100, ("torch.Tensor.backward",)))
    found = facts(code, forward=1 - backward, backward=backward)
    both = finding("CMP002", Family.COMPUTE, {"forward": 1 - backward, "backward": backward})
    assert next(iter(told(claimed_lines(both, found)))) == line


def test_a_finding_about_calls_that_forward_makes_names_forwards_lines_however_long_backward_is() -> None:
    code = samples(("forward", "t.py:5:main", 100, ()), ("backward", "t.py:6:main", 100, ("torch.Tensor.backward",)))
    found = facts(code, forward=0.1, backward=0.9)
    assert told(claimed_lines(finding("HST011", Family.HOST, {"forward": 0.05, "backward": 0.4}), found)) == {
        "t.py:5": 0.1
    }


def test_two_functions_that_one_line_of_the_loop_calls_come_before_a_line_with_less_than_both() -> None:
    code = samples(
        ("forward", "t.py:5:main a.py:1:roc", 30, ()),
        ("forward", "t.py:5:main a.py:9:best", 25, ()),
        ("forward", "t.py:6:main", 45, ()),
        ("other", "t.py:9:main", 100, ()),
    )
    lines = claimed_lines(finding("CMP002", Family.COMPUTE, {"forward": 0.5}), facts(code))
    assert [one.place.line for one in lines] == [1, 9, 6]
    assert [(one.entry and one.entry.line, one.entry_share) for one in lines] == [
        (5, pytest.approx(0.275)), (5, pytest.approx(0.275)), (6, pytest.approx(0.225)),
    ]  # fmt: skip


def test_where_no_function_is_sure_enough_the_call_above_them_is_named() -> None:
    code = samples(
        ("data_wait", "t.py:5:main d.py:1:read", 9, ()),
        ("data_wait", "t.py:5:main d.py:9:decode", 9, ()),
        ("other", "t.py:9:main", 100, ()),
    )
    late = [dataclasses.replace(path, looks=41, late=True) for path in code.paths[:2]]
    found = facts(dataclasses.replace(code, paths=(*code.paths, *late)), data_wait=0.5, forward=0.0, other=0.5)
    # Of 100 looks 9 are sure: 4.8 % by Wilson, less than a tenth of what is claimed; of both 18: 11.7 %.
    assert [one.place.line for one in code_shares(found, "data_wait")] == [1, 9]
    claims = finding("INP001", Family.INPUT, {"data_wait": 0.5})
    assert [one.place.line for one in claimed_lines(claims, found)] == [5]


def test_a_rule_about_a_part_of_a_phase_names_that_parts_lines() -> None:
    prepare = samples(("other", "t.py:6:main", 50, ()), part="prepare").paths[0]
    rest = samples(
        ("other", "t.py:6:main", 0, ()), ("other", "t.py:9:main", 50, ()), ("forward", "t.py:5:main", 90, ())
    )
    code = dataclasses.replace(rest, paths=(prepare, *rest.paths[1:]))
    found = facts(code, forward=0.5, other=0.5)
    assert told(claimed_lines(finding("INP007", Family.INPUT, {"other": 0.25}), found)) == {"t.py:6": 0.25}


def test_a_diagnosis_carries_the_lines_and_their_findings() -> None:
    code = samples(("other", "t.py:7:main", 300, ("torch.save",)), ("forward", "t.py:5:main", 300, ()))
    told_of = diagnose(run_of(dataclasses.replace(trial_of(forward=0.5, other=0.5), code=code)))
    assert told_of.looks == 600
    assert told(told_of.lines) == {"t.py:7 torch.save": 0.5, "t.py:5": 0.5}
    outside = next(one for one in told_of.findings if one.code == "HST006")
    assert told(outside.lines) == {"t.py:7 torch.save": 0.5}


def test_the_interval_of_a_proportion_is_wilsons() -> None:
    # Newcombe, Statistics in Medicine 17 (1998), table I: 15 of 148 and 0 of 20.
    many, none = proportion(15 / 148, 148), proportion(0.0, 20)
    assert (many.low, many.high) == (pytest.approx(0.0624, abs=5e-5), pytest.approx(0.1605, abs=5e-5))
    assert (none.low, none.high) == (0.0, pytest.approx(0.1611, abs=5e-5))
    with pytest.raises(ValueError, match="0 looks"):
        proportion(0.0, 0)


@pytest.mark.parametrize(("often", "rare"), [(400, 0), (400, 400), (100, 1500)])
def test_intervals_of_looks_at_random_times_cover_what_is_true(often: int, rare: int) -> None:
    """Of a line that has 0.3 of its phase: 95 % of intervals hold it, whatever part of the looks was rare."""
    generator = np.random.default_rng(1)
    covered, tries = 0, 2000
    for at_line, rarely in zip(
        generator.binomial(often, 0.3, tries), generator.binomial(rare, 0.3, tries), strict=True
    ):
        seconds, whole = at_line * 1.0 + rarely * 4.0, often * 1.0 + rare * 4.0
        interval = proportion(seconds / whole, whole**2 / (often + rare * 16.0))
        assert interval.low is not None and interval.high is not None
        covered += interval.low <= 0.3 <= interval.high
    assert 0.935 <= covered / tries <= 0.965


@pytest.mark.parametrize(
    ("looks", "lines"),
    [(8, {7, 8}), (7, {7})],  # of 40 surely 10.5 % of the phase, of 39 surely 9.0 %
)
def test_a_line_that_may_have_less_than_a_tenth_of_a_finding_is_not_named(looks: int, lines: set[int]) -> None:
    code = samples(("other", "train.py:7:main", 32, ()), ("other", "train.py:8:main", looks, ()))
    found = facts(code, forward=0.6, other=0.4)
    assert len(code_shares(found, "other")) == 2
    finding = Finding(
        code="HST006",
        name="",
        family=Family.HOST,
        severity=Severity.WARNING,
        summary="",
        scope="",
        evidence=(),
        claims={"other": 0.4},
    )
    assert {one.place.line for one in claimed_lines(finding, found)} == lines


def test_time_without_an_operator_is_told_by_lines_at_which_python_was_at_work() -> None:
    code = samples(
        ("forward", "train.py:3:f", 40, ("torch._tensor.Tensor.__format__", "torch._tensor_str._str")),
        ("forward", "train.py:4:f", 40, ()),  # may stand in an operator, which has no frame
        ("forward", "train.py:5:f", 40, ("transformers.models.gpt2.GPT2Model.forward",)),
        ("forward", "train.py:6:f", 40, ("torch.nn.functional.linear",)),
        ("forward", "train.py:7:f", 40, ("re.sub",)),
        ("other", "train.py:8:f", 60, ()),
        ("other", "train.py:9:f", 40, ("torch.optim.lr_scheduler.LRScheduler.step",)),
    )
    found = claimed_lines(finding("HST004", Family.HOST, {"host": 0.5}), facts(code))
    # A fifth of forward's looks, which is half of a step, at each of its lines; of other's, the other half, 0.6.
    assert told(found) == {
        "train.py:8": 0.3,
        "train.py:3 torch._tensor.Tensor.__format__": 0.1,
        "train.py:7 re.sub": 0.1,
    }
