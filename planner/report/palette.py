"""The colours of drawings and pages, by what they stand for, on a light and on a dark page.

Hues are those that people with any colour vision tell apart (Okabe and Ito), toned until they stand out from the page;
tests compute it. Nothing is told by colour alone: what is coloured is named beside it or under the pointer.
"""

from collections.abc import Mapping

__all__ = ["DARK", "LIGHT", "declarations"]

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
    "c": "#d6336c",
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
    # From little to much, in a heat map.
    "low": "#cfe3f7",
    "high": "#0a3d7c",
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
    "c": "#ff6b9a",
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
    "high": "#9ccbff",
}


def declarations(colours: Mapping[str, str]) -> str:
    """The colours as CSS variables.

    >>> declarations({"ink": "#000000", "page": "#ffffff"})
    '--ink:#000000;--page:#ffffff'
    """
    return ";".join(f"--{name}:{colour}" for name, colour in colours.items())
