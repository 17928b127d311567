"""Checked reading of the entries of a config.json: spellings, ranges, contradictions, defaults of transformers."""

from collections.abc import Mapping
from typing import Any, NoReturn

from cost_models.specs.errors import SpecError

MAX_WIDTH = 10_000_000
MAX_LAYERS = 10_000
MAX_HEADS = 100_000
MAX_CONTEXT = 10**9


class Keys:
    """The entries of one config.json; null counts as absent, and `notes` tells which class defaults were taken."""

    def __init__(self, entries: Mapping[str, Any], where: str, model_type: str, defaults: Mapping[str, int]) -> None:
        self.entries = entries
        self.where = where
        self.model_type = model_type
        self.defaults = defaults
        self.notes: list[str] = []

    def has(self, *spellings: str) -> bool:
        """Whether a key is there, null or not."""
        return any(key in self.entries for key in spellings)

    def whole(self, *spellings: str, default: int | None = None, at_least: int = 1, at_most: int = MAX_WIDTH) -> int:
        """Return a whole number under any of its spellings, else the type's default (with a note), else `default`.

        Raises SpecError when it is out of range, when two spellings differ, or when there is no default.
        """
        found = {key: self.entries[key] for key in spellings if self.entries.get(key) is not None}
        for key, value in found.items():
            if isinstance(value, bool) or not isinstance(value, int) or not at_least <= value <= at_most:
                self.refuse(f"{key} must be a whole number from {at_least} to {at_most}, got {_shown(value)}")
        if len(set(found.values())) > 1:
            self.refuse(" contradicts ".join(f"{key} {value}" for key, value in found.items()))
        if found:
            return int(next(iter(found.values())))
        for key in spellings:
            if key in self.defaults:
                taken = self.defaults[key]
                self.notes.append(
                    f"The config.json has no {key}: {taken}, as transformers assumes for {self.model_type}."
                )
                return taken
        if default is None:
            self.refuse(f"{spellings[0]} is required")
        return default

    def flag(self, key: str, default: bool) -> bool:
        """Return a true or false. Raises SpecError when it is neither."""
        value = self.entries.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.refuse(f"{key} must be true or false, got {_shown(value)}")
        return value

    def listed(self, key: str, *, of: type, length: int | None = None) -> list[Any] | None:
        """Return a list of whole numbers or texts, None when absent. Raises SpecError."""
        value = self.entries.get(key)
        if value is None:
            return None
        kind = {int: "whole numbers", str: "texts"}[of]
        if not isinstance(value, list) or any(not isinstance(item, of) or isinstance(item, bool) for item in value):
            self.refuse(f"{key} must be a list of {kind}, got {_shown(value)}")
        if length is not None and len(value) != length:
            self.refuse(f"{key} must have an entry for each of the {length} layers, got {len(value)}")
        return value

    def refuse(self, fault: str) -> NoReturn:
        """Raise SpecError: a fault of this file."""
        message = f"{self.where}: {fault}"
        raise SpecError(message)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
