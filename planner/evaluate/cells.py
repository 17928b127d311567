"""The cells of one row, with what its notes add and what had to be assumed.

Notes are `key=value` parts between semicolons; `INFERRED{key=value,...}` holds values of the row's own columns that
whoever wrote the row concluded from elsewhere. A filled cell comes before its note.
"""

import math
import re
from collections.abc import Mapping
from typing import Any

from planner.evaluate.errors import InvalidRunError

__all__ = ["Cells"]

INFERRED = re.compile(r"INFERRED\{([^}]*)\}")
# `key=value` or `key: value`; a key is one or two words.
PAIR = re.compile(r"^\s*([A-Za-z]\w*(?: \w+)?)\s*[=:]\s*(.+?)\s*$")
# Cells of a table that say that nothing is known.
UNKNOWN = frozenset({"", "-", "nan", "none given", "n/a", "na", "null", "?"})
MAX_WHOLE = 10**12


class Cells:
    """One row. `assumed` collects a sentence for every value that no cell gave."""

    def __init__(self, row: Mapping[str, Any]) -> None:
        self.row = {str(name): _text(value) for name, value in row.items()}
        self.notes = _pairs(self.row.get("notes", ""))
        self.inferred = _inferred(self.row.get("notes", ""))
        self.assumed: list[str] = []

    def text(self, column: str) -> str:
        """The text of a cell, or what the notes infer for it; empty when nobody says."""
        given = self.row.get(column, "")
        if given:
            return given
        inferred = self.inferred.get(column, "")
        if inferred:
            self._tell(column, inferred, "inferred in notes")
        return inferred

    def note(self, key: str) -> str:
        """The value of a note, empty without one."""
        return self.notes.get(key, "")

    def says(self, *words: str) -> bool:
        """Whether the notes contain one of the words."""
        notes = self.row.get("notes", "").lower()
        return any(word.lower() in notes for word in words)

    def whole(self, column: str, least: int = 1) -> int | None:
        """The whole number of a cell, None when nobody says. Raises InvalidRunError."""
        text = self.text(column)
        if not text:
            return None
        number = self._number(column, text)
        if number != int(number) or not least <= number <= MAX_WHOLE:
            message = f"{column} must be a whole number >= {least}, got {text}"
            raise InvalidRunError(message)
        return int(number)

    def number(self, column: str) -> float | None:
        """The number of a cell, None when nobody says. Raises InvalidRunError."""
        text = self.text(column)
        return self._number(column, text) if text else None

    def assume(self, column: str, value: Any, why: str = "assumed") -> Any:
        """The value, which no cell gave."""
        self._tell(column, value, why)
        return value

    def _tell(self, column: str, value: Any, why: str) -> None:
        sentence = f"{column}={value} ({why})"
        if sentence not in self.assumed:
            self.assumed.append(sentence)

    @staticmethod
    def _number(column: str, text: str) -> float:
        try:
            number = float(text.replace(",", ""))
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            message = f"{column} must be a number, got {text}"
            raise InvalidRunError(message)
        return number


def _text(value: Any) -> str:
    text = "" if value is None else str(value).strip()
    return "" if text.lower() in UNKNOWN else text


def _pairs(notes: str) -> dict[str, str]:
    found = (PAIR.match(part) for part in INFERRED.sub("", notes).split(";"))
    return {match[1].lower(): match[2] for match in found if match}


def _inferred(notes: str) -> dict[str, str]:
    pairs = (part.partition("=") for block in INFERRED.findall(notes) for part in block.split(","))
    return {name.strip(): value.strip() for name, equals, value in pairs if equals}
