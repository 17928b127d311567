"""Argument lists as text, an argument a line, and back."""

import re
import shlex
from collections.abc import Mapping, Sequence

from planner.errors import LauncherFileError

__all__ = ["Value", "as_text", "parsed"]

Value = bool | int | float | str | Sequence[int] | Sequence[str]

NAME = re.compile(r"--[a-z][\w.-]*")


def as_text(arguments: Mapping[str, Value], separator: str = "-") -> str:
    """One argument a line: a name alone where the value is true, nothing where it is false.

    >>> as_text({"bf16": True, "micro_batch_size": 1, "recompute_modules": ["mlp", "moe"]})
    '--bf16\\n--micro-batch-size 1\\n--recompute-modules mlp moe\\n'
    """
    return "".join(
        _line(name.replace("_", separator), value) for name, value in arguments.items() if value is not False
    )


def parsed(text: str, separator: str = "-") -> dict[str, list[str]]:
    """The values of each argument by its name with underscores, none for a name alone. Raises LauncherFileError.

    >>> parsed("--bf16 --micro-batch-size 1")
    {'bf16': [], 'micro_batch_size': ['1']}
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        message = f"this is no argument list: {error}"
        raise LauncherFileError(message) from error
    found: dict[str, list[str]] = {}
    values: list[str] | None = None
    for word in words:
        name, equals, value = word.partition("=")
        if NAME.fullmatch(name):
            values = found.setdefault(name.removeprefix("--").replace(separator, "_"), [])
            if equals:
                values.append(value)
        elif values is None:
            message = f"an argument list begins with a name such as --bf16, got {word!r}"
            raise LauncherFileError(message)
        else:
            values.append(word)
    return found


def _line(name: str, value: Value) -> str:
    if value is True:
        return f"--{name}\n"
    many = [value] if isinstance(value, bool | int | float | str) else value
    return " ".join([f"--{name}", *(_word(each) for each in many)]) + "\n"


def _word(value: float | str) -> str:
    return format(value, "g") if isinstance(value, float) else str(value)
