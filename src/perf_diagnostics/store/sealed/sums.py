"""The lines of a SHA256SUMS file, as ``sha256sum`` writes and reads them."""

from __future__ import annotations

import re

_LINE = re.compile(r"(\\?)([0-9a-f]{64}) [ *](.+)", re.DOTALL)
_ESCAPES = {"\\": "\\\\", "\n": "\\n", "\r": "\\r"}
_UNESCAPES = {"\\\\": "\\", "\\n": "\n", "\\r": "\r"}


def sums_line(path: str, checksum: str) -> str:
    """A line as sha256sum writes it: a leading backslash says that the name is escaped."""
    escaped = re.sub(r"[\\\n\r]", lambda sign: _ESCAPES[sign[0]], path)
    return f"{'' if escaped == path else chr(92)}{checksum}  {escaped}\n"


def parsed_sums(text: str) -> dict[str, str] | None:
    """Checksums by path; None where a line is not one that sha256sum writes, or a path stands twice."""
    sums: dict[str, str] = {}
    for line in text.split("\n")[:-1]:
        matched = _LINE.fullmatch(line)
        if matched is None:
            return None
        escaped, checksum, name = matched.groups()
        path = re.sub(r"\\.", lambda pair: _UNESCAPES.get(pair[0], pair[0]), name) if escaped else name
        if path in sums:
            return None
        sums[path] = checksum
    return sums if text.endswith("\n") else None
