"""Jobs whose plans are kept, and how their documents are written."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planner.document import PlanDocument, dumps
from planner.request import build_request
from planner.search import plan

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Job:
    """One planning job; `slow` when it takes more than a few seconds, `least_mfu` what a sensible plan reaches."""

    name: str
    model: str
    gpus: int
    flags: dict[str, Any]
    slow: bool = False
    least_mfu: float = 0.2

    @property
    def path(self) -> Path:
        """The file that holds the document."""
        return FOLDER / f"{self.name}.json"

    def document(self) -> PlanDocument:
        """The plan of today's code."""
        return plan(build_request(self.model, self.gpus, **self.flags))


H100: dict[str, Any] = {"mem": "80GB"}
JOBS = (
    Job("llama3-8b_7", "llama3-8b", 7, H100),
    Job("llama3-8b_8", "llama3-8b", 8, H100),
    Job("llama3-70b_256", "llama3-70b", 256, H100),
    Job("llama3-70b_336", "llama3-70b", 336, H100, slow=True),
    Job("mixtral-8x7b_64", "mixtral-8x7b", 64, H100, slow=True),
    # States take most of the memory here: most layers are recomputed.
    Job("deepseek-v3_256", "deepseek-v3", 256, H100, slow=True, least_mfu=0.15),
    Job("gpt3-175b_1024", "gpt3-175b", 1024, {"mem": "80GB", "gpu": "a100-80-sxm"}, slow=True),
    Job("llama3-405b_16384", "llama3-405b", 16_384, {"cluster": "llama3-roce"}, slow=True),
)


def regenerate() -> list[str]:
    """Names of the jobs whose files changed; all files are written anew."""
    changed = []
    for job in JOBS:
        text = dumps(job.document())
        if not job.path.exists() or job.path.read_text(encoding="utf-8") != text:
            changed.append(job.name)
        job.path.write_text(text, encoding="utf-8")
    return changed
