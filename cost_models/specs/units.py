"""Sizes, lengths and counts as people write them: text to numbers, and numbers back to text."""

import re
from dataclasses import dataclass
from decimal import Decimal

from cost_models.specs.errors import UnitError

GIB = 2**30
MAX_BYTES = 10**18
MAX_COUNT = 10**18
MAX_GPUS = 10_000_000

_NUMBER = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?)\s*([A-Za-z]*)")
_DECIMAL_BYTES = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY_BYTES = {"k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_BINARY_COUNTS = {"": 1, "k": 2**10, "m": 2**20}
_DECIMAL_COUNTS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "g": 10**9, "t": 10**12}


@dataclass(frozen=True)
class ByteSize:
    """A size in bytes, as it was written, and whether that is the way memory is sold ("80GB", "80G", "80")."""

    bytes: int
    written: str
    is_nominal: bool

    @property
    def reading(self) -> str:
        """The sentence that says how the size was read."""
        return f"{self.written} = {format_bytes(self.bytes)} ({self.bytes} bytes)"


def parse_bytes(text: str, field: str = "mem") -> ByteSize:
    """Return the size that `text` names: "80GB" and "80G" are decimal, "80GiB" binary, a bare number is GB.

    Raises UnitError for bits ("80Gb"), unknown units, zero, negative, infinite or absurd sizes.

    >>> parse_bytes("80GiB").bytes
    85899345920
    """
    number, unit = _split(text, field, "a size such as 80GB, 80GiB or 81559MiB")
    if re.fullmatch(r"[kKmMgGtT]i?b", unit) and not unit.islower():
        message = f"{field} must be in bytes, got {text!r}, which is bits; did you mean '{text.strip()[:-1]}B'?"
        raise UnitError(message)
    value = _whole(number * _bytes_per_unit(unit, text, field), round_to_whole=True)
    if value is None or not 1 <= value <= MAX_BYTES:
        message = f"{field} must be between 1 B and {MAX_BYTES:.0e} B, got {text!r}"
        raise UnitError(message)
    written = f"{text.strip()}GB (a bare number is GB)" if not unit else text.strip()
    return ByteSize(value, written, unit.lower() in ("", "g", "gb"))


def parse_count(text: str, field: str = "seq_len", *, budget: bool = False) -> int:
    """Return a length or a number of tokens; suffixes are binary ("8k" = 8192, "1M" = 1048576).

    With `budget` they are decimal ("15T" tokens = 15e12). Raises UnitError unless the result is a whole number >= 1.

    >>> parse_count("128k")
    131072
    """
    example = "15T or 300B" if budget else "8192, 8k or 1M"
    number, unit = _split(text, field, f"a whole number such as {example}")
    scale = (_DECIMAL_COUNTS if budget else _BINARY_COUNTS).get(unit.lower())
    value = None if scale is None else _whole(number * scale)
    if value is None or not 1 <= value <= MAX_COUNT:
        message = f"{field} must be a whole number >= 1 such as {example}, got {text!r}"
        raise UnitError(message)
    return value


def parse_positive_int(text: str | int, field: str = "gpus", maximum: int = MAX_GPUS) -> int:
    """Return a whole number from 1 to `maximum`. Raises UnitError."""
    cleaned = str(text).strip().replace("_", "")
    value = int(cleaned) if re.fullmatch(r"[+-]?\d{1,30}", cleaned, re.ASCII) else None
    if value is None or not 1 <= value <= maximum:
        message = f"{field} must be a whole number from 1 to {maximum}, got {text!r}"
        raise UnitError(message)
    return value


def format_bytes(size_bytes: float) -> str:
    """Return a size in binary units, with one decimal from 10 up: "79.1 GiB", "1.25 TiB", "512 MiB"."""
    for unit, scale in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if abs(size_bytes) >= scale:
            return f"{_short(size_bytes / scale, decimals_of_hundreds=1)} {unit}"
    return f"{_short(size_bytes)} B"


def format_seconds(duration_s: float) -> str:
    """Return a duration in the unit that suits it: "12.3 s", "450 ms", "8.4 us"."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if abs(duration_s) >= scale:
            return f"{_short(duration_s / scale)} {unit}"
    return f"{_short(duration_s / 1e-6)} us"


def format_tokens(tokens: float) -> str:
    """Return a number of tokens with a decimal suffix: "16.8M", "15T", "8192" (kept exact below a million)."""
    for unit, scale in (("T", 10**12), ("B", 10**9), ("M", 10**6)):
        if abs(tokens) >= scale:
            return f"{_short(tokens / scale)}{unit}"
    return f"{tokens:.0f}"


def _split(text: str, field: str, wanted: str) -> tuple[Decimal, str]:
    """Return the number and the unit of "80 GB"."""
    match = _NUMBER.fullmatch(text.strip())
    if match is None or not text.isascii():
        message = f"{field} must be {wanted}, got {text!r}"
        raise UnitError(message)
    return Decimal(match[1]), match[2]


def _bytes_per_unit(unit: str, text: str, field: str) -> int:
    match = re.fullmatch(r"(?:([kmgt])(i?)b?|b)?", unit.lower())
    if match is None:
        message = f"{field} must be in B, kB, MB, GB, TB, KiB, MiB, GiB or TiB, got {text!r}"
        raise UnitError(message)
    if not unit:
        return 10**9
    prefix, binary = match[1], match[2]
    if prefix is None:
        return 1
    return _BINARY_BYTES[prefix] if binary else _DECIMAL_BYTES[prefix]


def _whole(number: Decimal, *, round_to_whole: bool = False) -> int | None:
    """Return the number as an int, None when it is not whole (unless rounded) or too large to matter."""
    if abs(number) > 10 * MAX_BYTES:
        return None
    value = int(number.to_integral_value())
    return value if round_to_whole or value == number else None


def _short(value: float, decimals_of_hundreds: int = 0) -> str:
    """Return "79.1", "450" or "1.25": one decimal from 10, none (or as told) from 100, trailing zeros dropped."""
    digits = decimals_of_hundreds if abs(value) >= 99.95 else 1 if abs(value) >= 9.995 else 2
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
