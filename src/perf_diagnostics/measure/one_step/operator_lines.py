"""Which line of the user's own asks for the operator that is under way, and which node of autograd's graph it is of."""

from __future__ import annotations

import sys
from types import CodeType, FrameType
from typing import Any

import torch

from perf_diagnostics.measure.code.code_places import CodePlaces
from perf_diagnostics.measure.code.own_code import Kind, OwnCode
from perf_diagnostics.records import CodePlace, Json

_MOST_FRAMES = 400

_FORWARD = "forward"

_INNER: Any = torch._C


class OperatorLines:
    """Names the innermost line of the user's own on the stack of the thread that asks."""

    def __init__(self) -> None:
        self._own, self._places = OwnCode(), CodePlaces()
        #: Whether modules of the user's own are parts of a library's, by the code of both.
        self._parts: dict[tuple[CodeType, CodeType], bool] = {}

    def line(self) -> tuple[tuple[Any, ...] | None, dict[str, Json]]:
        """A key of the line, and as facts tell it; or nothing where no line of the user's own led here.

        In backward this is the line that called it (of a device, whose backward has a thread of its own, there is
        none): see :func:`forward_node` for the one of forward. ``library`` names
        the package whose ``forward`` the line reached the operator through, where that is not torch's, or which calls
        the ``forward`` that the line stands in: a layer of the user's own put into a library's model.
        """
        frame, through = self._outwards(sys._getframe(1))
        code, line = frame.f_code, frame.f_lineno
        if self._own.kind_of(code.co_filename) is not Kind.OWN:
            return None, {}
        place = self._places.place(code, line)
        if through is None and code.co_name == _FORWARD and frame.f_back is not None:
            _, through = self._outwards(frame.f_back)
            through = through if through is not None and self._is_part_of(frame, through) else None
        return (code, line), as_told(place) | ({"library": _library_of(through)} if through is not None else {})

    def asked_by(self, module: str) -> bool:
        """Whether functions of this module stand between the line and the operator, whoever's they are."""
        frame = sys._getframe(1)
        for _ in range(_MOST_FRAMES):
            if frame.f_globals.get("__name__") == module:
                return True
            if frame.f_back is None or self._own.kind_of(frame.f_code.co_filename) in (Kind.OWN, Kind.STARTER):
                return False
            frame = frame.f_back
        return False

    def _outwards(self, frame: FrameType) -> tuple[FrameType, FrameType | None]:
        """From a frame on the next one of the user's own, and the nearest ``forward`` of a library's before it."""
        through = None
        for _ in range(_MOST_FRAMES):
            if frame.f_back is None or self._own.kind_of(frame.f_code.co_filename) in (Kind.OWN, Kind.STARTER):
                break
            through = frame if through is None and _library_of(frame) else through
            frame = frame.f_back
        return frame, through

    def _is_part_of(self, own: FrameType, library: FrameType) -> bool:
        """Whether a module of the user's is one among a library's model's own; else that only wraps it up."""
        codes = own.f_code, library.f_code
        if codes not in self._parts:
            part, whole = (frame.f_locals.get("self") for frame in (own, library))
            if not isinstance(part, torch.nn.Module) or not isinstance(whole, torch.nn.Module):
                return False
            inside = {id(one) for one in part.parameters()}
            self._parts[codes] = any(id(one) not in inside for one in whole.parameters())
        return self._parts[codes]


def _library_of(frame: FrameType) -> str:
    """The package that has this ``forward``; empty for torch's and for every other function."""
    if frame.f_code.co_name != _FORWARD:
        return ""
    package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    return "" if package == "torch" else package


def as_told(place: CodePlace) -> dict[str, Json]:
    """A place as facts tell it."""
    return {"file": place.file, "line": place.line, "function": place.function, "text": place.text}


def in_backward() -> bool:
    """Whether autograd's engine runs in this thread: for ``backward`` as well as for ``torch.autograd.grad``."""
    return hasattr(_INNER, "_current_graph_task_id") and int(_INNER._current_graph_task_id()) != -1


def forward_node() -> int:
    """The number that autograd gave last in this thread: of the operator's node, which is made before it runs.

    An operator that needs no gradient has none: then the number is that of an earlier one, which was told before.
    """
    return int(torch.autograd._get_sequence_nr()) - 1  # type: ignore[attr-defined]


def backward_node() -> int | None:
    """In backward, the number of the node that asks for the operator: :func:`forward_node` of its forward."""
    node = current_node()
    return None if node is None else int(node._sequence_nr())


def backward_node_name() -> str:
    """In backward, the name of the node that asks for the operator, as ``AmaxBackward0``; empty where there is none."""
    node = current_node()
    return "" if node is None else str(node.name())


def current_node() -> Any:
    """In backward, autograd's node that asks for the operator; None where there is none."""
    return _INNER._current_autograd_node() if hasattr(_INNER, "_current_autograd_node") else None
