"""The colours of drawings and pages, by what they stand for, on a light and on a dark page.

Hues are those that people with any colour vision tell apart (Okabe and Ito), toned until they stand out from the page;
tests compute it. Nothing is told by colour alone: what is coloured is named beside it or under the pointer.
"""

from collections.abc import Mapping

__all__ = ["DARK", "LIGHT", "UPPER", "declarations"]

LIGHT: Mapping[str, str] = {
    "page": "#ffffff",
    "ground": "#f6f7f9",
    "ink": "#1c222a",
    "faint": "#5a6572",
    "line": "#d8dde3",
    "idle": "#eef1f4",
    "accent": "#0b5cad",
    "good": "#00734f",
    "bad": "#b3341c",
    # Work of a rank: forward, backward, input gradient, weight gradient, edges of a step; critical path, memory.
    "f": "#2f6fc4",
    "b": "#1f7f57",
    "i": "#1f7f57",
    "w": "#a56a00",
    "e": "#717b87",
    "c": "#101418",
    "m": "#8571cf",
    "on": "#ffffff",
    # What fills a GPU.
    "params": "#2f6fc4",
    "grads": "#d0580c",
    "optim": "#7d2a6b",
    "activ": "#128a63",
    "other": "#7b8590",
    # What a step is spent on.
    "work": "#2f6fc4",
    "exchange": "#d0580c",
    "wait": "#6a7480",
    # From little to much, in a heat map, and what is written on the lower and on the upper part of it.
    "low": "#c2daf0",
    "high": "#06264f",
    "on-low": "#000000",
    "on-high": "#ffffff",
}
DARK: Mapping[str, str] = {
    "page": "#171b21",
    "ground": "#0f1318",
    "ink": "#e4e9ef",
    "faint": "#98a4b1",
    "line": "#333c47",
    "idle": "#222932",
    "accent": "#79b4ff",
    "good": "#4fd0a0",
    "bad": "#ff8c73",
    "f": "#6aa6f5",
    "b": "#3fb884",
    "i": "#3fb884",
    "w": "#e5ac40",
    "e": "#8d98a5",
    "c": "#ffffff",
    "m": "#8d7bd6",
    "on": "#0e1216",
    "params": "#6aa6f5",
    "grads": "#f0873f",
    "optim": "#b0609b",
    "activ": "#3dba88",
    "other": "#a7b1bc",
    "work": "#6aa6f5",
    "exchange": "#f0873f",
    "wait": "#8d98a5",
    "low": "#1d3650",
    "high": "#82afe6",
    "on-low": "#ffffff",
    "on-high": "#000000",
}

UPPER = 55.0
"""Percent of the way from little to much from which a heat map's cells take the writing of the upper part."""


def declarations(colours: Mapping[str, str]) -> str:
    """The colours as CSS variables.

    >>> declarations({"ink": "#000000", "page": "#ffffff"})
    '--ink:#000000;--page:#ffffff'
    """
    return ";".join(f"--{name}:{colour}" for name, colour in colours.items())
