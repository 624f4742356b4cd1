"""How numbers and foreign text become words that are safe and legible in every format."""

from __future__ import annotations

import dataclasses
import enum
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from perf_diagnostics.diagnose.finding import Evidence, Unchecked
from perf_diagnostics.records import Json
from perf_diagnostics.report.model import Cell, TableColumn

T = TypeVar("T")

#: What stands where nothing was measured; formats that can say more add "not measured".
DASH = "–"

#: No text of a report is longer: a traceback or a hostile name must not bury the verdict.
TEXT_LIMIT = 2_000

#: No word is longer: typesetting one of thousands of letters takes minutes, and nobody reads it.
WORD_LIMIT = 160

# Control characters (line feeds and tabs become spaces), marks that turn the reading direction, lone surrogates and
# the two non-characters: illegal in XML, able to hide text from the reader, or both.
_UNFIT = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff\ufffe\uffff\ud800-\udfff]"
)
_ENDLESS = re.compile(rf"(\S{{{WORD_LIMIT - 1}}})\S{{2,}}")
# A number and the unit or sign after it, which must not be torn apart at a line's end.
_TORN = re.compile(r"(?<=\d) (?=%|ms\b|µs\b|s\b|J\b|W\b|[KMG]iB\b|samples/s|times\b|steps?\b)")
_BLANKS = re.compile(r"[ \t\r\n\u2028\u2029]+")


def plain(text: str, limit: int = TEXT_LIMIT) -> str:
    """One line of text without characters that break a format or mislead a reader, cut at ``limit`` characters."""
    line = _BLANKS.sub(" ", _UNFIT.sub("\N{REPLACEMENT CHARACTER}", text)).strip()
    line = _ENDLESS.sub(r"\1…", line)
    return line if len(line) <= limit else line[: limit - 1].rstrip(" .,;:") + "…"


def clean(value: T) -> T:
    """The same value with every text in it made :func:`plain`; values of dataclasses, tuples and mappings included."""
    cleaned: T = _clean(value)
    return cleaned


