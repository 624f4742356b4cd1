"""Lines of a user's code as a diagnosis names them, made by hand: a training that waits for a slow dataset."""

from __future__ import annotations

import dataclasses

from perf_diagnostics.diagnose.code_share import CodeShare, LineShare
from perf_diagnostics.diagnose.finding import Diagnosis, Family, Finding, Severity, Verdict
from perf_diagnostics.diagnose.statistics.intervals import Interval
from perf_diagnostics.records import CodePlace

MAIN = CodePlace(file="train.py", line=51, function="<module>", text="main()")
LOOP = CodePlace(file="train.py", line=41, function="main", text="for x, y in loader:")
FORWARD = CodePlace(file="train.py", line=42, function="main", text="loss = loss_of(model(x), y)")


def share(
    text: str = "x = x * 1.01",
    *,
    file: str = "train.py",
    line: int = 9,
    function: str = "Data.__getitem__",
    callers: tuple[CodePlace, ...] = (MAIN, LOOP),
    called: str = "",
    phase: str = "data_wait",
    value: float = 0.23,
    low: float | None = 0.205,
    high: float | None = 0.248,
) -> CodeShare:
    return CodeShare(
        place=CodePlace(file=file, line=line, function=function, text=text),
        callers=callers,
        called=called,
        phase=phase,
        share=Interval(value, low, high, 64),
        looks=64,
    )


ITEM = share()
READ = share("with open(path) as file:", line=8, value=0.05, low=0.03, high=0.08)
BACKWARD = share(
    "loss.backward()", line=43, function="main", callers=(MAIN,), called="torch._tensor.Tensor.backward",
    phase="backward", value=0.20, low=0.19, high=0.20,
)  # fmt: skip
CELL = share(
    "h = self.cell(z, h)", line=22, function="Net.forward", callers=(MAIN, FORWARD),
    called="torch.nn.modules.rnn.GRUCell.forward", phase="forward", value=0.26, low=0.25, high=0.27,
)  # fmt: skip

#: A framework's loop: the user's only line of it is the call that starts it.
TRAINER_CALL = tuple(
    share(
        "trainer.train()", file="hf.py", line=23, function="<module>", callers=(), phase=phase, value=value,
        low=value - 0.02, high=value + 0.02, called=f"transformers.trainer.Trainer.{called}",
    )
    for phase, called, value in (
        ("forward", "training_step", 0.36), ("backward", "training_step", 0.3), ("optimizer", "_clip_grad_norm", 0.05),
    )
)  # fmt: skip


def spread(line: CodeShare, *others: tuple[int, float]) -> CodeShare:
    """The same time, spread over these other lines of its function, each with its share of a step."""
    own = line.share.value - sum(value for _, value in others)
    parts = [LineShare(line.place, Interval(own, None, None, 64), 40)]
    for at, value in others:
        place = dataclasses.replace(line.place, line=at, text="")
        parts.append(LineShare(place, Interval(value, None, None, 64), 12))
    return dataclasses.replace(line, within=tuple(sorted(parts, key=lambda one: one.place.line)))


#: A loop in Python inside of a model.
LOOPING = spread(CELL, (24, 0.06), (21, 0.02))


def waiting(*lines: CodeShare, claimed: float = 0.28) -> Finding:
    return Finding(
        code="INP001",
        name="input-bound",
        family=Family.INPUT,
        severity=Severity.WARNING,
        summary="The training waits for data 28 % of each step.",
        scope="train on cpu, batch 32",
        evidence=(),
        claims={"data_wait": claimed},
        lines=lines,
    )


def diagnosis_of(finding: Finding, *lines: CodeShare, looks: int = 360) -> Diagnosis:
    """The diagnosis whose verdict is this finding."""
    verdict = Verdict(finding.code, finding.name, finding.family, finding.summary)
    return Diagnosis(verdict=verdict, findings=(finding,), lines=lines, looks=looks)


WAITING = diagnosis_of(waiting(ITEM, READ), CELL, ITEM, BACKWARD, READ)
