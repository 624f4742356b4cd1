"""CMP025 in traces: logits at all places of sequences, and what attention tells of which of them have labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.not_measured import NotApplicable
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.reader import read_trace
from perf_diagnostics.diagnose.trace.rules.cmp025_rows_without_gradient import LogitsOfAllPlaces
from tests.diagnose.answers import clear, found, missing, number
from tests.diagnose.trace.builder import POINTWISE, TraceBuilder, ask, repeated

STEP = 1_000

SAMPLES, PLACES, WIDTH, CLASSES = 4, 32, 16, 2_000


def told(*sizes: list[int], **more: Any) -> dict[str, Any]:
    return {"Input Dims": [*sizes], "Input type": ["float"] * len(sizes), **more}


def language_model(
    *,
    layer: str = "aten::linear",
    given: tuple[int, ...] = (SAMPLES, PLACES, WIDTH),
    classes: int = CLASSES,
    rows: int = SAMPLES * PLACES,
    head: float = 300,
    causal: str | None = None,
    mask: tuple[int, ...] = (),
    shapes: bool = True,
    beside: str = "",
    labels: bool = True,
    looks_up: bool = True,
    varies: bool = False,
) -> TraceBuilder:
    """Steps of 1 ms, so many µs of which are the head's: a third the layer, the loss and their backward each.

    ``beside`` is another operator of the model; ``varies``: each step has one place more than the one before.
    """

    def fill(builder: TraceBuilder, start: float) -> None:
        def operator(name: str, at: float, until: float, args: dict[str, Any]) -> None:
            builder.operator(name, start + at, start + until, **(args if shapes else {}))

        if causal is not None:
            sizes = [[SAMPLES, 2, PLACES, 8]] * 3 + [[*mask]]
            operator(
                "aten::scaled_dot_product_attention", 10, 20, told(*sizes, **{"Concrete Inputs": [""] * 5 + [causal]})
            )
        more = round(start / STEP) if varies else 0
        if looks_up:
            operator("aten::embedding", 1, 5, told([classes, WIDTH], [SAMPLES, PLACES]))
        if beside:
            operator(beside, 30, 40, told([SAMPLES, 2, PLACES, PLACES]))
        third, count, places = head / 3, rows + SAMPLES * more, SAMPLES * (PLACES + more)
        form = [given[0], given[1] + more, *given[2:]] if len(given) == 3 else [*given]
        operator(layer, 100, 100 + third, told(form, [classes, given[-1]]))
        operator("aten::_log_softmax", 450, 450 + third / 2, told([count, classes]))
        if labels:
            operator("aten::nll_loss_forward", 450 + third / 2, 450 + third, told([count, classes], [count]))
        operator("aten::mm", 600, 600 + third, told([places, classes], [classes, given[-1]]))
        operator("aten::mm", 950, 990, told([SAMPLES * PLACES, WIDTH], [WIDTH, WIDTH]))  # of another layer

    return repeated(STEP, 5, fill, deviceProperties=[])


@pytest.mark.parametrize("layer", ["aten::linear", "aten::matmul"])
def test_the_share_of_the_layer_its_loss_and_their_backward_is_told(layer: str, tmp_path: Path) -> None:
    finding = found(ask(LogitsOfAllPlaces(), language_model(layer=layer).facts(tmp_path)))
    assert number(finding, "logits, their loss and their backward").value == pytest.approx(30, rel=0.01)
    assert number(finding, "places, with a label or without").value == SAMPLES * PLACES
    assert finding.severity is Severity.INFO and "at all 128 places." in finding.summary


def test_below_its_limit_it_is_no_remark(tmp_path: Path) -> None:
    answer = clear(ask(LogitsOfAllPlaces(), language_model(head=180).facts(tmp_path)))
    assert number(answer, "logits, their loss and their backward").value == pytest.approx(18, rel=0.01)


def test_where_each_place_is_seen_the_others_are_asked_for(tmp_path: Path) -> None:
    finding = found(ask(LogitsOfAllPlaces(), language_model(causal="False").facts(tmp_path)))
    assert "hidden ones" in finding.summary and not any("linear_cross_entropy" in one.says for one in finding.remedies)
    assert finding.recoverable is not None
    assert finding.recoverable.low == 0
    assert 0.85 * 0.3 <= finding.recoverable.high < 0.5


@pytest.mark.parametrize(
    "attention",
    [
        {},
        {"causal": "True"},
        {"causal": "False", "mask": (SAMPLES, 1, PLACES, PLACES)},
        {"causal": "perhaps"},
        {"causal": "False", "beside": "aten::_softmax"},  # attention by hand, which may have a mask
        {"causal": "False", "beside": "aten::gru_cell"},
        {"causal": "False", "looks_up": False},  # of speech, whose frames have labels each
    ],
)
def test_else_nobody_knows_which_places_have_labels(attention: dict[str, Any], tmp_path: Path) -> None:
    finding = found(ask(LogitsOfAllPlaces(), language_model(**attention).facts(tmp_path)))
    assert "a trace does not tell" in finding.summary and finding.recoverable is None
    assert any("linear_cross_entropy" in one.says for one in finding.remedies)


def test_labels_one_place_further_on_are_of_the_same_logits(tmp_path: Path) -> None:
    """A causal model's logits are cut by one place before their loss."""
    finding = found(ask(LogitsOfAllPlaces(), language_model(rows=SAMPLES * (PLACES - 1)).facts(tmp_path)))
    assert number(finding, "logits, their loss and their backward").value == pytest.approx(30, rel=0.01)


