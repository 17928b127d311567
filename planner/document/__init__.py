"""The plan document: one versioned JSON document that the report, the launchers and the runtime read, and only it."""

from planner.document.configuration import Configuration, virtual_stages
from planner.document.files import check_writable, dumps, json_schema, loads, read, write, write_text
from planner.document.parallelism import Parallelism
from planner.document.plan import SCHEMA_VERSION, Digests, PlanDocument
from planner.document.prediction import (
    Alternative,
    Certificate,
    HeterogeneousPlan,
    HeterogeneousStage,
    LauncherAnswer,
    PeakMemory,
    Prediction,
    RecipeVariant,
    Verdict,
    verdict_of,
)
from planner.document.stage import (
    MEMORY_CAUSES,
    Chunk,
    MemoryByCause,
    Offload,
    Recompute,
    RecomputeModule,
    Stage,
    StageChoice,
    StagePrediction,
    recompute_summary,
    zero_summary,
)
from planner.errors import DocumentError

__all__ = [
    "MEMORY_CAUSES",
    "SCHEMA_VERSION",
    "Alternative",
    "Certificate",
    "Chunk",
    "Configuration",
    "Digests",
    "DocumentError",
    "HeterogeneousPlan",
    "HeterogeneousStage",
    "LauncherAnswer",
    "MemoryByCause",
    "Offload",
    "Parallelism",
    "PeakMemory",
    "PlanDocument",
    "Prediction",
    "RecipeVariant",
    "Recompute",
    "RecomputeModule",
    "Stage",
    "StageChoice",
    "StagePrediction",
    "Verdict",
    "check_writable",
    "dumps",
    "json_schema",
    "loads",
    "read",
    "recompute_summary",
    "verdict_of",
    "virtual_stages",
    "write",
    "write_text",
    "zero_summary",
]
