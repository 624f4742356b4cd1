"""OPT007: what a dense gradient of an embedding table costs, by the rows that a step touched."""

from __future__ import annotations

import pytest

from perf_diagnostics.diagnose.facts.facts import NotApplicable
from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.opt007_dense_embedding_gradients import DenseEmbeddingGradients
from tests.diagnose.answers import ask_trial, changes, clear, found, missing, number

RULE = DenseEmbeddingGradients()


def ask(touched: int = 20_000, *, rows: int = 200_000, optimizer_s: float = 0.04, **facts: object):
    """Steps of 0.1 s; a table of 8 million of the 10 million numbers that Adam updates."""
    known = {
        "embedding_gradient_of": "users.weight",
        "embedding_gradient_numbers": 8_000_000,
        "embedding_rows": rows,
        "embedding_rows_touched": touched,
        "gradients_used": 10_000_000,
        "sparse_gradients": 0,
        "optimizer": "Adam",
        "optimizer_implementation": "foreach",
    }
    given = {name: value for name, value in (known | facts).items() if value is not None}
    return ask_trial(RULE, forward=0.09 - optimizer_s, backward=0.01, optimizer=optimizer_s, facts=given)


def test_the_update_of_rows_that_were_not_touched_is_for_nothing():
    finding = found(ask())
    assert finding.severity is Severity.WARNING
    # 0.4 of the step is the update, 0.8 of it the table's, 0.9 of that of rows that were not touched.
    assert number(finding, "update of untouched rows").value == pytest.approx(28.8)
    assert "touched 20,000 of 200,000 rows of users.weight" in finding.summary
    # At most all of the backward, a tenth of the step, is won beside it.
    assert finding.recoverable is not None and finding.recoverable.high == pytest.approx(0.388)
    assert finding.recoverable.low == pytest.approx(0.3 * 0.288)
    assert "SparseAdam" in finding.remedies[0].says and "tune the learning rate" in finding.remedies[0].says
    assert changes(finding) == [{"optimizer_implementation": "fused"}]


def test_what_takes_sparse_gradients_as_it_is_and_what_is_fused():
    sgd = found(ask(optimizer="SGD"))
    assert "SGD takes such gradients" in sgd.remedies[0].says and changes(sgd) == []
    assert changes(found(ask(optimizer_implementation="fused"))) == []


@pytest.mark.parametrize(
    ("touched", "optimizer_s", "severity"),
    [
        (200_000, 0.04, None),  # every row is looked up: a tied output layer, a small vocabulary
        (20_000, 0.006, None),  # 0.06 · 0.8 · 0.9 = 4.3 %
        (20_000, 0.010, Severity.INFO),  # 7.2 %
        (20_000, 0.025, Severity.WARNING),  # 18 %
    ],
)
def test_it_is_graded_by_what_is_lost_in_the_update(touched, optimizer_s, severity):
    answer = ask(touched, optimizer_s=optimizer_s)
    if severity is None:
        clear(answer)
    else:
        assert found(answer).severity is severity


def test_numbers_with_sparse_gradients_are_not_what_the_update_takes_long_for():
    # Of 90 million numbers 80 have sparse gradients: the table is 8 of the other 10, as above.
    other = found(ask(gradients_used=90_000_000, sparse_gradients=80_000_000))
    assert number(other, "update of untouched rows").value == pytest.approx(28.8)


def test_tables_that_are_hardly_touched_count_together():
    several = {"embedding_tables": 5, "embedding_tables_numbers": 5_000_000, "embedding_tables_untouched": 4_500_000}
    finding = found(ask(256, rows=40_000, embedding_gradient_numbers=640_000, **several))
    # 0.4 of the step is the update, 0.5 of it these tables', 0.9 of that of rows that were not touched.
    assert number(finding, "update of untouched rows").value == pytest.approx(18.0)
    assert number(finding, "these tables, of what the optimizer updates").value == pytest.approx(50.0)
    said = "Of 5 embedding tables a step left 90 % of the rows alone (of users.weight, the largest, it touched 256 of"
    assert finding.summary.startswith(said)
    assert "users.weight and the other tables" in finding.remedies[0].says
    beyond = several | {"embedding_tables_untouched": 6_000_000}
    assert "cannot be left alone" in str(missing(ask(256, rows=40_000, **beyond)))


def test_no_table_is_not_applicable_and_nobody_looked_is_not_measured():
    none = {"embedding_gradient_of": None, "embedding_gradient_numbers": None, "embedding_rows": None}
    why = missing(ask(**none, embedding_rows_touched=None))
    assert isinstance(why, NotApplicable) and "no embedding table" in str(why)
    assert "nobody looked" in str(missing(ask_trial(RULE, forward=0.03)))


def test_what_cannot_be_is_not_measured():
    assert "cannot be" in str(missing(ask(300_000)))
    assert "no optimizer holds the table" in str(missing(ask(gradients_used=1_000_000)))


def turn(
    place: int, used: int, *, turns: int = 1, sparse: int = 0, kind: str = "Adam", implementation: str = "foreach"
):
    return {
        "place": place,
        "optimizer": kind,
        "optimizer_implementation": implementation,
        "trains": "Net",
        "turns": turns,
        "unused_parameters": 0,
        "gradients_used": used,
        "sparse_gradients": sparse,
    }


def in_turn(*told: dict[str, object], holder: int | None = 2):
    return ask(
        optimizers_in_turn=2,
        gradients_of_optimizers=list(told),
        gradients_used=sum(one["gradients_used"] for one in told),
        embedding_gradient_optimizer=holder,
    )


def test_of_optimizers_of_one_kind_the_table_counts_as_often_as_its_own_one_steps():
    # In a step 3 x 2 million numbers of the first one's are updated and once 10 million, of which 8 are the table:
    # 0.4 of the step, 8 of 16 of it, 0.9 of that of rows that were not touched.
    finding = found(in_turn(turn(1, 2_000_000, turns=3), turn(2, 10_000_000)))
    assert number(finding, "update of untouched rows").value == pytest.approx(18.0)
    assert changes(finding) == [{"optimizer_implementation": "fused"}]
    # 3 x 10 million, of which 3 x 8 are the table, beside 2 million: 0.4 x 24 / 32 x 0.9.
    often = found(in_turn(turn(1, 2_000_000), turn(2, 10_000_000, turns=3, implementation="fused")))
    assert number(often, "update of untouched rows").value == pytest.approx(27.0)
    assert changes(often) == []


def test_another_kinds_numbers_may_take_ten_times_as_long():
    # 0.4 of the step; 8 of 10 million, beside 2 million that may count as 20: 0.4 x 8 / 30 x 0.9.
    finding = found(in_turn(turn(1, 2_000_000, kind="SGD"), turn(2, 10_000_000)))
    assert number(finding, "update of untouched rows").value == pytest.approx(9.6)
    # One whose gradients are all sparse updates a few rows only.
    aside = turn(1, 2_000_000, sparse=2_000_000, kind="SparseAdam")
    assert number(found(in_turn(aside, turn(2, 10_000_000))), "update of untouched rows").value == pytest.approx(28.8)
    assert "which of the optimizers" in str(missing(in_turn(turn(1, 2_000_000), turn(2, 10_000_000), holder=None)))
    assert "CMP017" in str(missing(in_turn(turn(1, 20_000_000), turn(2, 10_000), holder=2)))
