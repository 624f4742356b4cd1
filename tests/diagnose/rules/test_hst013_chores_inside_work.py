"""HST013: metrics, text, copies, logs and files inside of forward, backward or the optimizer."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from perf_diagnostics.diagnose.engine import diagnose
from perf_diagnostics.diagnose.facts.facts import TrialFacts
from perf_diagnostics.diagnose.finding import Cleared, Finding, Severity
from perf_diagnostics.diagnose.not_measured import NotApplicable, NotMeasured
from perf_diagnostics.diagnose.rules.hst013_chores_inside_work import ChoresInsideWork
from perf_diagnostics.diagnose.verdict_place import verdict_place
from perf_diagnostics.records import CodePath, CodePlace, CodeSamples, TrialResult
from perf_diagnostics.testing import run_of, trial_of

RULE = ChoresInsideWork()
LOOP = CodePlace(file="train.py", line=20, function="main", text="loss = model(x)")
WORK = CodePlace(file="net.py", line=11, function="Net.forward", text="h = self.b(h)")
SAYS = CodePlace(file="net.py", line=10, function="Net.forward", text='log.debug(f"hidden {h}")')
PRINTS = ("torch._tensor.Tensor.__format__", "torch._tensor.Tensor.__repr__", "torch._tensor_str._str")
CURVE = ("torchmetrics.classification.auroc.BinaryAUROC.compute", "torchmetrics.functional.classification.roc._roc")
LAYER = ("torch.nn.modules.linear.Linear.forward",)


def seen(there: int, whole: int = 400, *, phase: str = "forward", calls: tuple[str, ...] = PRINTS, late: int = 0,
         roles: tuple[str, ...] = (), **trial) -> TrialResult:  # fmt: skip
    """Half of a step is forward, the other half backward; of its looks so many saw what the line calls."""
    paths = (
        CodePath(phase=phase, places=(0, 2), looks=there - late, calls=calls),
        CodePath(phase=phase, places=(0, 2), looks=late, late=True, calls=calls),
        CodePath(phase=phase, places=(0, 1), looks=whole - there, calls=LAYER),
    )
    code = CodeSamples(
        places=(LOOP, WORK, SAYS), paths=paths, interval_s=0.025, rare_interval_s=0.1, cpu_s=0.0, roles=roles
    )
    return dataclasses.replace(trial_of(forward=0.5, backward=0.5, noise=0.02, **trial), code=code)


def answer(trial: TrialResult) -> Finding | Cleared:
    return RULE.check(TrialFacts.of(trial))


def test_text_of_tensors_is_told_with_its_share_and_its_line() -> None:
    finding = answer(seen(160))
    assert isinstance(finding, Finding) and finding.severity is Severity.WARNING
    assert finding.claims == {"forward": pytest.approx(0.2, abs=0.005)}  # 160 of 400 looks at a half
    assert "mostly turning tensors into text" in finding.summary
    assert "isEnabledFor" in finding.remedies[0].says
    # Wilson's ends of 160 of 400: 0.353 and 0.449; of what is told 0.3 is sure.
    assert finding.recoverable is not None
    assert finding.recoverable.high == pytest.approx(0.5 * 0.4488, abs=0.005)
    assert finding.recoverable.low == pytest.approx(0.3 * 0.5 * 0.3531, abs=0.005)
    assert [line.place for line in finding.lines] == [SAYS]


def test_the_verdict_names_the_line_that_asks_for_it_and_not_the_one_with_most_work() -> None:
    diagnosis = diagnose(run_of(seen(160)))
    assert diagnosis.verdict is not None and diagnosis.verdict.code == "HST013"
    assert "net.py:10 in Net.forward" in verdict_place(diagnosis)


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        ("copy.deepcopy", "copying objects"),
        ("torch.distributions.constraints._Real.check", "checking arguments"),
        ("torch.distributions.distribution.Distribution.__init__", "checking arguments"),
        ("torch.serialization.save", "saving"),
        ("logging.Logger.info", "logging"),
        ("matplotlib.pyplot.savefig", "drawing"),
        ("lightning.pytorch.core.module.LightningModule.log", "logging"),
        ("pytorch_lightning.core.module.LightningModule.log_dict", "logging"),
    ],
)
def test_other_chores(call: str, kind: str) -> None:
    finding = answer(seen(160, calls=(call,)))
    assert isinstance(finding, Finding) and f"mostly {kind}." in finding.summary


@pytest.mark.parametrize("calls", [LAYER, (), ("scipy.optimize.linear_sum_assignment",), ("socket.socket.recv",)])
def test_what_a_loss_may_be_computed_with_is_none(calls: tuple[str, ...]) -> None:
    quiet = answer(seen(160, calls=calls))
    assert isinstance(quiet, Cleared) and quiet.summary.startswith("0 % of a step")


#: Of the three lines: the call of the model, its own line, and the one that nothing reads.
BESIDE = ("method", "method", "unread")


@pytest.mark.parametrize(
    "calls",
    [
        CURVE,
        ("sklearn.metrics._ranking.roc_auc_score",),
        ("scipy.stats._stats_py.spearmanr", "copy.deepcopy"),
        ("torchmetrics.metric.Metric.forward", "torchmetrics.classification.auroc.BinaryAUROC.compute"),
    ],
)
def test_metrics_that_no_loss_depends_on_are_told_with_their_line(calls: tuple[str, ...]) -> None:
    finding = answer(seen(160, calls=calls, roles=BESIDE))
    assert isinstance(finding, Finding) and finding.severity is Severity.WARNING
    assert "mostly computing metrics." in finding.summary
    assert finding.claims == {"forward": pytest.approx(0.2, abs=0.005)}
    assert "update() in each step" in finding.remedies[0].says
    assert [line.place for line in finding.lines] == [SAYS]


@pytest.mark.parametrize(
    ("calls", "roles"),
    [
        (CURVE, ("method", "method", "method")),  # loss = 1 - metric(x, y)
        (CURVE, ("training", "method", "preparation")),  # a reward, a weight of the loss
        (CURVE, ("method", "method", "")),  # a function of the user's, whose caller the loss depends on
        (CURVE, ()),  # nobody read the program's text
        (("torchmetrics.metric.Metric.forward", "torchmetrics.image.ssim.SSIM.update"), BESIDE),
        (("torcheval.metrics.classification.auroc.BinaryAUROC.update",), BESIDE),
    ],
)
def test_metrics_that_are_trained_on_or_only_take_in_a_batch_are_none(
    calls: tuple[str, ...], roles: tuple[str, ...]
) -> None:
    quiet = answer(seen(160, calls=calls, roles=roles))
    assert isinstance(quiet, Cleared) and quiet.summary.startswith("0 % of a step")


def test_a_metric_of_the_users_own_that_takes_in_a_batch_is_none() -> None:
    trial = seen(160, calls=(), roles=BESIDE)
    assert trial.code is not None
    paths = tuple(
        dataclasses.replace(path, via=("torchmetrics.metric.Metric._wrap_update",)) if path.places == (0, 2) else path
        for path in trial.code.paths
    )
    for function, found in (("Gap.update", Cleared), ("Gap.compute", Finding)):
        places = (LOOP, WORK, dataclasses.replace(SAYS, function=function))
        code = dataclasses.replace(trial.code, paths=paths, places=places)
        assert isinstance(answer(dataclasses.replace(trial, code=code)), found)


def test_where_the_line_does_not_tell_its_callers_do() -> None:
    finding = answer(seen(160, calls=CURVE, roles=("unread", "method", "")))
    assert isinstance(finding, Finding) and "computing metrics" in finding.summary


def test_metrics_under_a_tenth_of_the_step_are_no_warning() -> None:
    little = answer(seen(80, 600, calls=CURVE, roles=BESIDE))  # 6.7 % of a step
    assert isinstance(little, Finding) and little.severity is Severity.INFO
    assert isinstance(answer(seen(40, 600, calls=CURVE, roles=BESIDE)), Cleared)  # 3.3 %


def test_what_is_computed_once_a_pass_remains() -> None:
    """A pass of 8 batches: its end takes two mean steps' metrics, a quarter of what all of them take."""
    long, short = (
        answer(seen(160, calls=CURVE, roles=BESIDE, facts={"batches_a_pass": batches})) for batches in (8000, 8)
    )
    text = answer(seen(160, roles=BESIDE, facts={"batches_a_pass": 8}))
    assert isinstance(long, Finding) and isinstance(short, Finding) and isinstance(text, Finding)
    assert long.recoverable is not None and short.recoverable is not None and text.recoverable is not None
    assert short.recoverable.high == pytest.approx(0.75 * long.recoverable.high, rel=0.001)
    assert text.recoverable.high == pytest.approx(long.recoverable.high, rel=0.001)


