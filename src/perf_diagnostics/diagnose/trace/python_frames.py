"""In which of the user's own functions the host spent some time, where the profiler recorded Python's stack.

``with_stack=True`` records each call as ``file(line): function``, with the path that leads from where modules are
imported from; a library then looks like a module of the user's, and is known by its name.
"""

from __future__ import annotations

import re
import sys

import numpy as np

from perf_diagnostics.diagnose.trace.events import Events
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.intervals import Times
from perf_diagnostics.diagnose.wording import listing
from perf_diagnostics.records import Int64

#: So many functions are named, those with at least half of the time of the first.
_MOST_NAMED = 2

_FRAME = re.compile(r"^(?P<file>[^<>]*\.py|<stdin>|<ipython-input-[^>]*>)\((?P<line>\d+)\): (?P<function>.+)$")

#: Folders that hold installed libraries or Python's own.
_INSTALLED = re.compile(r"(^|/)((site|dist)-packages|lib/python\d[\d.]*)/")

#: What training programs import by name: nobody would change it for a faster step. ("ipykernel" runs notebooks.)
_LIBRARIES = frozenset(
    """torch torchvision torchaudio torchtext torchdata torchmetrics functorch triton numpy scipy pandas sklearn PIL cv2
    matplotlib transformers datasets tokenizers accelerate peft trl diffusers timm huggingface_hub safetensors lightning
    lightning_fabric lightning_utilities pytorch_lightning ignite fastai fastcore deepspeed apex megatron xformers
    flash_attn kornia albumentations monai wandb mlflow tensorboard tensorboardX comet_ml tqdm rich requests urllib3
    fsspec psutil yaml hydra omegaconf einops ipykernel IPython traitlets tornado zmq""".split()  # noqa: SIM905
)


def own_functions(facts: TraceFacts, times: Times) -> tuple[tuple[str, int], ...]:
    """The user's functions that were innermost of theirs during ``times``, as ``file:line (function)``, with their ns.

    ``line`` is where the function begins. The one with the most time comes first; empty where no frame of theirs lasts
    a millisecond then. Only frames of the threads that train count.
    """
    frames = facts.trace.frames
    if frames is None:
        return ()
    named = [_own(name) for name in facts.trace.names]
    own = np.fromiter((bool(name) for name in named), np.bool_, len(named))
    frames = frames.where(own[frames.name] & facts.launches.on_training_threads(frames))
    total: dict[str, int] = {}
    for track in np.unique(frames.track).tolist():
        start, end, name = _innermost(frames.where(frames.track == track))
        spent = times.before(end) - times.before(start)
        for index, ns in zip(name.tolist(), spent.tolist(), strict=True):
            total[named[index]] = total.get(named[index], 0) + ns
    return tuple(sorted(((name, ns) for name, ns in total.items() if ns), key=lambda one: -one[1]))


def in_functions(facts: TraceFacts, times: Times) -> str:
    """The functions in which most of ``times`` was, as the end of a sentence: ", in net.py:12 (forward)".

    Of backward passes, which belong to whoever calls ``backward()``, nothing is told; nor without Python's stack.
    """
    found = own_functions(facts, times if facts.nodes is None else times - facts.nodes.passes)
    names = [name for name, ns in found if ns >= found[0][1] / 2][:_MOST_NAMED]
    return f", in {listing(names)}" if names else ""


def _own(name: str) -> str:
    """A frame's place as a user reads it, or an empty text where it is a library's."""
    match = _FRAME.match(name)
    if match is None:
        return ""
    file = match["file"].replace("\\", "/")
    top = file.lstrip("./").split("/")[0].removesuffix(".py")
    if _INSTALLED.search(file) or (not file.startswith("/") and (top in _LIBRARIES or top in sys.stdlib_module_names)):
        return ""
    return f"{file}:{match['line']} ({match['function']})"


def _innermost(frames: Events) -> tuple[Int64, Int64, Int64]:
    """Which of the nested frames of one thread was the innermost, and when: starts, ends and names."""
    pieces: list[tuple[int, int, int]] = []
    open_frames: list[tuple[int, int]] = []
    order = np.lexsort((-frames.end_ns, frames.start_ns))
    at = 0

    def close(until: int) -> None:
        nonlocal at
        while open_frames and open_frames[-1][0] <= until:
            end, name = open_frames.pop()
            pieces.append((at, end, name))
            at = max(at, end)

    for start, end, name in zip(
        *(column[order].tolist() for column in (frames.start_ns, frames.end_ns, frames.name)), strict=True
    ):
        close(start)
        if open_frames:
            pieces.append((at, start, open_frames[-1][1]))
        at = start
        open_frames.append((end, name))
    close(int(frames.end_ns.max(initial=0)))
    found = np.array([piece for piece in pieces if piece[1] > piece[0]], np.int64).reshape(-1, 3)
    return found[:, 0], found[:, 1], found[:, 2]
