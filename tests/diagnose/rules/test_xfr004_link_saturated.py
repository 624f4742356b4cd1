"""XFR004: a link against what its own generation and width can carry."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from perf_diagnostics.diagnose import diagnose
from perf_diagnostics.diagnose.facts.facts import NotApplicable, TrialFacts
from perf_diagnostics.diagnose.facts.link_facts import LANE_BYTES_PER_S, Link
from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.not_measured import NotMeasured
from perf_diagnostics.diagnose.rules.xfr004_link_saturated import LinkSaturated
from perf_diagnostics.records import ALL_PHASES, Environment
from perf_diagnostics.testing import run_of, trial_of
from tests.diagnose.answers import clear, found, missing, number
from tests.diagnose.rules.boards import BEGAN_S, INSIDE, STEPS, sampled

RULE = LinkSaturated()
USED = "of what the link can carry"


def measured(
    *,
    generation=4,
    width=16,
    best=(4, 16),
    used=None,
    received=None,
    copies=0.2,
    noise=0.01,
    without=(),
    device="cuda:0",
    series=None,
):
    """Steps of 0.7 s on such a link: ``used`` of what it carries by the bytes copied, ``received`` by the driver.

    ``received`` is in bytes/s; ``copies`` is the share of the step that copies take.
    """
    carries = Link(generation, width, None, None).bytes_per_s
    quantities = {"steps_began_s": BEGAN_S}
    if used is not None:
        quantities |= {"copies_in_transfer_bytes": used * carries * 0.7 * copies}
    links = [sampled("gpu_pcie_generation", generation, outside=1), sampled("gpu_pcie_width", width, outside=width)]
    if received is not None:
        links.append(sampled("gpu_pcie_received", received))
    result = trial_of(
        device=device,
        transfer=0.7 * copies,
        forward=0.7 * (1 - copies),
        noise=noise,
        columns=STEPS,
        quantities=quantities,
        series=links if series is None else series,
        without=without,
    )
    about = {"name": device, "pcie_generation_max": best[0], "pcie_width_max": best[1]}
    return dataclasses.replace(result, environment=Environment(devices=(about,)))


def ask(**trial):
    """The rule's reply about ``measured(...)``."""
    try:
        return RULE.check(TrialFacts.of(measured(**trial)))
    except NotMeasured as reply:
        return reply


def test_lanes_carry_what_the_specification_says():
    per_lane = {generation: round(rate / 1e9, 3) for generation, rate in LANE_BYTES_PER_S.items()}
    assert per_lane == {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.562}
    assert Link(3, 16, None, None).bytes_per_s == pytest.approx(0.985e9 * 16 * 0.85, rel=1e-3)


@pytest.mark.parametrize(("used", "severity"), [(0.0001, None), (0.77, None), (0.83, Severity.WARNING)])
def test_the_bytes_of_a_step_over_the_time_of_its_copies(used, severity):
    answer = ask(used=used)
    assert number(answer, USED).value == pytest.approx(100 * used, rel=0.01)
    if severity is None:
        clear(answer)
    else:
        finding = found(answer)
        assert finding.severity is severity
        assert finding.claims == {"transfer": pytest.approx(0.2, rel=0.05)}
        assert finding.recoverable.high == pytest.approx(0.2, rel=0.05)


def test_20_gb_s_are_too_many_for_one_link_and_few_for_another():
    """The same rate, judged by the link: an absolute limit is wrong for either."""
    rate = 20e9
    third, fifth = (Link(generation, 16, None, None).bytes_per_s for generation in (3, 5))
    assert isinstance(missing(ask(generation=3, best=(3, 16), used=rate / third)), NotMeasured)  # 1.5 times the link
    clear(ask(generation=5, best=(5, 16), used=rate / fifth))
    found(ask(generation=4, best=(4, 16), used=rate / Link(4, 16, None, None).bytes_per_s + 0.1))


def test_a_full_link_beside_a_long_computation_is_an_info():
    assert found(ask(used=0.9, copies=0.03)).severity is Severity.INFO


def test_a_full_link_explains_the_time_in_copies():
    findings = {finding.code: finding for finding in diagnose(run_of(measured(used=0.9))).findings}
    assert findings["XFR004"].explains == ("XFR001",)


def test_an_interval_across_the_limit_is_an_info():
    """Copies that take 0.1 to 3 times as long from step to step: the rate is not known to a few percent."""
    finding = found(ask(used=0.82, noise=0.6))
    assert finding.severity is Severity.INFO and finding.confidence < 0.5


def test_without_the_bytes_the_drivers_busiest_samples_tell_and_are_never_sure():
    carries = Link(4, 16, None, None).bytes_per_s
    busy = np.where(np.arange(int(INSIDE.sum())) % 5 == 0, 0.9 * carries, 0.0)  # a fifth of the samples hit a copy
    finding = found(ask(received=busy))
    assert finding.severity is Severity.INFO
    assert number(finding, USED).value == pytest.approx(90)
    assert number(clear(ask(received=0.0)), USED).value == 0  # a measured zero


@pytest.mark.parametrize(("generation", "width"), [(3, 16), (4, 8)])
def test_a_link_below_its_best_is_mentioned(generation, width):
    finding = found(ask(generation=generation, width=width, used=0.1))
    assert finding.severity is Severity.INFO
    assert f"generation {generation} x{width}" in finding.summary and "generation 4 x16" in finding.summary


def test_a_reduced_link_is_mentioned_even_if_nobody_counted_bytes():
    assert found(ask(width=8)).severity is Severity.INFO


def test_a_link_that_only_sleeps_between_trials_is_not_reduced():
    """Outside of the steps the samples say generation 1: an idle board saves power."""
    clear(ask(used=0.1))


def test_what_the_machine_can_do_is_not_needed_to_judge_the_link():
    clear(ask(used=0.1, best=(None, None)))
    found(ask(used=0.9, best=(None, None)))


def test_without_bytes_and_samples_it_is_not_measured():
    assert missing(ask()).signal == "gpu_pcie_received"


@pytest.mark.parametrize("without", [[f"device_{phase}_ns" for phase in ALL_PHASES], ["copies_in_transfer_bytes"]])
def test_without_device_times_or_bytes_the_samples_are_asked(without):
    assert missing(ask(used=0.9, without=without)).signal == "gpu_pcie_received"


def test_without_samples_of_the_link_there_is_nothing_to_judge_by():
    assert missing(ask(used=0.9, series=[])).signal == "gpu_pcie_generation"


def test_a_trial_on_the_cpu_has_no_link():
    assert isinstance(missing(ask(device="cpu")), NotApplicable)


def test_an_unknown_generation_is_not_guessed():
    series = [sampled("gpu_pcie_generation", 9), sampled("gpu_pcie_width", 16)]
    assert "nothing is known" in missing(ask(used=0.5, series=series)).why