def _clean(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return value
    if isinstance(value, str):
        return plain(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        changed = {f.name: _clean(getattr(value, f.name)) for f in dataclasses.fields(value) if f.init}
        return dataclasses.replace(value, **changed)
    if isinstance(value, tuple | list):
        return type(value)(_clean(item) for item in value)
    if isinstance(value, Mapping):
        return {_clean(name): _clean(item) for name, item in value.items()}
    return value


def is_number(value: object) -> bool:
    """True for a finite number; truth values are not numbers here."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def number(value: Cell, digits: int = 3) -> str:
    """A value with ``digits`` significant digits and thousands apart; whole parts are never cut.

    >>> number(12345.6), number(12.345), number(0.0), number(None), number(8)
    ('12,346', '12.3', '0', '–', '8')
    """
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return DASH
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return f"{value:,}"
    if value == 0:
        return "0"
    size = math.floor(math.log10(abs(float(f"{value:.{digits - 1}e}"))))
    if size < -4 or size > 11:
        return f"{value:.{digits - 1}e}"
    return f"{value:,.{max(0, digits - 1 - size)}f}"


def percent(share: float | None) -> str:
    """A share in 0…1 as a percentage with one decimal; a small share is not rounded to nothing.

    >>> percent(0.1234), percent(0.0), percent(0.0001), percent(None)
    ('12.3 %', '0 %', '<0.1 %', '–')
    """
    if share is None or not math.isfinite(share):
        return DASH
    return f"{_percentage(100 * share)} %"


def _percentage(value: float) -> str:
    if value == 0:
        return "0"
    if abs(value) < 0.05:
        return "<0.1" if value > 0 else ">-0.1"
    return f"{value:.1f}"


def cell(value: Cell, column: TableColumn) -> str:
    """A table's value as text; percentages get one decimal so that they can be compared down a column."""
    if column.unit == "%" and isinstance(value, float) and math.isfinite(value):
        return _percentage(value)
    return number(value, column.digits)


def figure(value: float | None, unit: str) -> str:
    """A chart's value as text, where its unit stands elsewhere; percentages with one decimal, as in tables.

    >>> figure(0.5, "%"), figure(0.0133, "%"), figure(12.345, "ms"), figure(None, "%")
    ('0.5', '<0.1', '12.3', '–')
    """
    return _percentage(value) if unit == "%" and value is not None and math.isfinite(value) else number(value)


def amount(value: float | None, unit: str) -> str:
    """A value with its unit as it stands beside a mark.

    >>> amount(0.5, "%"), amount(12.345, "ms"), amount(None, "ms")
    ('0.5 %', '12.3 ms', '–')
    """
    return DASH if value is None else f"{figure(value, unit)} {unit}".strip()


def heading(column: TableColumn) -> str:
    """A column's label with its unit."""
    return f"{column.label} ({column.unit})" if column.unit else column.label


def between(low: float, high: float) -> str:
    """The two ends of an interval, with as many digits as tell them apart.

    >>> between(12.08, 12.71), between(2541.0, 2619.0), between(5.0, 5.0)
    ('12.08 to 12.71', '2,541 to 2,619', '5.00 to 5.00')
    """
    width = abs(high - low)
    if width == 0:
        return f"{number(low)} to {number(high)}"
    places = min(8, max(0, 1 - math.floor(math.log10(width))))
    return f"{low:,.{places}f} to {high:,.{places}f}"


def tie(text: str) -> str:
    """The same text with no-break spaces between numbers and their units."""
    return _TORN.sub("\N{NO-BREAK SPACE}", text)


def listing(parts: list[str]) -> str:
    """Words in a row: ``a``, ``a and b``, ``a, b and c``."""
    if len(parts) < 2:
        return "".join(parts)
    return f"{', '.join(parts[:-1])} and {parts[-1]}"


def counted(count: int, noun: str, plural: str = "") -> str:
    """``1 trial``, ``3 trials``."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def below_its_label(headline: str) -> str:
    """A headline below the words “No verdict”, which it need not say again.

    >>> below_its_label("No verdict: no trial completed."), below_its_label("torch.compile gave up.")
    ('No trial completed.', 'torch.compile gave up.')
    """
    told = headline.removeprefix("No verdict: ")
    return headline if told == headline else told[:1].upper() + told[1:]


def without_its_name(signal: str, why: str) -> str:
    """Why a signal is missing, for a place beside its name, which need not be said again.

    >>> without_its_name("graphs", "graphs was not recorded: what torch.compile compiled")
    'not recorded: what torch.compile compiled'
    """
    return why.removeprefix(f"{signal} was ")


def could_not_look(why: str, rules: Sequence[Unchecked]) -> str:
    """Why a rule could not look, or the codes of several that could not for the same reason."""
    if len(rules) > 1:
        return f"{', '.join(rule.code for rule in rules)}: {why}"
    rule = rules[0]
    return f"{rule.code} {rule.name.replace('-', ' ')}: needs {rule.signal}; {without_its_name(rule.signal, why)}"


#: The columns of a finding's evidence, and which of them are numbers.
EVIDENCE_HEADS = ("Evidence", "Value", "95 % interval", "Limit", "Unit", "n", "Source")
EVIDENCE_NUMERIC = (False, True, True, True, False, True, False)


def evidence_number(value: Cell, unit: str) -> str:
    """A number of a finding: what has no unit and no fraction is a count, and is shown as one.

    >>> evidence_number(1.0, ""), evidence_number(1.5, ""), evidence_number(1.0, "ms")
    ('1', '1.50', '1.00')
    """
    counts = unit in ("", "1") and isinstance(value, float) and value.is_integer()
    return number(int(value) if counts and isinstance(value, float) else value)


def evidence_cells(item: Evidence) -> tuple[str, ...]:
    """One number of a finding in those columns."""
    item = _in_a_large_unit(item)
    interval = DASH if item.low is None or item.high is None else between(item.low, item.high)
    value, limit = (evidence_number(one, item.unit) for one in (item.value, item.limit))
    return (item.metric, value, interval, limit, item.unit, number(item.n), item.source)


def _in_a_large_unit(item: Evidence) -> Evidence:
    """The same number with bytes in the unit in which they read well."""
    if item.unit != "bytes" or isinstance(item.value, str) or item.value < 1024:
        return item
    unit = byte_unit(item.value)
    low, high, limit = (unit.of(one) for one in (item.low, item.high, item.limit))
    return dataclasses.replace(item, value=item.value / unit.size, low=low, high=high, limit=limit, unit=unit.name)


def change_in_code(change: Mapping[str, Json]) -> str:
    """A change of settings as it is written in code: ``batch_size=32, optimizer_implementation='fused'``."""
    return ", ".join(f"{name}={value!r}" for name, value in change.items())


def moment(generated_at: str) -> str:
    """A time stamp such as ``2026-11-21T09:30:00Z`` as ``2026-11-21 09:30 UTC``; any other text stays as it is."""
    found = re.fullmatch(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d)(?::\d\d(?:\.\d+)?)?(Z|\+00:00)", generated_at)
    return f"{found[1]} {found[2]} UTC" if found else generated_at


@dataclasses.dataclass(frozen=True)
class Unit:
    """A unit to show numbers in, and how many of the base unit make one."""

    name: str
    size: float

    def of(self, value: float | None) -> float | None:
        """A value of the base unit in this unit; None stays None."""
        return None if value is None else value / self.size


def byte_unit(largest: float) -> Unit:
    """The unit in which the largest of some amounts of memory reads well; amounts are in bytes."""
    for name, size in (("GiB", 2**30), ("MiB", 2**20)):
        if largest >= size:
            return Unit(name, float(size))
    return Unit("KiB", 1024.0)


def time_unit(largest_s: float) -> Unit:
    """The unit in which the largest of some durations reads well; durations are in seconds."""
    if largest_s >= 10:
        return Unit("s", 1.0)
    return Unit("ms", 1e-3) if largest_s >= 1e-3 else Unit("µs", 1e-6)


def operation_unit(largest: float) -> Unit:
    """The unit in which the largest of some counts (or rates) of floating point operations reads well."""
    for name, size in (("TFLOP", 1e12), ("GFLOP", 1e9)):
        if largest >= size:
            return Unit(name, size)
    return Unit("MFLOP", 1e6)
