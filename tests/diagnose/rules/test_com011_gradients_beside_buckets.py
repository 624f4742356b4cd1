"""COM011: gradients beside DDP's buckets, gradients that are the buckets' own memory, and nobody looked."""

from __future__ import annotations

import pytest

from perf_diagnostics.diagnose.facts.facts import NotApplicable, TrialFacts
from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.com011_gradients_beside_buckets import GradientsBesideBuckets
from perf_diagnostics.testing import trial_of
from tests.diagnose.answers import changes, clear, found, missing, number
from tests.diagnose.rules.rank_trials import of_ranks, timed

RULE = GradientsBesideBuckets()
BESIDE = "gradients beside the buckets"


def ask(*, columns: dict[str, object] | None = None, **facts: object):
    of_trial = {"quantities": {"device_memory_total": 80e9}, "device": "cuda:0"}
    result = of_ranks(columns or {}, columns or {}, facts=facts, **of_trial)
    return RULE.check(TrialFacts.of(result))


def test_gradients_of_their_own_memory_are_mentioned_and_no_gain_is_promised() -> None:
    finding = found(ask(ddp_gradient_as_bucket_view=False, ddp_gradients_beside_bytes=2_000_000_000))
    assert finding.severity is Severity.INFO and finding.recoverable is None and changes(finding) == []
    assert finding.summary.startswith("2000 MB of gradients lie beside")
    assert number(finding, BESIDE).value == pytest.approx(2000) and number(finding, BESIDE).limit == pytest.approx(10)
    assert number(finding, BESIDE).source == "the gradients' memory after a step"
    assert number(finding, "… of the device's memory").value == pytest.approx(2.5)  # 2 of 80 GB
    assert "gradient_as_bucket_view=True" in finding.remedies[0].says
    assert "the copy into the buckets stays" in finding.remedies[0].says


def test_where_the_loop_had_let_go_of_them_the_parameters_size_stands_for_it() -> None:
    finding = found(ask(ddp_gradient_as_bucket_view=False, ddp_gradient_bytes=30_000_000))
    assert number(finding, BESIDE).value == pytest.approx(30)
    assert number(finding, BESIDE).source == "DDP's log: the parameters' size"


def test_what_the_exchange_left_exposed_is_told_beside_it() -> None:
    # 30 ms of exchange of which 3 are hidden, in steps of 100 ms; the copy lies within.
    columns = timed(0.03, 0.003, noise=0.0)
    finding = found(ask(columns=columns, ddp_gradient_as_bucket_view=False, ddp_gradients_beside_bytes=30_000_000))
    assert number(finding, "exposed communication, the copy included").value == pytest.approx(27.0, abs=0.1)


def test_views_and_small_models_are_clear() -> None:
    views = clear(ask(ddp_gradient_as_bucket_view=True, ddp_gradient_bytes=2_000_000_000))
    assert "views of the buckets" in views.summary
    small = clear(ask(ddp_gradient_as_bucket_view=False, ddp_gradients_beside_bytes=9_999_999))
    assert "hardly anything" in small.summary
    found(ask(ddp_gradient_as_bucket_view=False, ddp_gradients_beside_bytes=10_000_000))


def test_nobody_looked_is_not_views() -> None:
    assert "options were not recorded" in str(missing(_reply()))
    assert "how large" in str(missing(_reply(ddp_gradient_as_bucket_view=False)))
    with pytest.raises(NotApplicable, match="not wrapped"):
        RULE.check(TrialFacts.of(trial_of(facts={"matmul_precision": "highest"})))


def _reply(**facts: object):
    from perf_diagnostics.diagnose.facts.facts import NotMeasured

    try:
        return ask(**facts)
    except NotMeasured as reason:
        return reason
