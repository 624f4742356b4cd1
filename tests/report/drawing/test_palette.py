"""The colours: apart for every kind of colour vision, and dark enough or light enough to read."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from perf_diagnostics.records import ALL_PHASES
from perf_diagnostics.report.drawing.palette import DARK, LIGHT, PRINTED, THEMED, css_variables, series_mark

#: Machado, Oliveira and Fernandes (2009), severity 1.0, on linear RGB.
VISION = {
    "full": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
#: Two colours this far apart in CIELAB are told apart at a glance; 2.3 is a just noticeable difference.
APART = 20
THEMES = {"light": LIGHT, "dark": DARK}


def linear(colour: str) -> np.ndarray:
    parts = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def lab(rgb: np.ndarray) -> np.ndarray:
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = to_xyz @ np.clip(rgb, 0, 1) / np.array([0.95047, 1.0, 1.08883])
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def contrast(one: str, other: str) -> float:
    light, dark = sorted((float(np.dot([0.2126, 0.7152, 0.0722], linear(c))) for c in (one, other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", THEMES.values(), ids=THEMES)
@pytest.mark.parametrize("vision", VISION.values(), ids=VISION)
def test_phases_stay_apart_for_colour_blind_readers(theme, vision):
    seen = {phase: lab(vision @ linear(theme.marks[phase])) for phase in ALL_PHASES}
    for one, other in itertools.combinations(ALL_PHASES, 2):
        assert np.linalg.norm(seen[one] - seen[other]) > APART, (one, other)


@pytest.mark.parametrize("theme", THEMES.values(), ids=THEMES)
def test_marks_and_words_stand_out_from_their_background(theme):
    for name, colour in theme.marks.items():
        assert contrast(colour, theme.surface) >= 3.0, name
    for role in ("text", "muted", "accent", "critical", "warning", "info", "good"):
        for behind in ("page", "surface", "raised"):
            assert contrast(getattr(theme, role), getattr(theme, behind)) >= 4.5, (role, behind)


def test_a_series_gets_the_colour_of_its_key_or_of_its_place():
    assert series_mark("forward", 3) == "forward"
    assert [series_mark("", i) for i in range(7)] == ["1", "2", "3", "4", "5", "6", "1"]
    assert series_mark("anything else", 1) == "2"


def test_ink_is_a_variable_on_screen_and_a_colour_on_paper():
    assert THEMED.mark("data_wait") == "var(--mark-data-wait)"
    assert PRINTED.mark("data_wait") == LIGHT.marks["data_wait"]
    assert PRINTED.role("text") == LIGHT.text
    assert f"--mark-data-wait:{DARK.marks['data_wait']};" in css_variables(DARK)
