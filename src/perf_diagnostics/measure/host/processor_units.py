"""What units the processor has, by the kernel's word for it."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

#: As the kernel names them: AVX-512 BF16 and AMX on x86, FEAT_BF16 on Arm.
_BFLOAT16 = frozenset(("avx512_bf16", "amx_bf16", "bf16"))

_FLAGS = re.compile(r"^(?:flags|Features)\s*:(.*)$", re.MULTILINE)


def processor_flags(*, root: Path = Path("/")) -> frozenset[str] | None:
    """Names of what the first processor can do; None where the kernel does not tell (it is not Linux)."""
    try:
        text = (root / "proc" / "cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    found = _FLAGS.search(text)
    return None if found is None else frozenset(found[1].split())


@cache
def bfloat16_units(*, root: Path = Path("/")) -> bool | None:
    """Whether the processor multiplies bfloat16 in units of its own; None where nobody tells."""
    flags = processor_flags(root=root)
    return None if flags is None else bool(flags & _BFLOAT16)
