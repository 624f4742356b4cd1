"""The colours of a report, light and dark, chosen to stay apart for colour-blind readers.

The six phase colours were searched for the largest distance (CIELAB) between any two of them under full colour vision
and under simulated protanopia, deuteranopia and tritanopia (Machado, Oliveira and Fernandes 2009), each with a
contrast of at least 3 : 1 against its background (WCAG 2.2, 1.4.11). Text colours reach 4.5 : 1. Tests recompute both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Theme:
    """One set of colours; ``marks`` are what charts are drawn in, by phase and by number of the series."""

    page: str
    surface: str
    raised: str
    text: str
    muted: str
    line: str
    accent: str
    critical: str
    warning: str
    info: str
    good: str
    marks: Mapping[str, str]


LIGHT = Theme(
    page="#F6F7F9",
    surface="#FFFFFF",
    raised="#F0F2F6",
    text="#1B2130",
    muted="#566074",
    line="#DCE0E8",
    accent="#1F57A8",
    critical="#B3261E",
    warning="#8A5200",
    info="#1F57A8",
    good="#1B6B3C",
    marks={
        "data_wait": "#DB7708",
        "transfer": "#5F5200",
        "forward": "#3A9ADA",
        "backward": "#123F8C",
        "optimizer": "#862456",
        "other": "#8F949B",
        "1": "#1F57A8",
        "2": "#DB7708",
        "3": "#862456",
        "4": "#3A9ADA",
        "5": "#5F5200",
        "6": "#8F949B",
    },
)

DARK = Theme(
    page="#10131A",
    surface="#181C25",
    raised="#212734",
    text="#E7EAF1",
    muted="#A4AEC0",
    line="#323A4A",
    accent="#8AB8FF",
    critical="#FF9A90",
    warning="#F5B85C",
    info="#8AB8FF",
    good="#7FD3A0",
    marks={
        "data_wait": "#E2622C",
        "transfer": "#F7CD8B",
        "forward": "#4ABCF5",
        "backward": "#4672DD",
        "optimizer": "#BD6A8E",
        "other": "#D3DDE6",
        "1": "#8AB8FF",
        "2": "#F39A4A",
        "3": "#D98AB4",
        "4": "#4ABCF5",
        "5": "#F7CD8B",
        "6": "#D3DDE6",
    },
)

SERIES_COLOURS = 6

_ROLES = ("page", "surface", "raised", "text", "muted", "line", "accent", "critical", "warning", "info", "good")


def series_mark(key: str, position: int) -> str:
    """The name of a series' colour: its key if it is a known one, else the next colour; ``position`` counts from 0."""
    return key if key in LIGHT.marks else str(position % SERIES_COLOURS + 1)


def css_variables(theme: Theme) -> str:
    """The theme as CSS custom properties: ``--text:#1B2130;--mark-forward:#3A9ADA;…``."""
    roles = [f"--{role}:{getattr(theme, role)}" for role in _ROLES]
    marks = [f"--mark-{name.replace('_', '-')}:{colour}" for name, colour in theme.marks.items()]
    return ";".join([*roles, *marks]) + ";"


@dataclass(frozen=True)
class Ink:
    """Where a drawing gets its colours from: a theme's own values, or CSS variables that follow the reader's theme."""

    theme: Theme | None = None

    def role(self, name: str) -> str:
        """The colour of a role such as ``text`` or ``line``."""
        return f"var(--{name})" if self.theme is None else str(getattr(self.theme, name))

    def mark(self, name: str) -> str:
        """The colour of a series by the name :func:`series_mark` gave it."""
        return f"var(--mark-{name.replace('_', '-')})" if self.theme is None else self.theme.marks[name]


THEMED = Ink()
PRINTED = Ink(LIGHT)
