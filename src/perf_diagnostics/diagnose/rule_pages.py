"""The rules' manual, made from their docstrings and thresholds: one rule, or the whole page."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Sequence

from perf_diagnostics.diagnose.installed import all_rules
from perf_diagnostics.diagnose.rule import SECTIONS, Named, Rule, thresholds_of
from perf_diagnostics.diagnose.rules import RULES
from perf_diagnostics.diagnose.trace.rule import AnyTraceRule
from perf_diagnostics.diagnose.trace.rules import TRACE_RULES
from perf_diagnostics.errors import InvalidSettings

_LOOKS_AT = {
    "trial": "each trial",
    "group": "trials that differ only in batch size",
    "run": "the whole run",
    "trace": "a profiler trace",
    "ranks": "the traces of all ranks",
}

#: The rules that have a page: those about runs, and those about traces that ask something no run's records answer.
PAGES: tuple[Rule | AnyTraceRule, ...] = (
    *RULES,
    *(rule for rule in TRACE_RULES if rule.code not in {known.code for known in RULES}),
)


def pages() -> tuple[Rule | AnyTraceRule, ...]:
    """:data:`PAGES` and the rules that other packages bring."""
    return (*PAGES, *all_rules()[len(RULES) :])


def explain(code: str, rules: Sequence[Rule | AnyTraceRule] = PAGES) -> str:
    """The manual of one rule, by its code or its name, as Markdown.

    Raises:
        InvalidSettings: no rule has that code.
    """
    found = next((rule for rule in rules if code.strip().lower() in (rule.code.lower(), rule.name)), None)
    if found is None:
        near = nearest(code, rules)
        like = f"the nearest are {', '.join(f'{rule.code} ({rule.name})' for rule in near)}; " if near else ""
        raise InvalidSettings(f"There is no rule {code!r}; {like}`perf-diagnostics explain` lists all {len(rules)}.")
    return page(found)


def nearest(code: str, rules: Sequence[Rule | AnyTraceRule] = PAGES) -> tuple[Rule | AnyTraceRule, ...]:
    """The rules that ``code`` may mean: three of a like code at most (first INP001 for ``INP1``), else its family, else
    three of a like name.
    """
    wanted = code.strip().lower()
    by_code, by_name = {rule.code.lower(): rule for rule in rules}, {rule.name: rule for rule in rules}
    family = wanted.rstrip("0123456789")
    number = wanted[len(family) :].lstrip("0")
    same = [word for word in by_code if number and word.rstrip("0123456789") == family and word.endswith(f"0{number}")]
    close = [*dict.fromkeys((*same, *difflib.get_close_matches(wanted, by_code, n=3)))]
    for words, alike in (
        (by_code, close[:3]),
        (by_code, [word for word in by_code if family and word.rstrip("0123456789") == family]),
        (by_name, difflib.get_close_matches(wanted, by_name, n=3)),
    ):
        if alike:
            return tuple(words[word] for word in alike)
    return ()


def rules_page(rules: Sequence[Rule | AnyTraceRule] = PAGES) -> str:
    """The manual of all rules as one Markdown page; ``docs/rules.md`` is this text."""
    lines = [
        "# Rules",
        "",
        "Made from the rules' docstrings by `perf_diagnostics.diagnose.rules_page()`; edit those.",
        "",
        "A rule answers in one of three ways: it **found** a fault, it is **clear**, or it is **unchecked** because a",
        "signal it needs was not measured. Findings are ordered by the gain that is sure, and a symptom never stands",
        'before its cause. Any threshold can be changed: `{"INP001": {"warn_share": 0.1}}`.',
        "",
        "| code | name | looks at |",
        "|---|---|---|",
        *(f"| [{rule.code}](#{_anchor(rule)}) | {rule.name} | {_LOOKS_AT[rule.looks_at]} |" for rule in rules),
        "",
    ]
    return "\n".join(lines) + "\n" + "\n".join(page(rule, level=2) for rule in rules)


def page(rule: Named, *, level: int = 1) -> str:
    """One rule as Markdown, its heading at ``level``."""
    head, body = sections_of(rule)
    hashes = "#" * level
    parts = [f"{hashes} {rule.code} {rule.name}", head]
    parts += [f"{hashes}# {title}\n\n{body[title]}" for title in SECTIONS if title in body]
    fields = thresholds_of(rule)
    if fields:
        rows = [f"| `{f.name}` | {f.default} | {f.metadata['says']} | {f.metadata['source']} |" for f in fields]
        table = ["| threshold | default | meaning | source |", "|---|---|---|---|", *rows]
        parts.append(f"{hashes}# Thresholds\n\n" + "\n".join(table))
    return "\n\n".join(parts) + "\n"


def sections_of(rule: Named) -> tuple[str, dict[str, str]]:
    """A rule's docstring: its first paragraph, and the text of each section by title, unwrapped to paragraphs."""
    head: list[str] = []
    body: dict[str, list[str]] = {}
    current = head
    for line in inspect.cleandoc(type(rule).__doc__ or "").splitlines():
        title = line.removesuffix(":")
        if line.endswith(":") and title in SECTIONS:
            current = body.setdefault(title, [])
        else:
            current.append(line.strip())
    return _joined(head), {title: _joined(lines) for title, lines in body.items()}


def _joined(lines: Sequence[str]) -> str:
    paragraphs = "\n".join(lines).strip().split("\n\n")
    return "\n\n".join(" ".join(paragraph.splitlines()) for paragraph in paragraphs)


def _anchor(rule: Named) -> str:
    return f"{rule.code.lower()}-{rule.name}"