def test_batches_of_other_lengths_are_of_the_same_layer(tmp_path: Path) -> None:
    finding = found(ask(LogitsOfAllPlaces(), language_model(varies=True).facts(tmp_path)))
    assert number(finding, "logits, their loss and their backward").value == pytest.approx(30, rel=0.01)
    assert number(finding, "places, with a label or without").value == SAMPLES * (PLACES + 4)


def test_a_layer_as_wide_as_there_are_classes_leaves_it_open(tmp_path: Path) -> None:
    wide = language_model(given=(SAMPLES, PLACES, CLASSES))
    assert missing(ask(LogitsOfAllPlaces(), wide.facts(tmp_path))).signal == "input_dims"


def test_an_empty_batch_is_nothing(tmp_path: Path) -> None:
    clear(ask(LogitsOfAllPlaces(), language_model(given=(0, PLACES, WIDTH), rows=0).facts(tmp_path)))


@pytest.mark.parametrize(
    "other",
    [
        {"given": (SAMPLES * PLACES, WIDTH)},  # rows may be samples
        {"given": (SAMPLES * PLACES, 1, WIDTH)},
        {"classes": 100},
        {"rows": SAMPLES},  # of one place a sequence
    ],
)
def test_what_has_one_place_a_sample_or_few_classes_is_nothing(other: dict[str, Any], tmp_path: Path) -> None:
    clear(ask(LogitsOfAllPlaces(), language_model(**other).facts(tmp_path)))


def test_without_sizes_or_without_a_loss_it_is_not_told(tmp_path: Path) -> None:
    assert missing(ask(LogitsOfAllPlaces(), language_model(shapes=False).facts(tmp_path))).signal == "input_dims"
    none = repeated(
        STEP, 5, lambda builder, start: builder.operator("aten::mm", start + 1, start + 900), deviceProperties=[]
    )
    for other in (none, language_model(labels=False)):  # as CTC has none, or what a teacher says of each place
        assert isinstance(ask(LogitsOfAllPlaces(), other.facts(tmp_path)), NotApplicable)


def test_on_a_device_it_is_what_these_operators_launch(tmp_path: Path) -> None:
    def fill(builder: TraceBuilder, start: float) -> None:
        sizes = [[SAMPLES, PLACES, WIDTH], [CLASSES, WIDTH]]
        builder.operator("aten::linear", start + 1, start + 20, **told(*sizes))
        builder.kernel(start + 5, start + 100, start + 400)
        builder.operator("aten::_log_softmax", start + 21, start + 40, **told([SAMPLES * PLACES, CLASSES]))
        builder.kernel(start + 25, start + 400, start + 500, name=POINTWISE)
        builder.operator("aten::nll_loss_forward", start + 40.1, start + 40.5, **told([SAMPLES * PLACES, CLASSES]))
        builder.operator("aten::add", start + 41, start + 60)
        builder.kernel(start + 45, start + 500, start + 1100, name=POINTWISE)

    finding = found(ask(LogitsOfAllPlaces(), repeated(STEP, 5, fill).facts(tmp_path)))
    assert number(finding, "logits, their loss and their backward").value == pytest.approx(40, abs=2)


@pytest.mark.parametrize("causal", [False, True])
def test_torch_tells_all_of_it(causal: bool, tmp_path: Path) -> None:
    table, head = torch.nn.Embedding(CLASSES, WIDTH), torch.nn.Linear(WIDTH, CLASSES)
    optimizer = torch.optim.SGD([*table.parameters(), *head.parameters()], lr=0.1)
    tokens = torch.randint(CLASSES, (SAMPLES, PLACES))
    schedule = torch.profiler.schedule(wait=1, warmup=1, active=4)
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], schedule=schedule, record_shapes=True
    ) as profiler:
        for _ in range(6):
            x = table(tokens)[:, None]
            x = functional.scaled_dot_product_attention(x, x, x, is_causal=causal)[:, 0]
            loss = functional.cross_entropy(head(x).flatten(0, 1), tokens.flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            profiler.step()
    profiler.export_chrome_trace(str(tmp_path / "real.json"))
    finding = found(ask(LogitsOfAllPlaces(), TraceFacts.of(read_trace(tmp_path / "real.json"))))
    assert number(finding, "places, with a label or without").value == SAMPLES * PLACES
    assert (finding.recoverable is None) is causal
