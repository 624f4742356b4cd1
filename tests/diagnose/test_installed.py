"""Rules that other packages bring."""

from __future__ import annotations

import importlib.metadata
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import ClassVar

import pytest

from perf_diagnostics.cli import main
from perf_diagnostics.cli.diagnosis_text import diagnosis_text
from perf_diagnostics.diagnose import installed
from perf_diagnostics.diagnose.engine import diagnose
from perf_diagnostics.diagnose.finding import Cleared, Family
from perf_diagnostics.diagnose.rule import limit
from perf_diagnostics.diagnose.rules import RULES
from perf_diagnostics.errors import InvalidSettings
from perf_diagnostics.testing import run_of, trial_of


@dataclass(frozen=True)
class Outside:
    """A rule from elsewhere.

    What it measures:
        Nothing.

    Why it matters:
        It does not.

    What to try:
        Nothing.

    When it is wrong:
        Never.
    """

    code: ClassVar[str] = "HST901"
    name: ClassVar[str] = "outside"
    family: ClassVar[Family] = Family.HOST
    looks_at: ClassVar[str] = "trial"
    least: float = field(default=0.5, metadata=limit("a limit", "judgement"))

    def check(self, facts) -> Cleared:
        return Cleared(self.code, self.name, f"least {self.least}")


@dataclass(frozen=True)
class Undocumented(Outside):
    """Says nothing."""


class Taken(Outside):
    __doc__ = Outside.__doc__
    code = "INP001"


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch):
    def put(**rules) -> None:
        points = [
            importlib.metadata.EntryPoint(name, f"tests.diagnose.test_installed:{value}", installed.ENTRY_POINTS)
            for name, value in rules.items()
        ]
        real = importlib.metadata.entry_points
        monkeypatch.setattr(
            importlib.metadata,
            "entry_points",
            lambda **group: points if group == {"group": installed.ENTRY_POINTS} else real(**group),
        )

    return put


def test_without_any_they_are_ours() -> None:
    assert installed.all_rules() == RULES


def test_an_installed_rule_is_asked_after_ours_and_has_thresholds(install) -> None:
    install(outside="Outside")
    assert [rule.code for rule in installed.all_rules()] == [*(rule.code for rule in RULES), "HST901"]
    diagnosis = diagnose(run_of(trial_of()), thresholds={"HST901": {"least": 0.7}})
    assert next(item.summary for item in diagnosis.cleared if item.code == "HST901") == "least 0.7"


@dataclass(frozen=True)
class Failing(Outside):
    __doc__ = Outside.__doc__

    def check(self, facts) -> Cleared:
        raise KeyError("a column")


def test_a_rule_that_fails_is_told_and_takes_nothing_from_the_others(install, monkeypatch) -> None:
    run = run_of(trial_of(data_wait=0.5, forward=0.5))
    whole = diagnose(run)
    install(failing="Failing")
    with pytest.raises(KeyError):
        diagnose(run)
    monkeypatch.setenv("PERF_DIAGNOSTICS_STRICT", "0")
    diagnosis = diagnose(run)
    assert diagnosis.verdict == whole.verdict and diagnosis.findings == whole.findings
    (failed,) = [rule for rule in diagnosis.unchecked if rule.failed]
    assert failed.code == "HST901" and "KeyError at test_installed.py:" in failed.why
    (told,) = [line for line in diagnosis_text(diagnosis, 400, every_rule=False).splitlines() if "Failed" in line]
    assert told.startswith("Failed: outside (HST901): the rule ended with an error (KeyError at test_installed.py:")
    assert "a column" not in told  # what an error says may be a path


@dataclass(frozen=True)
class FailingAtTwo(Outside):
    __doc__ = Outside.__doc__

    def check(self, facts) -> Cleared:
        if facts.batch_size == 2:
            raise ZeroDivisionError
        return super().check(facts)


def test_a_rule_that_fails_at_one_batch_size_is_told_beside_its_answer_at_another(install, monkeypatch) -> None:
    monkeypatch.setenv("PERF_DIAGNOSTICS_STRICT", "0")
    install(failing="FailingAtTwo")
    sizes = [trial_of(batch_size=size, forward=0.5) for size in (1, 2, 4)]
    diagnosis = diagnose(run_of(*sizes))
    assert any(one.code == "HST901" for one in diagnosis.cleared)
    (failed,) = [rule for rule in diagnosis.unchecked if rule.failed]
    assert failed.code == "HST901" and "ZeroDivisionError" in failed.why


made = Outside()


def test_it_may_be_an_instance_or_made_by_a_function(install) -> None:
    install(made="made")
    assert installed.all_rules()[-1] is made


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("Absent", "cannot be loaded"),
        ("Undocumented", "lacks the sections What it measures"),
        ("Taken", "has the code INP001, which is taken"),
        ("SimpleNamespace", "has no code, name, family, looks_at, check"),
        ("run_of", "is no rule"),
        ("diagnose", "cannot be made without arguments"),
    ],
)
def test_what_is_no_rule_is_told_with_its_package(install, value: str, says: str) -> None:
    install(broken=value)
    with pytest.raises(InvalidSettings, match="'broken', installed as tests") as error:
        diagnose(run_of(trial_of()))
    assert says in str(error.value)
    assert SimpleNamespace  # the name the case above loads


def test_an_installed_rule_is_explained(install, capsys: pytest.CaptureFixture[str]) -> None:
    install(outside="Outside")
    assert main(["explain", "hst901"]) == 0
    assert "A rule from elsewhere." in capsys.readouterr().out
