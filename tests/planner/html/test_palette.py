"""The colours: they stand out from what is behind them, and people with any colour vision tell them apart."""

import itertools

import numpy as np
import pytest

from planner.report.palette import DARK, LIGHT, UPPER

THEMES = {"light": LIGHT, "dark": DARK}
BEHIND = ("page", "ground", "idle")
TEXT = ("ink", "faint", "accent", "good", "bad")
# Marks that stand for something, by the drawing they share.
MARKS = {
    "memory": ("params", "grads", "optim", "activ", "other"),
    "time": ("work", "exchange", "wait"),
    "timeline": ("f", "b", "w", "e", "c"),
}
# How the eye sees that lacks a kind of cone: Machado, Oliveira and Fernandes 2009, severity 1.
VISION = {
    "any": np.eye(3),
    "no red": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "no green": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "no blue": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)
WHITE = np.array([0.95047, 1.0, 1.08883])


def linear(colour: str) -> np.ndarray:
    """Light of the three primaries, between 0 and 1."""
    channels = np.array([int(colour[index : index + 2], 16) for index in (1, 3, 5)]) / 255
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def contrast(first: str, second: str) -> float:
    """The ratio of WCAG 2, between 1 and 21."""
    darker, lighter = sorted(float(linear(colour) @ TO_XYZ[1]) for colour in (first, second))
    return (lighter + 0.05) / (darker + 0.05)


def lab(light: np.ndarray) -> np.ndarray:
    """CIE L*a*b* of light of the primaries."""
    ratio = TO_XYZ @ np.clip(light, 0, 1) / WHITE
    root = np.where(ratio > 216 / 24389, np.cbrt(ratio), (24389 / 27 * ratio + 16) / 116)
    return np.array([116 * root[1] - 16, 500 * (root[0] - root[1]), 200 * (root[1] - root[2])])


def mixed(low: str, high: str, share: float) -> str:
    """A colour between two, as `color-mix(in srgb, ...)` makes it."""
    pairs = [(int(low[index : index + 2], 16), int(high[index : index + 2], 16)) for index in (1, 3, 5)]
    return "#" + "".join(f"{round(first + share * (second - first)):02x}" for first, second in pairs)


def test_contrast_is_that_of_the_standard() -> None:
    """Black on white is 21; the grey that the standard's text gives as just enough is."""
    assert contrast("#000000", "#ffffff") == pytest.approx(21.0)
    assert contrast("#767676", "#ffffff") == pytest.approx(4.54, abs=0.01)


@pytest.mark.parametrize("theme", THEMES)
def test_text_can_be_read(theme: str) -> None:
    """4.5 to one on all that it stands on."""
    colours = THEMES[theme]
    for name, behind in itertools.product(TEXT, BEHIND):
        assert contrast(colours[name], colours[behind]) >= 4.5, (name, behind)


@pytest.mark.parametrize("theme", THEMES)
def test_marks_stand_out(theme: str) -> None:
    """3 to one from page and track, and from the numbers on them."""
    colours = THEMES[theme]
    for name in itertools.chain(*MARKS.values()):
        assert contrast(colours[name], colours["page"]) >= 3.0, name
        assert contrast(colours[name], colours["idle"]) >= 3.0, name
    for name in ("f", "b", "i", "w"):
        assert contrast(colours[name], colours["on"]) >= 4.5, name


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("vision", VISION)
def test_colours_are_told_apart(theme: str, vision: str) -> None:
    """Colours of one drawing are far apart in L*a*b*, as every kind of eye sees them: 12, where 2.3 is just seen."""
    colours = THEMES[theme]
    for drawing, names in MARKS.items():
        seen = {name: lab(VISION[vision] @ linear(colours[name])) for name in names}
        for first, second in itertools.combinations(names, 2):
            assert np.linalg.norm(seen[first] - seen[second]) >= 12, (drawing, first, second)


@pytest.mark.parametrize("theme", THEMES)
def test_heat_maps_can_be_read(theme: str) -> None:
    """What is written on a cell is 4.5 to one from it, wherever between little and much that is."""
    colours = THEMES[theme]
    for percent in np.linspace(0, 100, 201):
        cell = mixed(colours["low"], colours["high"], percent / 100)
        writing = colours["on-high" if percent >= UPPER else "on-low"]
        assert contrast(cell, writing) >= 4.5, percent


def test_both_themes_have_all_colours() -> None:
    """The dark page lacks none."""
    assert list(LIGHT) == list(DARK)
