"""OPT001: the optimizer's share, and its floor where the memory's speed is known."""

from __future__ import annotations

import pytest

from perf_diagnostics.diagnose.facts.update_facts import BY_HAND
from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.opt001_optimizer_heavy import OptimizerHeavy
from tests.diagnose.answers import ask_trial, changes, clear, found, missing, number

RULE = OptimizerHeavy()
ADAMW = {"optimizer": "AdamW", "optimizer_implementation": "foreach"}


def ask(share, *, floor_s=None, facts=ADAMW, **trial):
    """A step of 1 s with an optimizer of ``share`` s; ``floor_s`` is what 28 bytes for each of 1e9 parameters take."""
    speed = {} if floor_s is None else {"trainable_parameters": 1e9, "memory_bandwidth": 28e9 / floor_s}
    return ask_trial(RULE, optimizer=share, forward=1 - share, noise=0.02, facts=facts, quantities=speed, **trial)


@pytest.mark.parametrize("share", [0.0, 0.075])
def test_up_to_half_the_limit_is_clear(share):
    assert number(clear(ask(share)), "optimizer").value == pytest.approx(100 * share, rel=0.05)


@pytest.mark.parametrize(
    ("share", "severity"), [(0.2, Severity.INFO), (0.4, Severity.WARNING), (0.6, Severity.WARNING)]
)
def test_the_share_is_graded(share, severity):
    finding = found(ask(share))
    assert finding.severity is severity
    assert number(finding, "optimizer a step").value == pytest.approx(1000 * share, rel=0.05)


def test_without_the_memorys_speed_the_gain_is_a_guess():
    finding = found(ask(0.4))
    assert "was not measured" in finding.summary
    assert finding.confidence == 0.5
    # No more of it is sure than of a gain of the least sure family, the input: 20 %.
    assert finding.recoverable.low == pytest.approx(0.2 * 0.4, rel=0.05)
    assert finding.recoverable.high == pytest.approx(0.4, rel=0.05)


def test_with_large_embedding_tables_the_backward_may_go_as_well():
    # Sparse gradients of the tables are no zeros to make: at most all of the backward's 20 % beside the update's 40.
    step = {"optimizer": 0.4, "forward": 0.4, "backward": 0.2, "noise": 0.02}
    tables = found(ask_trial(RULE, facts=ADAMW | {"embedding_rows": 90_000}, **step))
    none = found(ask_trial(RULE, facts=ADAMW, **step))
    assert tables.recoverable.high - none.recoverable.high == pytest.approx(0.2, rel=0.02)
    assert tables.recoverable.low == none.recoverable.low


def test_far_above_the_floor_the_gain_is_the_difference():
    # 0.4 s where memory allows 0.1 s: 0.3 s are to be won, of which 80 % surely; at most 0.4 - 0.86 x 0.1.
    finding = found(ask(0.4, floor_s=0.1))
    assert "4.0 times what the memory's speed allows" in finding.summary
    assert finding.recoverable.high == pytest.approx(0.314, rel=0.02)
    assert finding.recoverable.low == pytest.approx(0.8 * 0.3, rel=0.05)
    assert finding.confidence == 0.7


@pytest.mark.parametrize(("parameters", "most"), [(2e6, 0.4), (2.2e6, 0.314)])
def test_what_fits_into_the_caches_may_be_updated_faster_than_memory_allows(parameters, most):
    """2 million parameters with gradients and two moments are 32 MB, 2.2 million more than 32 MiB."""
    trial = {"optimizer": 0.4, "forward": 0.6, "noise": 0.02, "facts": ADAMW}
    speed = {"trainable_parameters": parameters, "memory_bandwidth": parameters * 28 / 0.1}
    finding = found(ask_trial(RULE, **trial, quantities=speed))
    assert finding.recoverable.high == pytest.approx(most, rel=0.02)
    assert finding.recoverable.low == pytest.approx(0.8 * 0.3, rel=0.05)  # sure is only what memory leaves
    on_device = found(ask_trial(RULE, **trial, quantities=speed, device="cuda:0"))
    assert on_device.recoverable.high == pytest.approx(0.314, rel=0.02)


def test_at_the_floor_nothing_is_to_be_won():
    answer = clear(ask(0.4, floor_s=0.35))
    assert "as little as the memory's speed allows" in answer.summary
    assert number(answer, "least an update can take").value == pytest.approx(350, abs=0.1)


