"""When a step ends in a loop with several optimizers."""

from __future__ import annotations

from perf_diagnostics.integrations.steps.cycle import LEAST_PATIENCE, Cycle


def ends(cycle: Cycle, order: str) -> str:
    """The order with a bar behind each optimizer whose step ended the loop's."""
    return "".join(name + ("|" if cycle.stepped(ord(name)) else "") for name in order)


def test_one_optimizer_ends_each_step() -> None:
    assert ends(Cycle(), "aaa") == "a|a|a|"


def test_known_optimizers_wait_for_each_other() -> None:
    assert ends(Cycle([ord("a"), ord("b")]), "abab") == "ab|ab|"


def test_an_unknown_one_is_learned_in_its_first_step() -> None:
    assert ends(Cycle(), "ababab") == "a|b|ab|ab|"


def test_a_critic_that_steps_five_times_does_not_end_a_step() -> None:
    assert ends(Cycle(), "cccccg" * 3) == "c|c|c|c|c|g|" + "cccccg|" * 2


def test_one_that_is_no_longer_used_is_forgotten() -> None:
    cycle = Cycle()
    ends(cycle, "abab")
    stage = ends(cycle, "b" * (LEAST_PATIENCE + 4))
    assert stage == "b" * (LEAST_PATIENCE + 1) + "|b|b|b|"


def test_a_training_after_another_needs_no_loader_to_be_told_from_it() -> None:
    cycle = Cycle()
    assert ends(cycle, "aaaa" + "bbbb" + "cdcdcd") == "a|a|a|a|" + "b|b|b|b|" + "c|d|cd|cd|"
    # two that come after one, and a generator that steps twice, soon find their cycle
    assert ends(Cycle(), "ccgg" * 4) == "c|c|g|g|" + "c|cg|g" + "c|cg|g" + "c|cg|g"


def test_a_new_pair_after_an_old_one() -> None:
    cycle = Cycle()
    assert ends(cycle, "ab") == "a|b|"
    assert ends(cycle, "c") == "c|"
