"""What the method itself asks for outside of the phases is told from what nothing in the training reads."""

from __future__ import annotations

import dataclasses

import pytest

from perf_diagnostics.diagnose.facts.facts import TrialFacts
from perf_diagnostics.diagnose.finding import Finding, Severity
from perf_diagnostics.diagnose.rule import Cleared
from perf_diagnostics.diagnose.rule_parts.method_work import method_work
from perf_diagnostics.diagnose.rules.hst006_time_outside_phases import TimeOutsidePhases
from perf_diagnostics.diagnose.rules.inp007_preprocessing_in_the_loop import PreprocessingInTheLoop
from perf_diagnostics.diagnose.rules.stb004_periodic_work import PeriodicWork
from perf_diagnostics.records import CodePath, CodePlace, CodeSamples
from perf_diagnostics.testing import trial_of

#: What each line of the loop is to the training; line 0 is ``train(model)`` in the module's body.
ROLES = ("training", "method", "unread", "average", "preparation", "", "training")
MAIN, TARGET, LOGS, AVERAGE, PREPARES, UNKNOWN, VALIDATES = range(len(ROLES))
PLACES = tuple(
    CodePlace(file="train.py", line=number, function="train" if number else "<module>") for number in range(len(ROLES))
)
MODULE = "torch.nn.modules.module.Module._wrapped_call_impl"


def looks(*lines: int, n: int, calls: tuple[str, ...] = (), phase: str = "other") -> CodePath:
    return CodePath(phase=phase, places=(MAIN, *lines), looks=n, calls=calls)


def facts(*paths: CodePath, roles: tuple[str, ...] = ROLES, **trial: object) -> TrialFacts:
    training = (looks(UNKNOWN, n=n, calls=(MODULE,), phase=phase) for phase, n in (("forward", 100), ("backward", 50)))
    code = CodeSamples(
        places=PLACES, paths=(*paths, *training), interval_s=0.025, rare_interval_s=0.1, cpu_s=0.0, roles=roles
    )
    made = trial_of(**({"forward": 0.05, "other": 0.05, "data_wait": 0.001} | trial))  # type: ignore[arg-type]
    return TrialFacts.of(dataclasses.replace(made, code=code))


def found(*paths: CodePath, **trial: object) -> Finding:
    answer = TimeOutsidePhases().check(facts(*paths, **trial))  # type: ignore[arg-type]
    assert isinstance(answer, Finding)
    return answer


def test_what_the_loss_depends_on_by_way_of_a_model_is_mentioned_and_no_evaluation() -> None:
    finding = found(looks(TARGET, n=95, calls=(MODULE,)), looks(UNKNOWN, n=5))
    assert finding.severity is Severity.INFO
    assert "95 % of that is the method's own" in finding.summary and "(train.py:1)" in finding.summary
    assert "evaluation" not in finding.summary
    assert finding.recoverable is not None and finding.recoverable.low == 0.0
    assert ["method" in remedy.says for remedy in finding.remedies] == [True]


def test_an_average_of_parameters_is_mentioned_with_what_does_it_at_once() -> None:
    finding = found(looks(AVERAGE, n=100))
    assert finding.severity is Severity.INFO
    assert "100 % of that is averaging parameters (train.py:3)" in finding.summary
    assert "_foreach_lerp_" in finding.remedies[0].says


def test_a_librarys_average_is_known_by_its_name() -> None:
    calls = ("torch.optim.swa_utils.AveragedModel.update_parameters",)
    assert found(looks(LOGS, n=100, calls=calls)).severity is Severity.INFO


def test_batch_norms_that_are_estimated_for_an_average_are_no_average() -> None:
    calls = ("torch.optim.swa_utils.update_bn", "torch.optim.swa_utils.AveragedModel.forward", MODULE)
    assert found(looks(LOGS, n=100, calls=calls)).severity is Severity.CRITICAL


@pytest.mark.parametrize("line", [LOGS, PREPARES, UNKNOWN])
def test_what_nothing_reads_or_only_prepares_stays_a_fault(line: int) -> None:
    assert method_work(facts(looks(line, n=100))) is None
    assert found(looks(line, n=100)).severity is Severity.CRITICAL


