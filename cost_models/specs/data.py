"""Where the files of data/ are, and what they are called. It loads the standard library alone: completion uses it."""

from pathlib import Path
from typing import Literal

from cost_models.specs.errors import SpecError

__all__ = ["Kind", "data_folder", "names"]

Kind = Literal["models", "gpus", "clusters", "profiles", "frameworks"]

_PACKAGE = Path(__file__).resolve().parents[1]


def data_folder(package: Path = _PACKAGE) -> Path:
    """Return the catalog's folder: inside the package when installed from a wheel, beside it in a checkout.

    Raises SpecError when neither is there.
    """
    for folder in (package / "data", package.parent / "data"):
        if (folder / "models").is_dir():
            return folder
    message = f"the catalog is missing: no data folder in {package} or beside it; reinstall meshplan"
    raise SpecError(message)


def names(kind: Kind) -> list[str]:
    """Return the entries of one kind, sorted, without aliases."""
    return sorted(path.stem for path in (data_folder() / kind).glob("*.toml"))
