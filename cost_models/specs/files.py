"""Text files that a user names: read whole, or refused in one line before they cost anything."""

import os
import stat
from pathlib import Path

from cost_models.specs.errors import SpecError

__all__ = ["MAX_TEXT_BYTES", "read_text"]

MAX_TEXT_BYTES = 4 * 2**20


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