def test_the_floor_of_an_unknown_optimizer_is_unknown():
    assert "was not measured" in found(ask(0.4, floor_s=0.1, facts={"optimizer": "Lion"})).summary
    assert "Torch has no faster way" in found(ask(0.4, floor_s=0.1, facts={"optimizer": "Muon"})).summary


def test_the_implementation_in_use_is_not_proposed():
    now = {"optimizer": "AdamW", "optimizer_implementation": "fused"}
    assert {"optimizer_implementation": "fused"} not in changes(found(ask(0.4, facts=now)))
    assert {"optimizer_implementation": "fused"} in changes(found(ask(0.4)))
    assert {"optimizer_implementation": "foreach"} not in changes(found(ask(0.4)))


@pytest.mark.parametrize(
    ("facts", "tried"),
    [
        ({"optimizer": "LBFGS"}, []),  # seen, and neither foreach nor fused is one of its parameters
        ({"optimizer": "NAdam", "optimizer_implementation": "single"}, ["foreach"]),
        ({"optimizer": "SGD", "optimizer_implementation": "single"}, ["fused", "foreach"]),
        ({}, ["fused", "foreach"]),
    ],
)
def test_only_implementations_that_exist_are_proposed(facts, tried):
    named = [change.get("optimizer_implementation") for change in changes(found(ask(0.4, facts=facts)))]
    assert [name for name in named if name is not None] == tried


@pytest.mark.parametrize(
    ("kind", "now", "severity"),
    [
        ("SparseAdam", None, Severity.INFO),  # torch has one implementation of it
        ("LBFGS", None, Severity.INFO),
        ("AdamW", "fused", Severity.INFO),
        ("NAdam", "foreach", Severity.INFO),  # there is no fused one
        ("NAdam", "single", Severity.WARNING),
        ("AdamW", "foreach", Severity.WARNING),
        ("AdamW", None, Severity.WARNING),  # somebody's own, of torch's name
        ("Lion", None, Severity.WARNING),
        (None, None, Severity.WARNING),
    ],
)
def test_what_torch_has_no_faster_way_for_is_mentioned_only(kind, now, severity):
    facts = {"optimizer": kind, "optimizer_implementation": now}
    finding = found(ask(0.6, facts={name: word for name, word in facts.items() if word is not None}))
    assert finding.severity is severity
    assert (finding.recoverable is None) == (severity is Severity.INFO)


def test_a_fused_update_far_above_its_floor_is_a_warning():
    now = {"optimizer": "AdamW", "optimizer_implementation": "fused"}
    assert found(ask(0.4, floor_s=0.1, facts=now)).severity is Severity.WARNING


def test_a_fused_update_far_above_what_its_tensors_take_elsewhere_is_what_they_take_here():
    # 30,000 tensors at 3.6 us are 0.108 s of 0.4, and memory allows 0.02.
    facts = {"optimizer": "AdamW", "optimizer_tensors": 30_000}
    assert found(ask(0.4, floor_s=0.02, facts=facts | {"optimizer_implementation": "fused"})).severity is Severity.INFO
    assert found(ask(0.4, floor_s=0.02, facts=facts | ADAMW)).severity is Severity.WARNING


def test_accumulation_continues_from_the_setting():
    finding = found(ask(0.4, settings={"accumulation_steps": 3}))
    assert {"accumulation_steps": 6} in changes(finding)


def test_an_unmarked_optimizer_is_not_zero():
    missing(ask(0.4, without=["host_optimizer_ns"]))


def test_many_small_tensors_have_a_floor_of_their_own_on_a_cpu():
    # 0.4 s where memory allows 0.1 s; 50,000 tensors at 3.6 us take a fused update 0.18 s: 0.12 s are to be won,
    # 0.134 at most.
    facts = ADAMW | {"optimizer_tensors": 50_000}
    assert found(ask(0.4, floor_s=0.1, facts=facts)).recoverable.high == pytest.approx(0.134, rel=0.02)
    on_device = found(ask(0.4, floor_s=0.1, facts=facts, device="cuda:0"))  # one kernel for many tensors
    assert on_device.recoverable.high == pytest.approx(0.314, rel=0.02)


def test_a_fused_update_of_many_small_tensors_is_at_their_floor():
    # 110,000 tensors at 3.6 us each are 0.396 of 0.4 s: only fewer tensors would be faster.
    facts = ADAMW | {"optimizer_tensors": 110_000}
    assert "so many tensors allow" in clear(ask(0.4, floor_s=0.01, facts=facts)).summary


