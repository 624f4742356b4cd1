"""What a file of the kernel's says: /proc, /sys."""

from __future__ import annotations

from pathlib import Path


def kernel_text(file: Path) -> str | None:
    """All of it, or None where the kernel has no such file or hides it; a process may have ended just now."""
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
