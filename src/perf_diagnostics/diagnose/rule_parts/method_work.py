"""The part of a phase that the training itself asks for outside of forward, backward and optimizer, by looks and text.

By the program's text (:class:`~perf_diagnostics.records.CodeSamples`) a line is the method's if the loss depends on it
and it on the model: a target network's forward, pseudo-labels, rollouts, a momentum encoder; or if it averages
parameters. What no loss depends on (logs, evaluations, pictures, saves) is not, nor is what only prepares a batch (on a
line that calls what is trained, all that lies outside of that call), nor
what is known to be slow as it is written (an index into a deque, a tensor gone through number by number in a loop of
Python): the method wants it, but not so.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from perf_diagnostics.diagnose.code.code_ways import OURS
from perf_diagnostics.diagnose.code.phase_looks import PhaseLooks
from perf_diagnostics.diagnose.code.slow_idioms import NUMBER_BY_NUMBER, WINDOW_BY_COPIES, idiom_of
from perf_diagnostics.diagnose.facts.facts import Interval, TrialFacts
from perf_diagnostics.diagnose.finding import Remedy
from perf_diagnostics.diagnose.rule_parts.kinds_of_work import calls_a_module, is_chore
from perf_diagnostics.diagnose.wording import percent
from perf_diagnostics.records import CodePath, CodePlace, CodeSamples, Phase

#: Libraries' averages of parameters.
_AVERAGES = re.compile(
    r"(?:torch\.optim\.swa_utils(?!\.update_bn\b|\.AveragedModel\.forward\b)|timm\.utils\.model_ema"
    r"|diffusers\.training_utils\.EMAModel|torch_ema|ema_pytorch)\b"
)

#: A layer of torch's that is called, not only a module of whatever kind.
_LAYER = re.compile(r"torch\.nn\.modules\.(?!module\.).*\.forward$")

#: The phases by which a line is known to be on the way to the training, and not to an evaluation, whatever its text
#: says: functions are looked up in tables, and handed to others to call.
_TRAINED = (Phase.BACKWARD, Phase.OPTIMIZER)

#: From so many looks on it is told. Where all ten of ten were the method's, 28 % may be something else, and who asks
#: counts with that; a rollout of 0.6 s in 18 looks was told as a critical fault.
_LEAST_LOOKS = 10

#: Less than this part of a phase is not worth a word.
_LEAST_PART = 0.1

#: A function is slow by how it is written where such lines take this part of what its own lines do. A judgement: of a
#: healthy rollout with advantages behind it they took one look in twenty.
_SLOW_PART = 0.1

#: What most steps do has at least this part of its mean in the median step.
_USUAL = 0.5


@dataclass(frozen=True)
class MethodWork:
    """The part of a phase that is the method's, the line with most of it, and how much of it averages parameters."""

    part: Interval
    line: CodePlace
    averaging: float

    @property
    def _averages(self) -> bool:
        return self.averaging >= 1 / 2

    @property
    def says(self) -> str:
        """In a clause that follows what the time is."""
        what = (
            "averaging parameters"
            if self._averages
            else "the method's own, for the loss depends on it, and it depends on the model"
        )
        return f"{percent(self.part.value)} of that is {what} ({self.line.file}:{self.line.line})"

    @property
    def remedies(self) -> tuple[Remedy, ...]:
        """What can be cheaper; all of it is wanted."""
        if self._averages:
            return (
                Remedy(
                    "It belongs to the method, and is its price. It takes fewer operators where all tensors are "
                    "updated at once: torch._foreach_lerp_(averaged, parameters, weight), or "
                    "torch.optim.swa_utils.AveragedModel with multi_avg_fn=get_ema_multi_avg_fn(decay). Every k-th "
                    "step with decay**k is nearly the same average."
                ),
            )
        return (
            Remedy(
                "It belongs to the method, and is its price. What it computes needs no gradients in most methods "
                "(torch.no_grad()); several calls of one model on small batches can be one call; what comes out the "
                "same each time (a frozen teacher's answers) can be computed once and kept."
            ),
        )


def method_work(facts: TrialFacts, part: str = "") -> MethodWork | None:
    """None where hardly a line was seen that is the method's outside of the phases, or nobody looked often enough.

    Its part is that of what the program itself does there: looks that saw this package at work are left out.

    Args:
        facts: of the trial.
        part: only what lies in this part of ``other`` (:class:`~perf_diagnostics.records.CodePath`); default: all.
    """
    seen = PhaseLooks.of(facts, Phase.OTHER, part, least=_LEAST_LOOKS)
    if seen is None:
        return None
    # What measures is no work of the training's that the method could want or not. On a loaded machine a fifth of all
    # looks fell there, and rollouts were told as a fault.
    code = seen.code
    looks = PhaseLooks(code, tuple(path for path in seen.paths if path.calls != OURS))
    if sum(path.looks + path.rare for path in looks.paths) < _LEAST_LOOKS:
        return None
    of_method = is_method(facts)
    by_line: defaultdict[CodePlace, float] = defaultdict(float)
    averaging = 0.0
    for path in looks.paths:
        if of_method(path):
            by_line[_told_at(path, code)] += code.seconds(path)
            averaging += code.seconds(path) if _averages(path, code) else 0.0
    method_s = sum(by_line.values())
    if not method_s > _LEAST_PART * looks.whole_s:
        return None
    line = max(by_line, key=lambda place: by_line[place])
    return MethodWork(looks.proportion(method_s), line, averaging / method_s)