def test_what_grows_within_a_pass_is_said_to() -> None:
    trial = seen(160, calls=CURVE, roles=BESIDE)
    steps = np.arange(100)
    forward, backward = 0.25 + 0.5 * (steps % 20) / 20, np.full(100, 0.5)
    table = {
        "epoch": steps // 20,
        "host_forward_ns": forward * 1e9,
        "host_backward_ns": backward * 1e9,
        "wall_ns": (forward + backward) * 1e9,
    }
    grown = answer(dataclasses.replace(trial_of(forward=0.5, backward=0.5, columns=table), code=trial.code))
    assert isinstance(grown, Finding)
    assert "mostly computing metrics. The time in the forward pass grows within a pass" in grown.summary
    steady = answer(dataclasses.replace(trial_of(forward=0.5, columns={"epoch": steps // 20}), code=trial.code))
    assert isinstance(steady, Finding) and "grows" not in steady.summary


def test_little_is_mentioned_and_less_is_clear() -> None:
    little = answer(seen(80, 600))  # 6.7 % of a step, from 5.4 % on
    assert isinstance(little, Finding) and little.severity is Severity.INFO
    assert isinstance(answer(seen(10)), Cleared)


def test_looks_that_came_late_make_it_less_sure() -> None:
    """They may have come to the line only in the moment between: the least is without them."""
    sure, late = answer(seen(160)), answer(seen(160, late=120))
    assert isinstance(sure, Finding) and isinstance(late, Finding)
    assert late.severity is Severity.INFO and sure.recoverable is not None and late.recoverable is not None
    assert late.recoverable.low < 0.4 * sure.recoverable.low


def test_what_lies_outside_of_the_phases_is_none_of_it() -> None:
    with pytest.raises(NotMeasured, match="too seldom"):
        answer(seen(160, phase="other"))


def test_it_is_not_asked_on_a_device_nor_without_looks() -> None:
    with pytest.raises(NotApplicable, match="wait for what is computed"):
        answer(seen(160, device="cuda:0"))
    with pytest.raises(NotMeasured, match="was not looked at"):
        answer(trial_of(forward=0.5))
    with pytest.raises(NotMeasured, match="too seldom"):
        answer(seen(5, 10))
