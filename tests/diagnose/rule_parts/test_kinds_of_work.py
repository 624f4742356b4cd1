"""What kind of work the time outside of the phases is."""

from __future__ import annotations

import dataclasses

import pytest

from perf_diagnostics.diagnose.facts.facts import TrialFacts
from perf_diagnostics.diagnose.finding import Finding
from perf_diagnostics.diagnose.rule_parts.kinds_of_work import kind_of_work
from perf_diagnostics.diagnose.rules.hst006_time_outside_phases import TimeOutsidePhases
from perf_diagnostics.diagnose.rules.stb004_periodic_work import PeriodicWork
from perf_diagnostics.records import CodePath, CodePlace, CodeSamples
from perf_diagnostics.testing import trial_of

LOOP = tuple(CodePlace(file="train.py", line=line, function="main") for line in range(10))
INSIDE = CodePlace(file="model.py", line=4, function="Net.forward")
MODULE = "torch.nn.modules.module.Module._wrapped_call_impl"


def seen(
    line: int, looks: int, *calls: str, via: tuple[str, ...] = (), part: str = "", phase: str = "other"
) -> CodePath:
    """So many looks at a line of the loop; ``via`` ends in a line of the user's model."""
    places = (line, len(LOOP)) if via else (line,)
    return CodePath(phase=phase, part=part, places=places, looks=looks, calls=calls, via=via)


def code(*paths: CodePath) -> CodeSamples:
    training = seen(5, 100, "torch.nn.modules.linear.Linear.forward", phase="forward")
    return CodeSamples(
        places=(*LOOP, INSIDE), paths=(*paths, training), interval_s=0.025, rare_interval_s=0.1, cpu_s=0.0
    )


def facts(*paths: CodePath, without: tuple[str, ...] = ()) -> TrialFacts:
    trial = trial_of(forward=0.05, other=0.05, data_wait=0.001, without=without)
    return TrialFacts.of(dataclasses.replace(trial, code=code(*paths)))


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        ("torch.serialization.save", "saving"),
        ("safetensors.torch.save_file", "saving"),
        ("numpy.lib._npyio_impl.save", "saving"),
        ("numpy.lib._npyio_impl.NpzFile.__getitem__", "reading files"),
        ("numpy.lib._format_impl.read_array", "reading files"),
        ("zipfile.ZipExtFile.read", "reading files"),
        ("torch.serialization.load", "reading files"),
        ("tqdm.std.tqdm.update", "logging"),
        ("torch.utils.tensorboard.writer.SummaryWriter.add_scalar", "logging"),
        ("sklearn.metrics._ranking.roc_auc_score", "computing metrics"),
        ("matplotlib.figure.Figure.savefig", "drawing"),
        ("PIL.Image.Image.save", "writing images"),
        ("PIL.ImageFile._save", "writing images"),
        ("PIL.Image.open", "reading files"),
        ("PIL.ImageFile.ImageFile.load", "reading files"),
        ("copy.deepcopy", "copying objects"),
        ("subprocess.run", "calling a service or another program"),
        ("torch.nn.modules.linear.Linear.forward", "evaluation"),
        ("torch.utils.data.dataloader._BaseDataLoaderIter.__next__", "evaluation"),
        ("transformers.trainer.Trainer.evaluate", "evaluation"),
    ],
)
def test_a_librarys_function_tells_the_kind(call: str, kind: str) -> None:
    work = kind_of_work(facts(seen(7, 60, call), seen(8, 40)), "other")
    assert work is not None
    assert (work.kind.name, work.part, work.line.line) == (kind, 0.6, 7)


@pytest.mark.parametrize(
    "call",
    [
        "torch.nn.modules.module.Module.state_dict",  # an average of weights
        "torch.nn.modules.module.Module.zero_grad",
        "torch.nn.functional.pad",
        "copyreg.copy",
        "torchmetricsx.f",
        "perf_diagnostics",
    ],
)
def test_other_functions_tell_nothing(call: str) -> None:
    assert kind_of_work(facts(seen(7, 100, call)), "other") is None


def test_an_evaluation_is_known_by_what_called_the_users_own_model() -> None:
    work = kind_of_work(facts(seen(7, 60, via=(MODULE,)), seen(7, 40)), "other")
    assert work is not None
    assert (work.kind.name, work.part) == ("evaluation", 1.0)  # the line's rest is the evaluation's, too


def test_norms_that_are_estimated_for_an_average_are_no_evaluation() -> None:
    calls = ("torch.optim.swa_utils.update_bn", "torch.optim.swa_utils.AveragedModel.forward", MODULE)
    work = kind_of_work(facts(seen(7, 60, via=calls), seen(8, 40)), "other")
    assert work is not None and work.says == "estimating the batch norms' statistics of averaged weights"
    assert "Estimate them once" in work.kind.remedy.says