def without(share: Interval, part: Interval) -> Interval:
    """What is left of a share without a part of it."""
    most, least = part.value if part.high is None else part.high, part.value if part.low is None else part.low
    return Interval(
        share.value * (1 - part.value),
        None if share.low is None else share.low * (1 - most),
        None if share.high is None else share.high * (1 - least),
        share.n,
    )


def is_method(facts: TrialFacts) -> Callable[[CodePath], bool]:
    """Tells the looks that saw the thread at work for the method, outside of forward, backward and optimizer."""
    code = facts.result.code
    if code is None or not code.roles:
        return lambda _path: False
    roles = code.roles
    on_the_way = {number for path in code.paths if path.phase in _TRAINED for number in path.places[:-1]}
    forwards = {
        ways
        for path in code.paths
        if path.phase == Phase.FORWARD
        for ways in [_to_first(path, roles)]
        if ways is not None
    }
    called = {number for path in code.paths if path.phase == Phase.FORWARD for number in path.places}
    usual = _in_most_steps(facts)
    slow = _written_slowly(code)

    def of_method(path: CodePath) -> bool:
        if not path.places or path.calls == OURS or is_chore(path) or slow(path):
            return False
        if _averages(path, code):
            return True
        role = ""
        for number in path.places:
            now = roles[number]
            if now in ("unread", "training") and number not in on_the_way:
                return False
            role = now if now in ("method", "preparation") else role
        asks = calls_a_module(path) and not _transforms(path, code)
        if asks and not usual and _to_first(path, roles) in forwards:
            return False  # the line that is trained on, at times without: an evaluation that shares the training's code
        if not asks and path.places[-1] in called:
            return False  # what the trained model is called with, in the same line
        return role == "method" or (role == "preparation" and asks)

    return of_method


def _written_slowly(code: CodeSamples) -> Callable[[CodePath], bool]:
    """Tells the looks at lines that are slow by how they are written, and at functions that are so as a whole.

    The method may want what they compute, but not so. Of a function that works through tensors number by number, or
    copies all that it keeps to put in what is new, for a considerable part of its time, all lines count, but for those
    that hold the training's loop, and the outermost one, which is often all of a script.
    """
    lines = {
        number
        for number, place in enumerate(code.places)
        for idiom in [idiom_of(place)]
        if idiom is not None and idiom.name in (NUMBER_BY_NUMBER, WINDOW_BY_COPIES)
    }
    own: defaultdict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for path in code.paths:
        if path.places and path.phase == Phase.OTHER:
            place = code.places[path.places[-1]]
            own[place.file, place.function][path.places[-1] in lines] += code.seconds(path)
    functions = {where for where, (others, slow) in own.items() if slow and slow >= _SLOW_PART * (others + slow)}
    # A main() that has the rollout, the advantages number by number, and backward.
    trains = {number for path in code.paths if path.phase in _TRAINED for number in path.places}
    functions -= {(code.places[number].file, code.places[number].function) for number in trains}

    def slow(path: CodePath) -> bool:
        called = path.calls[0] if path.calls else ""
        if path.places[-1] in lines or idiom_of(code.places[path.places[-1]], called) is not None:
            return True
        last, first = code.places[path.places[-1]], code.places[path.places[0]]
        where = (last.file, last.function)
        return where in functions and where != (first.file, first.function)

    return slow


def _transforms(path: CodePath, code: CodeSamples) -> bool:
    """Whether the module that is called is no model: by the text its forward, and who calls it, only prepares, and no
    layer of torch's was on the way (a spectrum, an augmentation).
    """
    last = path.places[-1]
    own = code.places[last].function.endswith(".forward") and code.roles[last] == "preparation"
    prepares = own and all(code.roles[number] != "method" for number in path.places)
    return prepares and not any(_LAYER.match(call) for call in (*path.via, *path.calls))


def _to_first(path: CodePath, roles: tuple[str, ...]) -> tuple[int, ...] | None:
    """The lines on the way up to the first that the loss depends on."""
    at = next((at for at, number in enumerate(path.places) if roles[number] in ("method", "preparation")), None)
    return None if at is None else path.places[: at + 1]


def _averages(path: CodePath, code: CodeSamples) -> bool:
    by_library = any(_AVERAGES.match(call) for call in (*path.via, *path.calls))
    return by_library or any(code.roles[number] == "average" for number in path.places if code.roles)


def _told_at(path: CodePath, code: CodeSamples) -> CodePlace:
    """The outermost line that tells what the work is."""
    told = (number for number in path.places if code.roles[number] in ("method", "preparation", "average"))
    return code.places[next(told, path.places[-1])]


def _in_most_steps(facts: TrialFacts) -> bool:
    """Whether most steps have about as much time outside of the phases as the mean of all."""
    other = facts.table.host_ns(Phase.OTHER)
    return other is None or float(np.median(other)) >= _USUAL * float(np.mean(other))
