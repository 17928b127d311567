"""Which rank of a job the environment says that this process is, in the variables that torchrun sets."""

import os
from dataclasses import dataclass

from runtime.errors import LaunchError

__all__ = ["Place", "place", "says_a_rank"]


@dataclass(frozen=True)
class Place:
    """A rank, and where it meets the others."""

    rank: int
    size: int
    local: int
    """Its number on this machine, which is that of its GPU."""
    meeting: str
    """Host and port of the store that all ranks share."""


def says_a_rank() -> bool:
    """Whether a launcher has set any of the variables that say which rank this process is."""
    return "RANK" in os.environ or "WORLD_SIZE" in os.environ


def place() -> Place:
    """The rank of this process. Raises LaunchError that names the variable which is missing or wrong."""
    size = _number("WORLD_SIZE", 1)
    rank = _number("RANK", 0, size - 1)
    local = _number("LOCAL_RANK", 0, default=rank)
    host, port = _variable("MASTER_ADDR", "a host"), _number("MASTER_PORT", 1, 2**16 - 1)
    return Place(rank, size, local, f"{host}:{port}")


def _number(name: str, least: int, most: int | None = None, default: int | None = None) -> int:
    allowed = f"a number >= {least}" if most is None else f"a number in {least}..{most}"
    text = _variable(name, allowed, None if default is None else str(default))
    if not text.isdecimal() or int(text) < least or (most is not None and int(text) > most):
        message = f"the environment variable {name} must be {allowed}, got {text!r}"
        raise LaunchError(message)
    return int(text)


def _variable(name: str, allowed: str, default: str | None = None) -> str:
    text = os.environ.get(name) or default
    if text is None:
        message = f"the environment variable {name} must be {allowed}, got nothing: start plan run by torchrun"
        raise LaunchError(message)
    return text
