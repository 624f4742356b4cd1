"""bfloat16 is advised, and tried, only on devices that have units for it: by compute capability, else by the sheet."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from perf_diagnostics.diagnose.engine import diagnose
from perf_diagnostics.diagnose.facts.facts import NotMeasured, TrialFacts
from perf_diagnostics.diagnose.finding import Diagnosis, Finding, Remedy
from perf_diagnostics.diagnose.hardware.sixteen_bits import half_format
from perf_diagnostics.diagnose.rule_parts.products import in_16_bits, without_scaler
from perf_diagnostics.diagnose.rules import RULES
from perf_diagnostics.diagnose.tried.candidates import candidates
from perf_diagnostics.records import Environment, Outcome, TrialResult
from perf_diagnostics.testing import run_of, trial_of

RTX_2080, RTX_3080, T4, L4 = "NVIDIA GeForce RTX 2080 Ti", "NVIDIA GeForce RTX 3080 Ti", "Tesla T4", "NVIDIA L4"


def on(name: str | None, capability: str | None, *, device: str = "cuda:0", **trial: Any) -> TrialResult:
    """A trial on a device of this name and compute capability, with another one beside it that differs."""
    facts = {} if name is None else {"device_name": name}
    result = trial_of(device=device, **({"facts": facts} | trial))
    if capability is None:
        return result
    here = {"name": "cuda:0" if device == "cuda" else device, "capability": capability}
    other = {"name": "cuda:7", "capability": "9.0" if capability < "8" else "7.5"}
    return dataclasses.replace(result, environment=Environment(devices=(other, here)))


def precisions(remedies: tuple[Remedy, ...]) -> set[object]:
    return {remedy.change["precision"] for remedy in remedies if "precision" in remedy.change}


@pytest.mark.parametrize(
    ("name", "capability", "expected"),
    [
        (RTX_2080, "7.5", "float16"),  # no sheet: the number alone decides
        (T4, "7.5", "float16"),
        ("Tesla V100-SXM2-16GB", "7.0", "float16"),
        (RTX_3080, "8.6", "bfloat16"),
        (None, "8.0", "bfloat16"),
        (L4, "8.9", "bfloat16"),
        ("a device of tomorrow", "12.0", "bfloat16"),  # two digits: not before 8.0
        (T4, None, "float16"),
        (L4, None, "bfloat16"),
        (RTX_2080, None, None),
        (None, None, None),
        ("AMD Instinct MI300X", "gfx942:sramecc+:xnack-", "bfloat16"),
    ],
)
def test_the_format_follows_the_compute_capability_then_the_sheet(
    name: str | None, capability: str | None, expected: str | None
) -> None:
    assert half_format(on(name, capability)) == expected
    if capability is not None:
        assert half_format(on(name, capability, device="cuda")) == expected  # the first device


def test_other_kinds_of_devices_are_not_held_to_numbers_of_cuda() -> None:
    assert half_format(on("Intel Data Center GPU Max 1550", None, device="xpu:0")) == "bfloat16"


@pytest.mark.parametrize("device", [(RTX_2080, "7.5"), (T4, "7.5"), (RTX_2080, None)])
def test_advice_that_rules_share_names_bfloat16_only_where_there_are_units(device: tuple[str, str | None]) -> None:
    facts = TrialFacts.of(on(*device))
    assert "bfloat16" not in precisions(in_16_bits(facts))
    assert without_scaler(facts) == ()


@pytest.mark.parametrize("device", [(RTX_3080, "8.6"), (L4, None)])
def test_with_units_bfloat16_is_what_they_name(device: tuple[str, str | None]) -> None:
    facts = TrialFacts.of(on(*device))
    assert precisions(in_16_bits(facts)) == precisions(without_scaler(facts)) == {"bfloat16"}


def test_where_nobody_knows_both_formats_are_named_and_none_is_tried() -> None:
    (remedy,) = in_16_bits(TrialFacts.of(on(RTX_2080, None)))
    assert "bfloat16 from compute capability 8.0 on, float16 with gradient scaling below" in remedy.says
    assert not remedy.change


def full(device: tuple[str, str | None]) -> TrialResult:
    """Computes throughout, in float32, in nearly all of the device's memory."""
    quantities = {
        "device_memory_total": 10e9,
        "device_memory_peak_reserved": 9.9e9,
        "device_memory_peak_allocated": 9.8e9,
        "flops_matmul_share": 0.9,
        "traffic_bytes_per_step": 0.8e12,
        "flops_per_step": 1.6e12,
        "memory_bandwidth": 1e12,
        "matmul_ceiling": 20e12,
    }
    return on(*device, forward=0.4, backward=0.6, noise=0.01, quantities=quantities)


def advised(device: tuple[str, str | None]) -> set[object]:
    """The precisions that any rule advises, for a full device and one that a larger batch did not fit into."""
    trial = full(device)
    too_large = dataclasses.replace(
        trial,
        trial=dataclasses.replace(trial.trial, settings=trial.trial.settings.replace(batch_size=16)),
        outcome=Outcome.OUT_OF_MEMORY_DEVICE,
        steps=(),
    )
    found = diagnose(run_of(trial, too_large)).findings
    assert {"MEM001", "EXP002", "CMP002"} <= {finding.code for finding in found}
    return set().union(*(precisions(finding.remedies) for finding in found))


def test_of_all_rules_none_advises_bfloat16_on_an_rtx_20_and_they_do_on_an_rtx_30() -> None:
    assert advised((RTX_2080, "7.5")) == advised((T4, "7.5")) == {"float16"}
    assert advised((RTX_3080, "8.6")) == {"bfloat16"}


@pytest.mark.parametrize(("device", "tried"), [((RTX_2080, "7.5"), False), ((RTX_3080, "8.6"), True)])
def test_what_is_tried_is_held_to_the_same_whoever_advised_it(device: tuple[str, str | None], tried: bool) -> None:
    run = run_of(full(device))
    (finding,) = (one for one in diagnose(run).findings if one.code == "CMP002")
    theirs = dataclasses.replace(finding, remedies=(Remedy("bfloat16", {"precision": "bfloat16"}),))
    found = candidates(run, Diagnosis(verdict=None, findings=(theirs,)), only=("CMP002",))
    assert ({"precision": "bfloat16"} in [one.change for one in found]) is tried


def test_every_rule_that_can_look_at_a_scaler_skipping_updates_keeps_a_turing_in_float16() -> None:
    """In float16 already, with a scaler that halves: the way out is not bfloat16."""
    facts = {"loss_scale_before": 65536.0, "loss_scale_after": 1.0, "device_name": RTX_2080}
    for capability, expected in (("7.5", set()), ("8.6", {"bfloat16"})):
        trial = on(RTX_2080, capability, facts=facts, settings={"precision": "float16"})
        seen: set[object] = set()
        for rule in RULES:
            if rule.looks_at != "trial":
                continue
            try:
                reply = rule.check(TrialFacts.of(trial))
            except NotMeasured:
                continue
            seen |= precisions(reply.remedies) if isinstance(reply, Finding) else set()
        assert seen == expected
