"""DistributedDataParallel's options in real pairs of ranks under gloo, and what COM008 and COM011 say of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perf_diagnostics.diagnose.facts.facts import TrialFacts
from perf_diagnostics.diagnose.rules.com008_ddp_options import DdpOptions
from perf_diagnostics.diagnose.rules.com011_gradients_beside_buckets import GradientsBesideBuckets
from perf_diagnostics.records import TrialResult
from perf_diagnostics.store.find import list_runs
from tests.diagnose.answers import clear, found, number
from tests.integrations.test_ranks import COMMAND, SCRIPTS, started_warm
from tests.planted.warm import WarmStart

pytestmark = pytest.mark.slow

#: Four layers and two heads, each of 840 x 840 and as many biases, in float32.
LAYER = (840 * 840 + 840) * 4


def trained(tmp_path: Path, warm: WarmStart, heads: str = "one", **options: bool) -> TrialResult:
    results = tmp_path / "results"
    words = [str(SCRIPTS / "ranks_options.py"), str(tmp_path / "store"), json.dumps(options), heads]
    started_warm([*COMMAND, str(results), *words], warm)
    (folder,) = list_runs(results)
    (result,) = folder.read().results
    assert len(result.steps) == 2 and result.facts["ddp_gradient_bytes"] == 6 * LAYER
    return result


def test_gradients_beside_the_buckets_and_an_undeclared_static_graph_are_seen(tmp_path: Path, warm: WarmStart) -> None:
    result = trained(tmp_path, warm, find_unused_parameters=True)
    assert result.facts["ddp_gradients_beside_bytes"] == 5 * LAYER  # measured: the unused head has none
    beside = found(GradientsBesideBuckets().check(TrialFacts.of(result)))
    assert number(beside, "gradients beside the buckets").value == pytest.approx(5 * LAYER / 1e6)
    assert number(beside, "gradients beside the buckets").source == "the gradients' memory after a step"
    same = found(DdpOptions().check(TrialFacts.of(result)))
    assert "2.83 MB of them, the same in each so far" in same.summary  # 840 x 841 x 4
    assert "static_graph=True" in same.remedies[0].says


def test_views_and_a_graph_that_changes_are_clear(tmp_path: Path, warm: WarmStart) -> None:
    result = trained(tmp_path, warm, "turns", find_unused_parameters=True, gradient_as_bucket_view=True)
    assert "ddp_gradients_beside_bytes" not in result.facts
    clear(GradientsBesideBuckets().check(TrialFacts.of(result)))
    assert clear(DdpOptions().check(TrialFacts.of(result))).summary.endswith("not the same in all steps")


def test_a_declared_static_graph_is_clear(tmp_path: Path, warm: WarmStart) -> None:
    result = trained(tmp_path, warm, find_unused_parameters=True, static_graph=True)
    assert result.facts["ddp_static_graph"] is True and result.facts["ddp_buckets_rebuilt"] is True
    assert "first step alone" in clear(DdpOptions().check(TrialFacts.of(result))).summary
