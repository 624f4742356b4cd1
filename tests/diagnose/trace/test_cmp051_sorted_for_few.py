"""CMP051 in traces of the CPU: sorts, and those of which a few are taken directly afterwards."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from perf_diagnostics.diagnose.finding import Cleared, Finding, Severity
from perf_diagnostics.diagnose.not_measured import NotApplicable
from perf_diagnostics.diagnose.trace.rules.cmp051_sorted_for_few import Sorts
from perf_diagnostics.diagnose.trace.sorts import sorts_of
from tests.diagnose.answers import found, number
from tests.diagnose.trace.builder import TraceBuilder, ask, repeated
from tests.diagnose.trace.test_nodes_of_torch import net, recorded
from tests.diagnose.trace.test_on_the_cpu import STEP, plain, trace_of

FEW = "sorts of which a few are taken"


@pytest.mark.parametrize(("until", "told"), [(40, False), (100, True)])
def test_sorts_are_told_and_nothing_of_them_is_sure(until: float, told: bool, tmp_path: Path) -> None:
    facts = trace_of(
        tmp_path, plain("aten::argsort", 0, until), plain("aten::sort", 0, until), plain("aten::mm", 100, 900)
    )
    answer = ask(Sorts(), facts)
    assert answer.evidence[0].value == pytest.approx(until / 10)
    if not told:
        assert isinstance(answer, Cleared)
        return
    assert isinstance(answer, Finding) and answer.severity is Severity.INFO and "topk" in answer.remedies[0].says
    assert "goes into 1 sort." in answer.summary  # argsort calls sort
    assert answer.recoverable is not None
    assert (answer.recoverable.low, answer.recoverable.high) == (0.0, pytest.approx(0.1))


def test_a_sort_now_and_then_is_not_told_of_every_step(tmp_path: Path) -> None:
    starts: list[float] = []

    def fill(builder: TraceBuilder, start: float) -> None:
        starts.append(start)
        begin, end = (0, 900) if len(starts) == 3 else (0, 500)
        builder.operator("aten::sort" if len(starts) == 3 else "aten::mm", start + begin, start + end)

    answer = ask(Sorts(), repeated(STEP, 5, fill, deviceProperties=[]).facts(tmp_path))
    assert isinstance(answer, Finding)
    assert answer.summary.startswith("18 % of each step goes into sorts, on average: some steps have none. How many")


def sort_and_cut(
    until: float,
    count: int,
    *,
    sizes: tuple[int, ...] = (64, 1000),
    then: str = "aten::slice",
    of: tuple[int, ...] = (),
) -> list[tuple[str, float, float, dict[str, object]]]:
    """A sort along the last dimension up to some time of the step, with a copy of its own, and what follows it."""
    last, about = (
        str(len(sizes) - 1),
        {"Input Dims": [list(sizes), [], []], "Input type": ["float", "Scalar", "Scalar"]},
    )
    places = ["0", str(count), "1"] if then == "aten::slice" else ["7"]
    cut = about | {"Input Dims": [list(of or sizes), [], []], "Concrete Inputs": ["", last, *places]}
    return [
        ("aten::sort", 0, until, about | {"Concrete Inputs": ["", last, "False"]}),
        ("aten::copy_", 0, until / 2, {}),
        (then, until + 1, until + 2, cut),
        ("aten::mm", until + 10, 900, {}),
    ]


@pytest.mark.parametrize(
    ("until", "count", "severity"),
    [(80, 10, Severity.INFO), (300, 10, Severity.WARNING), (300, 250, Severity.WARNING), (300, 251, None)],
)
def test_of_sorts_that_are_cut_at_once_the_whole_may_go(
    until: float, count: int, severity: Severity | None, tmp_path: Path
) -> None:
    finding = found(ask(Sorts(), trace_of(tmp_path, *sort_and_cut(until, count))))
    assert number(finding, "sorts").value == pytest.approx(until / 10)  # with the copy that it makes
    assert finding.recoverable is not None
    if severity is None:
        assert finding.severity is Severity.INFO and finding.recoverable.low == 0
        assert "a trace does not tell" in finding.summary
        return
    assert finding.severity is severity and finding.recoverable.low > 0.2 * (1 - (count / 1000) ** 0.5) * until / STEP
    assert number(finding, FEW).value == pytest.approx(until / 10)
    assert (
        number(finding, "numbers that are sorted").value,
        number(finding, "numbers among them that are taken").value,
    ) == (
        1000,
        count,
    )
    assert f"a few are taken directly afterwards ({count} numbers of 1,000)" in finding.summary


def test_a_single_place_is_a_few_and_the_slice_of_something_else_is_none(tmp_path: Path) -> None:
    one = found(ask(Sorts(), trace_of(tmp_path, *sort_and_cut(300, 0, then="aten::select"))))
    assert "(1 number of 1,000)" in one.summary
    other = found(ask(Sorts(), trace_of(tmp_path, *sort_and_cut(300, 10, of=(64, 999)))))
    assert other.severity is Severity.INFO


def test_some_of_the_sorts_are_told_apart(tmp_path: Path) -> None:
    whole = ("aten::sort", 500, 600, {"Input Dims": [[64, 1000], [], []]})
    cut = [one for one in sort_and_cut(300, 10) if one[0] != "aten::mm"]
    finding = found(ask(Sorts(), trace_of(tmp_path, *cut, whole, plain("aten::mm", 610, 900))))
    assert finding.summary.startswith("40 % of each step goes into 2 sorts, 30 % into those of which a few are taken")
    assert number(finding, FEW).value == pytest.approx(30)


def test_on_a_device_sorts_are_not_told(tmp_path: Path) -> None:
    def fill(builder: TraceBuilder, start: float) -> None:
        builder.operator("aten::sort", start, start + 500).kernel(start + 10, start + 20, start + 500)

    assert isinstance(ask(Sorts(), repeated(STEP, 5, fill).facts(tmp_path)), NotApplicable)


X = torch.rand(32, 400)


def first_ten() -> torch.Tensor:
    return X.sort(dim=-1)[0][:, :10]


def last_three_places() -> torch.Tensor:
    return X.argsort(dim=1, descending=True)[:, -3:]


def every_other_of_few() -> torch.Tensor:
    return X.sort(1).values[:, 1:60:2]


def median() -> torch.Tensor:
    return X.sort(1).values[:, 200]


def other_dimension() -> torch.Tensor:
    """All that is sorted of one row."""
    return X.sort(1).values[:2]


def divided() -> torch.Tensor:
    """As who draws a part for one thing, and the rest for another, by chance."""
    order = X[0].argsort()
    return order[:40].sum() + order[40:].sum()


def goes_on_whole() -> torch.Tensor:
    return X.sort(1).values.cumsum(1)[:, :10]


def rank_of_each() -> torch.Tensor:
    """The first ones for one metric, and the order of all for another."""
    order = X.argsort(1)
    return order[:, :10].sum() + (order == 3).nonzero()[:, 1].sum()


def order_of_an_order() -> torch.Tensor:
    shuffled = X.argsort(1)
    back = shuffled.argsort(1)
    return shuffled[:, :20].sum() + back.sum()


@pytest.mark.parametrize(
    ("one", "told"),
    [
        (rank_of_each, (0, 0)),
        (order_of_an_order, (0, 0)),
        (first_ten, (400, 10)),
        (last_three_places, (400, 3)),
        (every_other_of_few, (400, 30)),
        (median, (400, 1)),
        (other_dimension, (0, 0)),
        (divided, (0, 0)),
        (goes_on_whole, (0, 0)),
    ],
)
def test_what_torch_takes_of_a_sort(one: Callable[[], torch.Tensor], told: tuple[int, int], tmp_path: Path) -> None:
    model, given = net(2), torch.rand(4, 128)

    def step() -> None:
        one()
        model(given).sum().backward()

    sorts = sorts_of(recorded(step, tmp_path))
    assert (sorts.size, sorts.count) == told
    assert len(sorts.rows) == (6 if one is order_of_an_order else 3)
