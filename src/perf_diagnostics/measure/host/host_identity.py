"""Which machine a process runs on, and whose clock it reads: so that processes can be told together or apart later."""

from __future__ import annotations

import hashlib
import platform
import uuid
from dataclasses import dataclass
from pathlib import Path

from perf_diagnostics.measure.host.kernel_text import kernel_text

_DIGITS = 12


@dataclass(frozen=True)
class HostIdentity:
    """``host``: the same for all processes of a machine between two of its starts. ``clock``: of those of them whose
    ``CLOCK_MONOTONIC`` (``time.perf_counter_ns`` on Linux) shows the same time. Both are hashes, and name nobody.
    """

    host: str
    clock: str

    @classmethod
    def here(cls, *, root: Path = Path("/")) -> HostIdentity:
        """This process's.

        By the kernel's random boot id (``/proc/sys/kernel/random/boot_id``, proc(5)), which containers of one machine
        share, as they share its clock; a time namespace (time_namespaces(7)) has a clock of its own. Where there is no
        boot id, the machine's name and network address stand for it.
        """
        boot = (kernel_text(root / "proc" / "sys" / "kernel" / "random" / "boot_id") or "").strip()
        host = boot or f"{platform.node()} {uuid.getnode():012x}"
        return cls(_hashed(host), _hashed(f"{host} {_link(root / 'proc' / 'self' / 'ns' / 'time')}"))


def _hashed(text: str) -> str:
    return hashlib.sha256(f"perf_diagnostics {text}".encode()).hexdigest()[:_DIGITS]


def _link(path: Path) -> str:
    """Where a link leads, ``time:[4026531834]``; empty where there is none."""
    try:
        return str(path.readlink())
    except OSError:
        return ""
