"""An export as files: the launcher's own configuration, how to launch it, and the facts that no launcher is told."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from pydantic import Field

from cost_models.specs.base import PositiveFloat, PositiveInt
from cost_models.specs.cluster import ClusterSpec
from cost_models.specs.errors import SpecError
from cost_models.specs.model import ModelSpec
from cost_models.specs.recipe import FrameworkRecipe
from planner.document import write_text
from planner.document.record import Record
from planner.errors import DocumentError, LauncherFileError

__all__ = ["JOB_FILE", "LAUNCH_FILE", "Bundle", "Job", "files_in", "job_of", "require", "written"]

JOB_FILE, LAUNCH_FILE = "job.json", "launch.sh"
MAX_FILE_BYTES = 2**24


class Job(Record):
    """What a plan was made for and no launcher's configuration says."""

    label: ClassVar[str] = "job"

    launcher: str = Field(min_length=1, description="whose form the files beside this one have")
    versions: str = Field(description="versions of the launcher that the files are valid for")
    gpus_used: PositiveInt = Field(description="ranks to start")
    expert_imbalance: PositiveFloat = Field(1.0, description="tokens of the fullest expert rank over the mean")
    document_mask_imbalance: PositiveFloat = Field(1.0, description="attention work of the slowest rank over the mean")
    model: ModelSpec
    cluster: ClusterSpec
    recipe: FrameworkRecipe


@dataclass(frozen=True)
class Bundle:
    """A plan in a launcher's own form: files by name, the main one first; environment variables; how to start it.

    `command` is the launcher's command line without what starts its ranks; `notes` say what it leaves to its reader.
    """

    launcher: str
    versions: str
    files: Mapping[str, str]
    command: str
    env: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def main(self) -> str:
        """The text of the file that holds the parallel part."""
        return next(iter(self.files.values()))


def written(bundle: Bundle, folder: str | os.PathLike[str]) -> list[Path]:
    """The files of a bundle, put in a folder, each whole or not at all; the job's file last. Raises DocumentError."""
    target = Path(folder)
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"cannot write {target}: {(error.strerror or str(error)).lower()}"
        raise DocumentError(message) from error
    paths = [target / name for name in sorted(bundle.files, key=lambda name: name == JOB_FILE)]
    for path in paths:
        write_text(bundle.files[path.name], path)
        if path.suffix == ".sh":
            path.chmod(path.stat().st_mode | 0o111)
    return paths


def files_in(folder: str | os.PathLike[str]) -> dict[str, str]:
    """The texts of an export's files by name. Raises DocumentError where it cannot be read, or is none."""
    target = Path(folder)
    if not (target / JOB_FILE).is_file():
        message = f"{os.fspath(folder)} is no export: it is no folder that holds {JOB_FILE}"
        raise DocumentError(message)
    texts = {}
    for path in sorted(target.iterdir()):
        try:
            if path.is_file() and path.stat().st_size <= MAX_FILE_BYTES:
                texts[path.name] = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            message = f"cannot read {path}: {error}"
            raise DocumentError(message) from error
    return texts


def require(files: Mapping[str, str], launcher: str, *names: str) -> None:
    """None. Raises LauncherFileError where a file is missing that an export to a launcher has."""
    for name in names:
        if name not in files:
            message = f"an export to {launcher} has a file {name}"
            raise LauncherFileError(message)


def job_of(files: Mapping[str, str]) -> Job:
    """The job that an export's files are for. Raises LauncherFileError when they do not say."""
    try:
        return Job.model_validate(json.loads(files[JOB_FILE]))
    except KeyError:
        message = f"an export has a {JOB_FILE}: got {', '.join(files) or 'no files'}"
        raise LauncherFileError(message) from None
    except (ValueError, RecursionError, SpecError) as error:
        message = f"{JOB_FILE} does not describe a job: {error}"
        raise LauncherFileError(message) from error
