"""The commands of README and of the how-to pages are understood, and its targets and files are there."""

from __future__ import annotations

import re
import runpy
import shlex
from pathlib import Path

import pytest
import torch

from perf_diagnostics.cli.command_line import parser

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", "docs/own-loop.md", "docs/frameworks.md", "docs/exports.md", "kaggle/README.md"]
OURS = ("perf-diagnostics", "perf_diagnostics")


def lines_of_blocks(page: str) -> list[str]:
    """Lines of the blocks in which a shell's commands stand."""
    found, language = [], None
    for line in (ROOT / page).read_text().splitlines():
        if line.startswith("```"):
            language = line.removeprefix("```") if language is None else None
        elif language in ("", "console"):
            found.append(line.removeprefix("$ "))
    return found


def commands(page: str) -> list[list[str]]:
    """The words after our name, of blocks and of what stands in backquotes."""
    inline = re.findall(r"`((?:\S+=\S+ )?(?:perf-diagnostics|torchrun|srun)\s[^`]+)`", (ROOT / page).read_text())
    typed = [line for line in lines_of_blocks(page) if re.match(r"(perf-diagnostics|torchrun|srun|accelerate) ", line)]
    words = [shlex.split(line, comments=True) for line in (*typed, *(" ".join(text.split()) for text in inline))]
    return [each[next(n for n, word in enumerate(each) if word in OURS) + 1 :] for each in words]


@pytest.mark.parametrize("page", PAGES[:-1])
def test_each_command_can_be_typed(page: str) -> None:
    found = commands(page)
    assert len(found) >= (15 if page == "README.md" else 1)
    for words in found:
        given, unknown = parser().parse_known_args(words)
        assert given.command == words[0] and not unknown, words


@pytest.mark.parametrize("page", PAGES)
def test_each_target_of_make_is_there(page: str) -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    text = " ".join([*lines_of_blocks(page), *re.findall(r"`(make [^`]+)`", (ROOT / page).read_text())])
    named = set(re.findall(r"\bmake ([a-z][a-z-]*)", text))
    assert named <= targets
    assert page != "README.md" or {"benchmark-all", "report-full", "test", "smoke", "setup"} <= named


@pytest.mark.parametrize("page", PAGES)
def test_each_link_leads_somewhere(page: str) -> None:
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", (ROOT / page).read_text())
    missing = [link for link in links if not ((ROOT / page).parent / link).exists()]
    assert not missing


def test_the_numbers_of_the_front_page_are_those_of_the_exemplar() -> None:
    readme = " ".join((ROOT / "README.md").read_text().split())
    report = " ".join((ROOT / "results/exemplar-distilbert-cpu/performance_report.md").read_text().split())
    told = re.search(
        r"from ([\d.]+ to [\d.]+) samples/s, (\d+) % less.*?interval (\d+ to \d+) %.*?predicted (\d+ to \d+)", readme
    )
    assert told is not None
    rates, gain, interval, predicted = told.groups()
    assert (
        f"confirmed, from {rates} samples/s; predicted {predicted} % less time a sample, measured {gain} % "
        f"({interval} %): the prediction held." in report
    )
    assert "five interleaved pairs" in readme and "Tried in 5 pairs of trials" in report
    second = re.search(r"won (\d+) % by itself", readme)
    assert second is not None and f"measured {second[1]} % (34 to 50 %): the prediction held." in report


def test_the_example_of_the_front_page_names_lines_of_its_script() -> None:
    readme = " ".join((ROOT / "README.md").read_text().split())
    script = (ROOT / "docs/examples/saves_often.py").read_text().splitlines()
    saved, called = (int(one) for one in re.findall(r"saves_often\.py:(\d+)", readme))
    assert script[saved - 1].strip().startswith('torch.save({"model": self.model.state_dict(), "optimizer":')
    assert script[called - 1].strip() == "self.save_checkpoint(file)"


@pytest.mark.slow
def test_the_example_of_the_front_page_trains_and_saves(tmp_path: Path) -> None:
    script = runpy.run_path(str(ROOT / "docs/examples/saves_often.py"))
    trainer = script["Trainer"](batches=10)
    head, body = trainer.head.weight.detach().clone(), trainer.model[0][0].weight.detach().clone()
    trainer.train(tmp_path / "checkpoint.pt")
    saved = torch.load(tmp_path / "checkpoint.pt")["model"]
    assert torch.equal(saved["1.weight"], trainer.head.weight) and not torch.equal(head, trainer.head.weight)
    assert torch.equal(saved["0.0.weight"], body)
