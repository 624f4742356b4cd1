"""Measured numbers in sentences: every name that a rule gives its evidence makes plain English."""

from __future__ import annotations

import ast
import doctest
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import perf_diagnostics.diagnose
from perf_diagnostics.diagnose import evidence_words
from perf_diagnostics.diagnose.evidence_words import SENTENCES, sentence, unit_words

PACKAGE = Path(perf_diagnostics.diagnose.__file__).parent

#: Words with which no noun begins that could follow "the".
NO_NOUN = {
    *("a", "above", "added", "and", "at", "between", "computing", "exposed", "for", "held", "in", "inside"),
    *("lost", "of", "outside", "over", "saved", "taking", "the", "waiting", "with", "without", "zeroing"),
}


def texts(node: ast.expr) -> Iterator[str]:
    """The names that an expression may give; what is worked out stands as X."""
    if isinstance(node, ast.Constant):
        yield str(node.value)
    elif isinstance(node, ast.IfExp):
        yield from (*texts(node.body), *texts(node.orelse))
    elif isinstance(node, ast.JoinedStr):
        found = [""]
        for part in node.values:
            inner = part.value if isinstance(part, ast.FormattedValue) else part
            chosen = isinstance(inner, ast.Constant | ast.IfExp)
            found = [so_far + text for so_far in found for text in (texts(inner) if chosen else ("X",))]
        yield from found


def names() -> set[tuple[str, str]]:
    """Names of evidence with their units, as the modules of the diagnosis write them."""
    found: set[tuple[str, str]] = set()
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            given = {word.arg: word.value for word in node.keywords}
            if node.func.id == "Evidence" and "metric" in given:
                metric, unit = given["metric"], given.get("unit", ast.Constant(""))
            elif node.func.id == "evidence" and len(node.args) == 3:
                metric, unit = node.args[0], node.args[2]
            else:
                continue
            found |= {(name, kind) for name in texts(metric) for kind in (*texts(unit), "")[:1]}
    return found


NAMES = sorted(names())


def test_the_names_are_found():
    assert len(NAMES) > 200
    assert ("exposed data wait", "%") in NAMES and ("computing within the workers", "%") in NAMES


@pytest.mark.parametrize(("name", "unit"), NAMES)
def test_every_name_makes_a_sentence(name, unit):
    says = sentence(name, "7", unit)
    assert f"7{unit_words(unit)}" in says or says.startswith("there are 7 ")
    assert "{}" not in says and "  " not in says and "the the " not in says
    subject = re.fullmatch(r"the (?:(?:number|share) of )?(.*) (?:is|are) 7.*", says)
    assert subject is None or subject[1].split(" ")[0] not in NO_NOUN or name in SENTENCES, says


def test_no_sentence_is_left_over_from_a_name_that_nobody_gives():
    given = {name for name, _ in NAMES}
    # Some names are given elsewhere than at the call.
    source = "".join(file.read_text(encoding="utf-8") for file in PACKAGE.rglob("*.py") if "words" not in file.name)
    assert [name for name in SENTENCES if name not in given and f'"{name}"' not in source] == []


@pytest.mark.parametrize(("metric", "amount", "unit", "says"), [
    ("of the step on padding", "60.6", "%", "padding takes 60.6 % of the step"),
    ("exposed data wait", "89.6", "%", "waiting for data takes 89.6 % of the step"),
    ("collector's pauses", "12.0", "%", "the collector's pauses take 12.0 % of all time"),
    ("above that, of the step", "28", "%", "28 % of the step is more than the update has to take"),
    ("of it in other", "90", "%", "90 % of it lies in other"),
    ("of what is lost, outside of all phases", "90", "%", "90 % of what is lost lies outside of all phases"),
    ("in the backward pass at the last step", "3.2", "ms", "the last step has 3.2 ms in the backward pass"),
    ("outside of all phases, more from step to step", "5", "µs",
     "each step has 5 µs more outside of all phases than the one before"),
    ("of it surely computing", "90", "%", "90 % of it is surely computing"),
    ("involuntary switches", "5,000", "1/s", "there are 5,000 involuntary switches a second"),
    ("involuntary switches", "820", "1/s of CPU time",
     "there are 820 involuntary switches for each second of CPU time"),
    ("steps in which the device ran dry", "82", "%", "in 82 % of the steps the device ran dry"),
    ("idle after waits in the optimizer", "9", "%",
     "the device is idle after waits in the optimizer for 9 % of the step"),
    ("memory of rank 3, of the device's", "95", "%", "rank 3 uses 95 % of the device's memory"),
    ("rise of host memory over the steps", "102", "MB", "host memory rises by 102 MB over the steps"),
    ("bfloat16 over float32, batch 8", "1.02", "", "at batch 8 bfloat16 is 1.02 times as fast as float32"),
    ("threads at work", "16", "", "the number of threads at work is 16"),
    ("overlap with computation", "31", "%", "the overlap with computation is 31 %"),
    ("types of the parameters", "float64", "", "the types of the parameters are float64"),
    ("model flops utilisation", "12", "%", "the model flops utilisation is 12 %"),
    ("profiled step over undisturbed step", "1.3", "×",
     "a profiled step takes 1.3 times as long as an undisturbed one"),
    ("TORCH_DISTRIBUTED_DEBUG=DETAIL", "on", "", "TORCH_DISTRIBUTED_DEBUG=DETAIL is on"),
    ("graphs compiled in the steady steps", "4", "", "the number of graphs compiled in the steady steps is 4"),
])  # fmt: skip
def test_sentences(metric, amount, unit, says):
    assert sentence(metric, amount, unit) == says


def test_examples():
    results = doctest.testmod(evidence_words)
    assert results.attempted == 2 and results.failed == 0
