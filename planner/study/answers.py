"""What one scenario came to, and where finished ones are kept, so that a study that was stopped goes on.

An entry is found by a digest of everything that decides the plan: the request in full, and the source of the planner.
It is written whole or not at all; one that is damaged is passed over, and its scenario planned again.
"""

import hashlib
import json
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

import cost_models
import planner
import solver
from cost_models import expression_store
from cost_models.specs import catalog
from cost_models.specs.errors import SpecError
from planner.document import dumps, write_text
from planner.errors import DocumentError, InfeasibleError, Interrupted, LimitReached, PlannerError
from planner.request import PlanRequest
from planner.summary import PlanSummary

__all__ = ["Answer", "Kept", "answered", "default_folder", "digest_of"]

# Entries of some 50 KB: a gigabyte.
MOST_ENTRIES = 20_000


@dataclass(frozen=True)
class Answer:
    """How a search ended: its plan as a document's text and in short, or the reasons that there is none."""

    status: Literal["planned", "limit", "infeasible", "invalid"]
    reasons: tuple[str, ...] = ()
    text: str = ""
    plan: PlanSummary | None = None


def answered(request: PlanRequest) -> Answer:
    """The answer to one request, searched in this process alone: the document is that of `plan` by itself.

    Raises Interrupted on Ctrl-C: that is no answer.
    """
    from planner.search import plan

    try:
        document = plan(request)
    except LimitReached as limit:
        return Answer("limit", (str(limit),), dumps(limit.document), PlanSummary.of(limit.document))
    except Interrupted:
        raise
    except InfeasibleError as error:
        return Answer("infeasible", tuple(error.messages))
    except (PlannerError, SpecError) as error:
        return Answer("invalid", (str(error),))
    return Answer("planned", (), dumps(document), PlanSummary.of(document))


def digest_of(request: PlanRequest) -> str:
    """Hex digest of everything that decides the plan of a request."""
    return hashlib.sha256(f"{_written_by()} {catalog.digest(request)}".encode()).hexdigest()


@cache
def _written_by() -> str:
    """Digest of the source of everything that makes a plan."""
    digest = hashlib.sha256()
    for package in (cost_models, solver, planner):
        folder = Path(str(package.__file__)).parent
        for path in sorted(folder.rglob("*.py")):
            digest.update(str(path.relative_to(folder)).encode() + path.read_bytes())
    return digest.hexdigest()


def default_folder() -> Path | None:
    """Where finished scenarios are kept unless told: with the expressions of planning; None where nothing is kept."""
    expressions = expression_store.folder()
    return None if expressions is None else expressions / "studies"


@dataclass
class Kept:
    """Finished scenarios by digest: in a folder, or without one in memory alone.

    What a time limit stopped is never read again: another time the search may come further.
    """

    folder: Path | None
    memory: dict[str, Answer] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Makes room: the oldest entries go. Raises DocumentError where the folder cannot be made."""
        if self.folder is None:
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            entries = sorted(self.folder.glob("*.json"), key=lambda each: each.stat().st_mtime)
            for old in entries[:-MOST_ENTRIES]:
                old.unlink(missing_ok=True)
        except OSError as error:
            message = f"cannot keep scenarios in {self.folder}: {(error.strerror or str(error)).lower()}"
            raise DocumentError(message) from error

    def get(self, digest: str) -> Answer | None:
        """The answer of a finished scenario, or None."""
        if self.folder is None or digest in self.memory:
            return self.memory.get(digest)
        try:
            return _read((self.folder / f"{digest}.json").read_text(encoding="utf-8"))
        except (OSError, ValueError, KeyError, TypeError, SpecError):
            return None

    def put(self, digest: str, answer: Answer) -> None:
        """None; the answer is kept. Raises DocumentError where it cannot be written."""
        if self.folder is None or answer.status == "limit":
            self.memory[digest] = answer
            return
        plan = None if answer.plan is None else answer.plan.model_dump(mode="json")
        content = {"status": answer.status, "reasons": answer.reasons, "plan": plan, "text": answer.text}
        written = json.dumps(content)
        entry = {"digest": hashlib.sha256(written.encode()).hexdigest(), "content": written}
        write_text(json.dumps(entry), self.folder / f"{digest}.json")


def _read(entry: str) -> Answer:
    """The answer in an entry. Raises ValueError and the like where it is damaged."""
    data: dict[str, Any] = json.loads(entry)
    if hashlib.sha256(data["content"].encode()).hexdigest() != data["digest"]:
        message = "the entry is damaged"
        raise ValueError(message)
    content = json.loads(data["content"])
    plan = None if content["plan"] is None else PlanSummary.model_validate(content["plan"])
    return Answer(content["status"], tuple(content["reasons"]), content["text"], plan)