def test_a_module_that_only_transforms_is_preparation_and_one_with_layers_a_model() -> None:
    """A spectrum is a module, too, and no model."""
    forward = dataclasses.replace(PLACES[PREPARES], function="Spectrum.forward")
    layer = "torch.nn.modules.linear.Linear.forward"
    for calls, is_method in (((MODULE,), False), ((MODULE, layer), True)):
        told = facts(looks(PREPARES, n=100, calls=calls))
        assert told.result.code is not None
        places = (*PLACES[:PREPARES], forward, *PLACES[PREPARES + 1 :])
        code = dataclasses.replace(told.result.code, places=places)
        work = method_work(TrialFacts.of(dataclasses.replace(told.result, code=code)))
        assert (work is not None) is is_method


def test_what_the_trained_model_is_called_with_is_prepared_in_the_same_line() -> None:
    """``model(rows[index])``: the line is the method's, gathering is not; another model's answer in it is."""
    trained = looks(TARGET, UNKNOWN, n=80, calls=(MODULE,), phase="forward")
    assert method_work(facts(looks(TARGET, n=100), trained)) is None
    assert method_work(facts(looks(TARGET, n=100))) is not None
    assert method_work(facts(looks(TARGET, n=100, calls=(MODULE,)), trained)) is not None


def test_what_nothing_reads_stays_a_fault_inside_of_what_is_needed() -> None:
    assert method_work(facts(looks(TARGET, LOGS, n=100))) is None


def test_saving_and_logging_are_no_method_wherever_they_are_called() -> None:
    assert method_work(facts(looks(TARGET, n=100, calls=("torch.serialization.save",)))) is None


def test_reading_may_well_be_what_the_method_asks_for() -> None:
    assert method_work(facts(looks(TARGET, n=100, calls=("numpy.lib._npyio_impl.NpzFile.__getitem__",)))) is not None


def test_what_is_known_to_be_slow_as_it_is_written_is_no_price() -> None:
    """A replay memory that is a deque: the loss depends on what is drawn, and no method asks for the walk to it."""
    drawn = ("random.Random.sample",)
    memory = CodePlace(
        file="train.py",
        line=TARGET,
        function="train",
        text="batch = random.sample(memory, k)",
        kinds=(("memory", "deque"),),
    )
    given = facts(looks(TARGET, n=100, calls=drawn))
    assert method_work(given) is not None  # as long as nothing is known of the line
    code = given.result.code
    assert code is not None
    places = tuple(memory if one.line == TARGET else one for one in code.places)
    told = TrialFacts.of(dataclasses.replace(given.result, code=dataclasses.replace(code, places=places)))
    assert method_work(told) is None
    assert TimeOutsidePhases().check(told).severity is Severity.CRITICAL  # type: ignore[union-attr]


def test_of_a_bank_that_is_copied_whole_all_of_its_function_is_no_price() -> None:
    """MoCo's queue, put together anew and normalised anew, for 32 rows of 32,768."""
    copied = CodePlace(
        file="train.py",
        line=TARGET,
        function="enqueue",
        text="queue = torch.cat([keys, self.queue])[:n]",
        kinds=((".queue", "window"), ("queue", "window")),
    )
    normalised = CodePlace(file="train.py", line=AVERAGE, function="enqueue", text="self.queue = F.normalize(queue)")
    by_line = {TARGET: copied, AVERAGE: normalised}
    roles = tuple("method" if line in by_line else role for line, role in enumerate(ROLES))
    paths = (looks(TARGET, n=40), looks(AVERAGE, n=60))

    def told(places: tuple[CodePlace, ...]) -> TrialFacts:
        given = facts(*paths, roles=roles)
        assert given.result.code is not None
        return TrialFacts.of(
            dataclasses.replace(given.result, code=dataclasses.replace(given.result.code, places=places))
        )

    known = tuple(by_line.get(one.line, one) for one in PLACES)
    assert method_work(told(known)) is None
    assert method_work(told(tuple(dataclasses.replace(one, kinds=()) for one in known))) is not None


