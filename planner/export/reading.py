"""Values of a launcher's file, checked one by one: what is read is what was meant, or an error names the key."""

import ast
import json
from collections.abc import Mapping, Sequence
from typing import Any

from planner.errors import LauncherFileError

__all__ = ["Section", "json_table", "literals", "yaml_table", "yaml_text"]


class Section:
    """A table of a launcher's file; `name` is the path to it. Raises LauncherFileError for what is missing or odd."""

    def __init__(self, values: Mapping[str, Any], name: str = "") -> None:
        self._values, self._name = values, name

    def __contains__(self, key: str) -> bool:
        return self._values.get(key) is not None

    def section(self, key: str) -> "Section":
        """A table inside; an empty one where there is none."""
        inside = self._values.get(key) or {}
        if not isinstance(inside, Mapping):
            raise self._wrong(key, "a table", inside)
        return Section(inside, f"{self._name}{key}.")

    def integer(self, key: str, default: int | None = None) -> int:
        """A whole number of at least 0."""
        value = self._single(key, default)
        if isinstance(value, bool) or not str(value).isdecimal():
            raise self._wrong(key, "a whole number", value)
        return int(value)

    def number(self, key: str, default: float | None = None) -> float:
        """A number between 0 and 1."""
        value = self._single(key, default)
        try:
            number = float(value)
        except (TypeError, ValueError):
            raise self._wrong(key, "a number", value) from None
        if not 0 <= number <= 1:
            raise self._wrong(key, "a number between 0 and 1", value)
        return number

    def flag(self, key: str, default: bool = False) -> bool:
        """A truth value; a name without a value is true."""
        value = self._values.get(key, default)
        if value in ([], "true", "True", True):
            return True
        if value in ("false", "False", False, None):
            return False
        raise self._wrong(key, "true or false", value)

    def word(self, key: str, allowed: Sequence[str], default: str | None = None) -> str:
        """One of some words."""
        value = self._single(key, default)
        if value not in allowed:
            raise self._wrong(key, f"one of {', '.join(allowed)}", value)
        return str(value)

    def text(self, key: str, default: str | None = None) -> str:
        """Any text."""
        return str(self._single(key, default))

    def items(self, key: str) -> list[Any]:
        """A list; an empty one where there is none."""
        value = self._values.get(key) or []
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise self._wrong(key, "a list", value)
        return list(value)

    def _single(self, key: str, default: Any) -> Any:
        value = self._values.get(key)
        if isinstance(value, list):
            if len(value) != 1:
                raise self._wrong(key, "one value", value)
            value = value[0]
        value = default if value is None else value
        if value is None:
            message = f"{self._name}{key} is required"
            raise LauncherFileError(message)
        return value

    def _wrong(self, key: str, allowed: str, value: Any) -> LauncherFileError:
        return LauncherFileError(f"{self._name}{key} must be {allowed}, got {value!r}")


def json_table(text: str) -> Section:
    """The table in a JSON text. Raises LauncherFileError."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        message = f"this is not JSON: {error}"
        raise LauncherFileError(message) from error
    return _table(values, "JSON")


def yaml_table(text: str) -> Section:
    """The table in a YAML text. Raises LauncherFileError."""
    import yaml

    try:
        values = yaml.safe_load(text)
    except yaml.YAMLError as error:
        message = f"this is not YAML: {error}"
        raise LauncherFileError(message) from error
    return _table(values, "YAML")


def yaml_text(values: Mapping[str, Any], comment: str) -> str:
    """A table as YAML, keys in their order, under a line of comment."""
    import yaml

    return f"# {comment}\n" + yaml.safe_dump(dict(values), sort_keys=False, default_flow_style=None, width=120)


def literals(text: str) -> dict[str, Any]:
    """The values of the names that a Python text sets to literals. Raises LauncherFileError."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError) as error:
        message = f"this is not Python: {error}"
        raise LauncherFileError(message) from error
    found = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            try:
                found[node.targets[0].id] = ast.literal_eval(node.value)
            except ValueError:
                continue
    return found


def _table(values: Any, form: str) -> Section:
    if not isinstance(values, Mapping):
        message = f"the {form} must hold a table, got a {type(values).__name__}"
        raise LauncherFileError(message)
    return Section(values)
