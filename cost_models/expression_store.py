"""Lowered expressions kept on disk between runs: building one takes a second, reading one a millisecond.

An entry is found by a digest of everything that it was written from, this package's own source included, so that no
entry is ever out of date. One that is damaged, or a folder that cannot be used, is passed over.
"""

import hashlib
import json
import os
import platform
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from cost_models.lowered import Lowered
from cost_models.specs.files import write_whole

__all__ = ["ENVIRONMENT", "folder", "kept", "unbound"]

ENVIRONMENT = "MESHPLAN_CACHE"
"""Names the folder; `off` keeps nothing."""
MOST_ENTRIES = 512


def kept(parts: tuple[Any, ...], build: Callable[[], Lowered]) -> Lowered:
    """The expression written from `parts`, unbound: read from disk, else built and put there."""
    where = folder()
    if where is None:
        return build()
    key = hashlib.sha256(repr((_written_by(), *parts)).encode()).hexdigest()
    path = where / f"{key}.json"
    found = _read(path)
    if found is None:
        found = build()
        _write(path, found)
    return found


def folder() -> Path | None:
    """Where entries lie: the folder that the environment names, else the user's cache; None for nowhere."""
    named = os.environ.get(ENVIRONMENT)
    if named == "off":
        return None
    if named:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    try:
        return Path(base).expanduser() / "meshplan" / "expressions"
    except RuntimeError:  # no home folder
        return None


@cache
def _written_by() -> str:
    """Digest of the source of this package, and of the versions that build from it."""
    from importlib.metadata import version

    digest = hashlib.sha256(f"{platform.python_version()} {version('sympy')}".encode())
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


def _read(path: Path) -> Lowered | None:
    """The entry, or None where there is none that is whole."""
    try:
        entry = json.loads(path.read_text(encoding="utf-8"))
        content, digest = entry["content"], entry["digest"]
        if hashlib.sha256(json.dumps(content).encode()).hexdigest() != digest:
            return None
        names = (tuple(content["inputs"]), tuple(content["outputs"]))
        return Lowered(*names, content["operations"], content["source"], unbound)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write(path: Path, lowered: Lowered) -> None:
    """Puts the entry there, whole or not at all; the oldest ones make way."""
    content = {name: getattr(lowered, name) for name in ("inputs", "outputs", "operations", "source")}
    content |= {name: list(content[name]) for name in ("inputs", "outputs")}
    entry = {"digest": hashlib.sha256(json.dumps(content).encode()).hexdigest(), "content": content}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(json.dumps(entry), path)
        entries = sorted(path.parent.glob("*.json"), key=lambda each: each.stat().st_mtime)
        for old in entries[:-MOST_ENTRIES]:
            old.unlink(missing_ok=True)
    except OSError:
        return


def unbound(*_: Any) -> Any:
    """Nothing: it stands for what an expression calls until that is bound to a device. Raises TypeError."""
    message = "the expression is not bound to a device"
    raise TypeError(message)