@pytest.mark.parametrize(
    ("trains", "slow", "part"), [(True, 15, 0.85), (False, 15, None), (False, 11, None), (False, 9, 0.91)]
)
def test_of_a_function_that_trains_only_the_lines_that_are_slow_are_no_price(
    trains: bool, slow: int, part: float | None
) -> None:
    """A main() that rolls out, works advantages out number by number, and trains on them; and a function that does not
    train, of which they are all of the fault unless they take little of it.
    """
    text = "delta = rewards[t] + gamma * values[t + 1] - values[t]"
    advantages = CodePlace(file="train.py", line=AVERAGE, function="main", text=text, kinds=(("t", "counter"),))
    rollout = CodePlace(file="train.py", line=TARGET, function="main", text="action = policy(x).sample()")
    backward = CodePlace(file="train.py", line=UNKNOWN, function="main" if trains else "train", text="loss.backward()")
    by_line = {AVERAGE: advantages, TARGET: rollout, UNKNOWN: backward}
    roles = tuple("method" if line in by_line else role for line, role in enumerate(ROLES))
    given = facts(looks(AVERAGE, n=slow), looks(TARGET, n=100 - slow), roles=roles)
    assert given.result.code is not None
    places = tuple(by_line.get(one.line, one) for one in PLACES)
    code = dataclasses.replace(given.result.code, places=places)
    work = method_work(TrialFacts.of(dataclasses.replace(given.result, code=code)))
    assert (None if work is None else work.part.value) == (None if part is None else pytest.approx(part))


def test_a_frozen_model_that_prepares_what_the_loss_reads_is_the_methods() -> None:
    method = method_work(facts(looks(PREPARES, n=100, calls=(MODULE,))))
    assert method is not None and method.line.line == PREPARES


def test_of_both_the_rest_is_graded_claimed_and_shown() -> None:
    finding = found(looks(TARGET, n=60, calls=(MODULE,)), looks(LOGS, n=40, calls=("tqdm.std.tqdm.update",)))
    assert finding.severity is Severity.WARNING  # 40 % of a half of the step, less what the looks leave open
    assert "40 % of that is logging (train.py:2)" in finding.summary
    assert "60 % of that is the method's own" in finding.summary
    assert finding.claims["other"] == pytest.approx(0.2, abs=0.01)
    assert [share.place.line for share in finding.lines] == [LOGS]
    assert finding.recoverable is not None and finding.recoverable.high < 0.3


def test_little_of_the_rest_is_no_fault() -> None:
    assert found(looks(TARGET, n=970), looks(LOGS, n=30)).severity is Severity.INFO


def test_a_line_that_trains_elsewhere_and_only_evaluates_here_is_no_method() -> None:
    evaluates = looks(VALIDATES, TARGET, n=100, calls=(MODULE,))
    assert method_work(facts(evaluates)) is None
    trains = looks(VALIDATES, UNKNOWN, n=50, phase="backward")
    assert method_work(facts(evaluates, trains)) is not None


def test_a_line_that_the_training_is_seen_below_does_not_count_as_unread() -> None:
    below = looks(LOGS, TARGET, n=100, calls=(MODULE,))  # such as a function that is looked up in a table
    assert method_work(facts(below)) is None
    assert method_work(facts(below, looks(LOGS, UNKNOWN, n=50, phase="optimizer"))) is not None


def test_the_line_that_is_trained_on_evaluates_where_it_is_passed_without_now_and_then() -> None:
    both = looks(TARGET, n=100, calls=(MODULE,)), looks(TARGET, n=100, calls=(MODULE,), phase="forward")
    seldom = {"wall_ns": [int(1e9 if step % 10 == 9 else 6e7) for step in range(100)], "host_forward_ns": 50_000_000}
    assert method_work(facts(*both)) is not None  # in each step: such as a target in the loss's own expression
    assert method_work(facts(*both, columns=seldom)) is None


