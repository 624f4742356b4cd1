"""What Prometheus demands of a text file (exposition format 0.0.4), and the node exporter's textfile collector besides.

https://prometheus.io/docs/instrumenting/exposition_formats: one HELP and one TYPE a name, before its first sample; all
lines of a name in one group; names, labels and escapes as given there; a sample only once; the last line ends. The
collector refuses times. prometheus_client's parser reads more than this and says less of what is wrong.
"""

from __future__ import annotations

import re

_METRIC = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*"'
_SAMPLE = re.compile(rf"(?P<name>{_METRIC})(?:\{{(?P<labels>(?:{_LABEL}(?:,{_LABEL})*,?)?)\}})? (?P<value>\S+)")
_ABOUT = re.compile(rf"# (?P<what>HELP|TYPE) (?P<name>{_METRIC}) (?P<rest>.*)")
_HELP = re.compile(r"(?:[^\\]|\\[\\n])*")
_TYPES = ("counter", "gauge", "histogram", "summary", "untyped")


def problems_of(text: str) -> list[str]:
    """What is wrong with a text file, in words; nothing where it keeps the rules."""
    found = [] if not text or text.endswith("\n") else ["the last line does not end"]
    about: set[tuple[str, str]] = set()
    groups: list[str] = []
    samples: set[tuple[str, frozenset[tuple[str, str]]]] = set()
    for line in text.split("\n"):
        if not line:
            continue
        told, sample = _ABOUT.fullmatch(line), _SAMPLE.fullmatch(line)
        name = (told or sample or {"name": ""})["name"]
        if not name:
            found.append(f"no line of the format: {line!r:.100}")
            continue
        if not groups or groups[-1] != name:
            if name in groups:
                found.append(f"{name} has lines in two places")
            groups.append(name)
        if told is not None:
            found += _of_about(told["what"], name, told["rest"], about, seen=any(one == name for one, _ in samples))
        if sample is not None:
            found += _of_sample(name, sample["labels"] or "", sample["value"], samples)
            found += [f"{name} has no {what}" for what in ("HELP", "TYPE") if (what, name) not in about]
    return found


def _of_about(what: str, name: str, rest: str, about: set[tuple[str, str]], *, seen: bool) -> list[str]:
    found = []
    if (what, name) in about:
        found.append(f"{name} has {what} twice")
    if seen:
        found.append(f"{what} of {name} comes after a sample")
    if what == "TYPE" and rest not in _TYPES:
        found.append(f"{name} is of no type: {rest}")
    if what == "HELP" and not _HELP.fullmatch(rest):
        found.append(f"a backslash in HELP of {name}")
    about.add((what, name))
    return found


def _of_sample(name: str, labels: str, value: str, samples: set[tuple[str, frozenset[tuple[str, str]]]]) -> list[str]:
    pairs = [tuple(pair.split("=", 1)) for pair in re.findall(_LABEL, labels)]
    names = [pair[0] for pair in pairs]
    found = [f"label {one} of {name} is Prometheus's own" for one in names if one.startswith("__")]
    if len(set(names)) < len(names):
        found.append(f"{name} has a label twice")
    try:
        float(value)  # NaN, +Inf and -Inf among them, as Go's ParseFloat
    except ValueError:
        found.append(f"{name} is no number: {value}")
    if "_" in value:
        found.append(f"{name} is no number: {value}")
    key = name, frozenset((one[0], one[1]) for one in pairs)
    if key in samples:
        found.append(f"{name} has one sample twice")
    samples.add(key)
    return found