def test_a_small_share_is_mentioned_where_most_of_it_is_for_nothing():
    # 10 % of the step, of which memory asks for 1 %.
    finding = found(ask(0.10, floor_s=0.01))
    assert finding.severity is Severity.INFO
    assert finding.recoverable.high == pytest.approx(0.0914, rel=0.03)
    clear(ask(0.10, floor_s=0.04))
    clear(ask(0.10))
    clear(ask(0.05, floor_s=0.005))


@pytest.mark.parametrize(("share", "floor_s", "severity"), [(0.25, 0.01, Severity.WARNING), (0.2, 0.06, Severity.INFO)])
def test_what_is_surely_for_nothing_warns_below_a_third_of_the_step(share, floor_s, severity):
    # 0.24 s above the floor at 25 times of it; 0.14 s at 3.3 times.
    finding = found(ask(share, floor_s=floor_s))
    assert finding.severity is severity
    assert finding.confidence == 0.7


def test_without_a_proved_cause_a_quarter_of_the_step_is_only_mentioned():
    assert found(ask(0.25)).severity is Severity.INFO
    assert found(ask(0.25, floor_s=0.1)).severity is Severity.INFO  # 2.5 times the floor


def test_half_of_the_limit_above_the_floor_is_only_mentioned():
    # 8 % of the step at 100 times the floor: 7.9 % are for nothing.
    finding = found(ask(0.08, floor_s=0.0008))
    assert finding.severity is Severity.INFO
    assert number(finding, "above that, of the step").value == pytest.approx(7.9, rel=0.05)


def test_an_optimizer_that_is_not_torchs_own_is_said_to_be_none():
    own = found(ask(0.4, facts={"optimizer": "MyAdam"}))
    assert own.remedies[0].says.startswith("MyAdam is none of torch's own.")
    assert not any("optimizer_implementation" in change for change in changes(own))
    for kind in ({"optimizer": "LBFGS"}, ADAMW, {"optimizer": "RMSprop", "optimizer_implementation": "single"}):
        assert "torch's own" not in str(found(ask(0.4, facts=kind)).remedies)


@pytest.mark.parametrize("kind", ["AdamW", "RMSprop"])
def test_an_optimizer_of_a_name_of_torchs_in_no_implementation_of_torchs_is_somebodys_own(kind):
    own = found(ask(0.4, facts={"optimizer": kind}))
    assert own.remedies[0].says.startswith(f"{kind} is none of torch's own in spite of its name.")
    assert not any("optimizer_implementation" in change for change in changes(own))


def test_what_others_load_adds_is_not_the_optimizers():
    """0.4 s of wall time in which the thread can have run for a quarter are 0.1 s: no more than memory asks for."""
    crowd = {"process_cpu_s": 20.0, "workers_cpu_s": 0.0, "other_cpu_s": 180.0}
    on_two = ADAMW | {"threads": 1, "cpu_count": 2}
    running = {"thread_cpu_ns": 0.25e9, "data_wait_cpu_ns": 0}
    given = {"trainable_parameters": 1e9, "memory_bandwidth": 28e9 / 0.1}

    def asked(quantities):
        facts = on_two | {"cpu_window_s": 100.0}
        return ask_trial(
            RULE, optimizer=0.4, forward=0.6, noise=0.02, facts=facts, columns=running, quantities=given | quantities
        )

    assert "4.0 times" in found(asked({})).summary
    clear(asked(crowd))


def test_parameters_of_64_bits_have_twice_the_floor():
    # 28 bytes a parameter in float32 are 56 in float64: the floor of 0.1 s is one of 0.2 s.
    wide = {"parameters": 1e9, "parameter_bytes": 8e9, "trainable_parameters": 1e9, "memory_bandwidth": 28e9 / 0.1}
    finding = found(ask_trial(RULE, optimizer=0.4, forward=0.6, facts=ADAMW, quantities=wide))
    assert number(finding, "least an update can take").value == pytest.approx(200, rel=0.01)


def test_of_an_update_by_hand_it_is_said_that_it_is_not_alone_there():
    # 0.4 s between backward and the next batch: how much of that is the update, and could be faster, nobody knows.
    finding = found(ask(0.4, facts={"optimizer": BY_HAND}))
    assert finding.severity is Severity.INFO and finding.recoverable is None
    assert "the update by hand and all else" in finding.summary and "is not known" in finding.summary
    assert "torch.optim" in finding.remedies[0].says and not any(
        "optimizer_implementation" in one.change for one in finding.remedies
    )
