"""Files that a user names: read whole, or refused in one line before they cost anything; written whole or not."""

import json
import os
import re
import stat
import tempfile
from pathlib import Path
from typing import Any, TypeGuard

from cost_models.specs.errors import SpecError

__all__ = [
    "MAX_TEXT_BYTES",
    "first_faults",
    "is_schema_version",
    "json_text",
    "read_json",
    "read_text",
    "reason_of",
    "unwritable",
    "write_whole",
]

MAX_TEXT_BYTES = 4 * 2**20
MAX_FAULTS = 5

_SCALAR = r'(?:-?[\d.eE+-]+|"(?:[^"\\\n]|\\.)*")'
# Text of a JSON string has no newline of its own, so that only lists can match.
_LIST_OF_SCALARS = re.compile(rf"\[\n\s*({_SCALAR}(?:,\n\s*{_SCALAR})*)\n\s*\]")
_BETWEEN = re.compile(r",\n\s*")


def read_text(path: str | Path) -> str:
    """Return the text of a UTF-8 file. Raises SpecError for what is no file, over 4 MiB, not readable or no text.

    The size decides before anything is read: weights under the name of a configuration cost no time.
    """
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            message = f"cannot read {path}: not a file"
            raise SpecError(message)
        if status.st_size > MAX_TEXT_BYTES:
            size = f"{status.st_size:,} bytes, over {MAX_TEXT_BYTES:,}"
            message = f"cannot read {path}: {size}; a description has a few thousand"
            raise SpecError(message)
        return Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        message = f"cannot read {path}: not UTF-8 text"
        raise SpecError(message) from error
    except OSError as error:
        message = f"cannot read {path}: {error.strerror or error}"
        raise SpecError(message) from error


def read_json(path: str | Path) -> Any:
    """Return the content of a JSON file. Raises SpecError."""
    text = read_text(path)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        message = f"{path} is not valid JSON: {reason}"
        raise SpecError(message) from error


def json_text(value: Any) -> str:
    """Return JSON with each list of numbers or names on one line, so that a change shows as the lists it touches."""
    text = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False)
    return _LIST_OF_SCALARS.sub(lambda found: f"[{_BETWEEN.sub(', ', found[1])}]", text) + "\n"


def first_faults(message: str) -> str:
    """Return at most five lines of a message with one for each fault, and how many more there are."""
    lines = message.splitlines()
    rest = len(lines) - MAX_FAULTS
    return "\n  ".join(lines if rest <= 0 else [*lines[:MAX_FAULTS], f"and {rest} more"])


def is_schema_version(value: Any) -> TypeGuard[int]:
    """Return whether a value can be the version of a schema: an integer from 1 on."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def write_whole(text: str | bytes, path: str | os.PathLike[str]) -> None:
    """Put text or bytes in a file, whole or not at all; keeps the mode of a file that was there, writes through links.

    Raises OSError, and ValueError for a path that cannot be one; a file that was there stays then.
    """
    target = Path(os.path.realpath(path))
    content = text.encode() if isinstance(text, str) else text
    if target.exists() and not target.is_file() and not target.is_dir():
        target.write_bytes(content)  # a device or a pipe cannot be replaced
    else:
        _replace(target, content)


def unwritable(path: str | os.PathLike[str]) -> str | None:
    """Return why no file can be put there, so that long work does not end in an error; None where one can."""
    target = Path(os.path.realpath(path))
    if target.is_dir():
        return "it is a directory"
    if not target.parent.is_dir():
        return f"there is no folder {target.parent}"
    if not os.access(target if target.exists() else target.parent, os.W_OK):
        return "permission denied"
    return None


def reason_of(error: OSError | ValueError) -> str:
    """Return what went wrong, without the path."""
    return (error.strerror or str(error)).lower() if isinstance(error, OSError) else str(error)


def _replace(target: Path, content: bytes) -> None:
    if target.is_dir():
        raise IsADirectoryError(None, "it is a directory")
    descriptor, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, _mode_of(target))
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def _mode_of(target: Path) -> int:
    """Return the permission bits that the file has, or that a new one would get."""
    if target.exists():
        return stat.S_IMODE(target.stat().st_mode)
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
