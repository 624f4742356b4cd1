"""Dropout's masks on the CPU, drawn 16 bits a number from whole random words instead of a random number for each.

torch's own kernel (``bernoulli_``) takes 8 to 15 ns a number, in one thread, this one 2 to 3 (torch 2.13, one core of a
cloud machine, masks of 92,160 numbers, at two times of a day).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch

from perf_diagnostics.errors import InvalidSettings

#: So many bits decide about a number: a probability is rounded to 1/65,536.
_BITS = 16

#: Random words have 64 bits, from the smallest whole number on.
_WORD_BITS, _LOWEST = 64, -(1 << 63)

_PER_WORD = _WORD_BITS // _BITS


def drawn_from_bits(mask: torch.Tensor, p: float, generator: torch.Generator | None = None) -> torch.Tensor:
    """Fill a tensor on the CPU with ones, each by probability ``p`` rounded to 1/65,536, else zeros, and return it.

    Args:
        mask: of any shape and type.
        p: 0 to 1.
        generator: draws the words; default: torch's own.
    """
    ones = round(p * (1 << _BITS))
    if ones == 1 << _BITS:
        return mask.fill_(1)
    words = torch.empty((mask.numel() + _PER_WORD - 1) // _PER_WORD, dtype=torch.int64)
    drawn = words.random_(_LOWEST, None, generator=generator).view(torch.int16)[: mask.numel()]
    return mask.copy_((drawn < ones - (1 << (_BITS - 1))).view(mask.shape))


def masks_from_bits(drew: Callable[[], object] | None = None) -> Callable[[], None]:
    """From now on torch draws masks on the CPU (dropout's, attention's) by :func:`drawn_from_bits`; undone by a call.

    Other random numbers than before of the same seed, by the same distribution. Threads of the process share it;
    compiled models draw in their own way. Asked for several times, it holds until each time is undone.

    Args:
        drew: is called for each mask.

    Raises:
        InvalidSettings: this torch cannot take its own kernel back afterwards.
    """
    if not hasattr(torch.library.Library, "_destroy"):
        raise InvalidSettings(
            f"masks_from_bits needs a torch that takes a kernel back, which {torch.__version__} does not: leave it out."
        )
    asked = _Asked(drew)
    _ASKED.append(asked)
    if len(_ASKED) == 1:
        _put_in()

    def undo() -> None:
        if asked in _ASKED:
            _ASKED.remove(asked)
            if not _ASKED:
                _KERNELS.pop()._destroy()  # type: ignore[no-untyped-call]

    return undo


@dataclass(eq=False)
class _Asked:
    drew: Callable[[], object] | None


#: Who asked for it and has not undone it, and the library with the kernel: a library that nobody holds takes its
#: kernels with it, and a script drops what the function gives.
_ASKED: list[_Asked] = []
_KERNELS: list[torch.library.Library] = []


def _put_in() -> None:
    library = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="(?s).*Overriding a previously registered kernel")
        library.impl("bernoulli_.float", _bernoulli, "CPU")  # type: ignore[no-untyped-call]
    _KERNELS.append(library)


def _bernoulli(mask: torch.Tensor, p: float = 0.5, *, generator: torch.Generator | None = None) -> torch.Tensor:
    if not 0 <= p <= 1:
        raise RuntimeError(f"bernoulli_ expects p to be in [0, 1], but got p={p}")
    for asked in _ASKED:
        if asked.drew is not None:
            asked.drew()
    return drawn_from_bits(mask, p, generator)