def test_records_without_roles_are_graded_as_before() -> None:
    assert method_work(facts(looks(TARGET, n=100), roles=())) is None
    assert found(looks(TARGET, n=100), roles=()).severity is Severity.CRITICAL


def test_too_few_looks_tell_nothing_and_a_tenth_is_not_worth_a_word() -> None:
    assert method_work(facts(looks(TARGET, n=9))) is None
    few = method_work(facts(looks(TARGET, n=10)))
    assert few is not None and few.part.low is not None and few.part.low < 0.75  # a quarter may be something else
    assert method_work(facts(looks(TARGET, n=9), looks(LOGS, n=91))) is None


def test_rollouts_now_and_then_are_no_fault_of_the_rhythm_and_evaluations_are() -> None:
    wall = [int(1e8 + (4e7 if step % 4 == 0 else 0)) for step in range(120)]
    columns = {"wall_ns": wall, "host_forward_ns": 100_000_000, "host_data_wait_ns": 0}
    trial = {"steps": 120, "columns": columns, "other": 0.01, "forward": 0.1, "data_wait": 0.0}
    rolls = PeriodicWork().check(facts(looks(TARGET, n=100), **trial))  # type: ignore[arg-type]
    assert isinstance(rolls, Finding) and rolls.severity is Severity.INFO
    assert "of what is outside is the method's own" in rolls.summary
    evaluates = PeriodicWork().check(facts(looks(LOGS, n=100, calls=(MODULE,)), **trial))  # type: ignore[arg-type]
    assert isinstance(evaluates, Finding) and evaluates.severity is Severity.WARNING
    assert "mostly evaluation" in evaluates.summary


def test_what_measures_is_no_work_that_the_method_does_not_want() -> None:
    """Rollouts as they were seen on a loaded machine: a fifth of the looks fell into what ends a step, and is ours."""
    wall = [int(1e8 + (4e8 if step % 16 == 0 else 0)) for step in range(160)]
    columns = {"wall_ns": wall, "host_forward_ns": 30_000_000, "host_data_wait_ns": 0}
    trial = {"steps": 160, "columns": columns, "other": 0.01, "forward": 0.03, "data_wait": 0.0}
    rolls, ours = looks(TARGET, n=380, calls=(MODULE,)), looks(UNKNOWN, n=100, calls=("perf_diagnostics",))
    told = method_work(facts(rolls, ours, looks(UNKNOWN, n=20), **trial))
    assert told is not None and told.part.value == pytest.approx(380 / 400) and told.part.n == 400
    answer = PeriodicWork().check(facts(rolls, ours, looks(UNKNOWN, n=20), **trial))  # type: ignore[arg-type]
    assert isinstance(answer, Finding) and answer.severity is Severity.INFO
    saves = looks(UNKNOWN, n=100, calls=("torch.serialization.save",))
    faulty = PeriodicWork().check(facts(rolls, ours, saves, **trial))  # type: ignore[arg-type]
    assert isinstance(faulty, Finding) and faulty.severity is Severity.WARNING  # a fifth of it is saved
    assert method_work(facts(looks(TARGET, n=9), ours)) is None  # too few looks at the program itself


def test_what_the_method_computes_on_a_batch_is_no_preprocessing() -> None:
    given = {"forward": 0.05, "other": 0.05, "data_wait": 0.001, "columns": {"prepare_ns": 40_000_000.0}}
    target = dataclasses.replace(looks(TARGET, n=95, calls=(MODULE,)), part="prepare")
    rows = dataclasses.replace(looks(PREPARES, n=5), part="prepare")
    answer = PreprocessingInTheLoop().check(facts(target, rows, **given))
    assert isinstance(answer, Cleared) and "without what the method computes there" in answer.summary
    other = PreprocessingInTheLoop().check(facts(dataclasses.replace(rows, looks=100), **given))
    assert isinstance(other, Finding) and other.severity is Severity.CRITICAL


def test_a_loop_with_little_outside_is_still_cleared() -> None:
    assert isinstance(TimeOutsidePhases().check(facts(looks(TARGET, n=100), other=0.002)), Cleared)