def test_what_an_evaluation_saves_is_saving() -> None:
    save = "torch.serialization.save"
    work = kind_of_work(facts(seen(7, 60, save, via=("transformers.trainer.Trainer.evaluate",)), seen(8, 40)), "other")
    assert work is not None
    assert work.kind.name == "saving"


EVALUATE = "transformers.trainer.Trainer.evaluate"
KEEP = "transformers.trainer_pt_utils.EvalLoopContainer.add"


@pytest.mark.parametrize(
    ("kept", "kind"),
    [(60, "keeping an evaluation's outputs"), (40, "evaluation"), (51, "keeping an evaluation's outputs")],
)
def test_outputs_that_a_trainer_puts_together_are_told_where_they_take_most(kept: int, kind: str) -> None:
    """What else is evaluated has no half of it alone, but with them."""
    forward = seen(7, 45, EVALUATE, MODULE)
    work = kind_of_work(facts(seen(7, kept, EVALUATE, KEEP), forward, seen(7, 4)), "other")
    assert work is not None and work.kind.name == kind
    assert ("preprocess_logits_for_metrics" in work.kind.remedy.says) is (kept > 50)
    assert work.kind.asks_a_model is (kept < 50)
    told = work.kind.remedy if kept > 50 else work.against_keeping[0]
    assert "preprocess_logits_for_metrics" in told.says
    assert work.says == (kind if kept > 50 else "evaluation, 45 % of it keeping its outputs")
    answer = TimeOutsidePhases().check(facts(seen(7, kept, EVALUATE, KEEP), forward, seen(7, 4)))
    assert isinstance(answer, Finding) and "preprocess_logits_for_metrics" in answer.remedies[0].says
    assert len(answer.remedies) == (1 if kept > 50 else 2)


@pytest.mark.parametrize(("kept", "told"), [(10, False), (20, True)])
def test_what_an_evaluation_keeps_is_told_from_a_fifth_of_it_on(kept: int, told: bool) -> None:
    work = kind_of_work(facts(seen(7, kept, EVALUATE, KEEP), seen(7, 80, EVALUATE, MODULE)), "other")
    assert work is not None and ("keeping its outputs" in work.says) is told and len(work.against_keeping) == told


def test_several_lines_add_up_and_half_of_the_phase_is_needed() -> None:
    save = "torch.serialization.save"
    both = kind_of_work(facts(seen(6, 20, save), seen(7, 31, save), seen(8, 49)), "other")
    assert both is not None
    assert (both.part, both.line.line) == (0.51, 7)
    assert kind_of_work(facts(seen(7, 49, save), seen(8, 51)), "other") is None


def test_a_module_that_prepares_a_batch_evaluates_nothing() -> None:
    assert kind_of_work(facts(seen(7, 100, via=(MODULE,), part="prepare")), "other") is None


def test_without_a_watched_loader_a_loader_outside_is_the_trainings_own() -> None:
    loads = seen(7, 100, "torch.utils.data.dataloader._BaseDataLoaderIter.__next__")
    assert kind_of_work(facts(loads), "other") is not None
    assert kind_of_work(facts(loads, without=("host_data_wait_ns",)), "other") is None


def test_too_few_looks_tell_nothing() -> None:
    assert kind_of_work(facts(seen(7, 19, "copy.deepcopy")), "other") is None


def test_the_rule_names_the_work_and_its_line_and_advises_against_it_alone() -> None:
    answer = TimeOutsidePhases().check(facts(seen(7, 80, "torch.serialization.save"), seen(8, 20)))
    assert isinstance(answer, Finding)
    assert "80 % of that is saving (train.py:7)" in answer.summary
    assert [remedy.says.split()[0] for remedy in answer.remedies] == ["Save"]
    plain = TimeOutsidePhases().check(facts(seen(8, 100)))
    assert isinstance(plain, Finding)
    assert len(plain.remedies) == 3


def test_periodic_work_says_what_it_is() -> None:
    every_tenth = [0.35e9 if step % 10 == 9 else 0.05e9 for step in range(100)]
    trial = trial_of(forward=0.05, other=0.05, data_wait=0.001, columns={"wall_ns": every_tenth})
    result = dataclasses.replace(trial, code=code(seen(7, 100, via=(MODULE,))))
    answer = PeriodicWork().check(TrialFacts.of(result))
    assert isinstance(answer, Finding)
    assert "outside of all phases, mostly evaluation." in answer.summary
    assert [remedy.says.split()[0] for remedy in answer.remedies] == ["Evaluate"]
