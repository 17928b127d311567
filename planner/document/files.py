"""The plan document as a file: canonical bytes out, checked parts in."""

import json
import math
import os
from pathlib import Path
from typing import Any

from cost_models.specs.errors import SpecError
from cost_models.specs.files import first_faults, is_schema_version, reason_of, unwritable, write_whole
from planner.document.plan import SCHEMA_VERSION, PlanDocument
from planner.errors import DocumentError

SIGNIFICANT_DIGITS = 9
MAX_DOCUMENT_BYTES = 16 * 2**20  # a plan of a thousand stages has two million


def dumps(document: PlanDocument) -> str:
    """The document as JSON text: keys in the order of the fields, floats with 9 significant digits, one last newline.

    Equal documents give equal bytes, and text that was read back and written again does not change.
    """
    return json.dumps(rounded(document.model_dump(mode="json")), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def loads(text: str | bytes, source: str = "document") -> PlanDocument:
    """The document in a JSON text. Raises DocumentError, which names `source`, the field and what is allowed."""
    if len(text) > MAX_DOCUMENT_BYTES:
        message = f"{source} is not a plan document: it has over {MAX_DOCUMENT_BYTES:,} bytes"
        raise DocumentError(message)
    data = _json_object(text, source)
    version = data.get("schema_version")
    if not is_schema_version(version):
        message = f"{source} is not a plan document: schema_version must be an integer >= 1, got {version!r}"
        raise DocumentError(message)
    if version > SCHEMA_VERSION:
        message = f"{source} was written by schema {version}, this tool reads up to {SCHEMA_VERSION}"
        raise DocumentError(message)
    try:
        return PlanDocument.model_validate(data)
    except SpecError as error:
        message = f"{source} is not a valid plan document: {first_faults(str(error))}"
        raise DocumentError(message) from error


def read(path: str | os.PathLike[str]) -> PlanDocument:
    """The document in a file. Raises DocumentError when it cannot be read or does not hold one."""
    return loads(read_bytes(path, MAX_DOCUMENT_BYTES + 1), os.fspath(path))


def read_bytes(path: str | os.PathLike[str], most: int = -1) -> bytes:
    """What a file holds, up to `most` bytes of it. Raises DocumentError when it cannot be read."""
    try:
        with Path(path).open("rb") as file:
            return file.read(most)
    except (OSError, ValueError) as error:
        message = f"cannot read {os.fspath(path)}: {reason_of(error)}"
        raise DocumentError(message) from error


def write(document: PlanDocument, path: str | os.PathLike[str]) -> None:
    """Puts the document in a file, whole or not at all. Raises DocumentError; a file that was there stays then."""
    write_text(dumps(document), path)


def write_text(text: str, path: str | os.PathLike[str]) -> None:
    """Puts text in a file, as `write_bytes` does, in UTF-8."""
    _write(text, path)


def write_bytes(content: bytes, path: str | os.PathLike[str]) -> None:
    """Puts bytes in a file, whole or not at all; keeps the mode of a file that was there, writes through links.

    Raises DocumentError.
    """
    _write(content, path)


def _write(content: str | bytes, path: str | os.PathLike[str]) -> None:
    try:
        write_whole(content, path)
    except (OSError, ValueError) as error:
        message = f"cannot write {os.fspath(path)}: {reason_of(error)}"
        raise DocumentError(message) from error


def check_writable(path: str | os.PathLike[str]) -> None:
    """Nothing when a file can be put there, so that a long search does not end in an error. Raises DocumentError."""
    reason = unwritable(path)
    if reason is not None:
        message = f"cannot write {os.fspath(path)}: {reason}"
        raise DocumentError(message)


def json_schema() -> dict[str, Any]:
    """The JSON Schema of the document."""
    return PlanDocument.model_json_schema(mode="serialization")


def _json_object(text: str | bytes, source: str) -> dict[str, Any]:
    if not text.strip():
        message = f"{source} is empty"
        raise DocumentError(message)
    try:
        data = json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except UnicodeDecodeError as error:
        message = f"{source} is not text: it holds bytes that are not UTF-8"
        raise DocumentError(message) from error
    except (ValueError, RecursionError) as error:
        message = f"{source} is not JSON: {error}"
        raise DocumentError(message) from error
    if not isinstance(data, dict):
        message = f"{source} is not a plan document: it holds a JSON {type(data).__name__}, not an object"
        raise DocumentError(message)
    return data


def _finite(number: str) -> float:
    return value if math.isfinite(value := float(number)) else _refuse(number)


def _refuse(number: str) -> float:
    message = f"{number} is not a finite number"
    raise ValueError(message)


def rounded(value: Any) -> Any:
    """Plain data whose floats have the significant digits of a document."""
    if isinstance(value, float):
        return float(f"{value:.{SIGNIFICANT_DIGITS}g}") + 0.0  # + 0.0 turns -0.0 into 0.0
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    return [rounded(item) for item in value] if isinstance(value, list) else value
