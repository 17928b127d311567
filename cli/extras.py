"""Verbs that run ranks need torch, which a planner does not."""

from importlib.metadata import version
from importlib.util import find_spec

from planner.errors import RequestError

# Pipelining, sharding and fake worlds are run through parts of torch that are not public yet.
TORCH = "2.13"


def require_torch(verb: str, *others: str) -> None:
    """Nothing where torch is installed, in the version that is needed, and others. Raises RequestError otherwise."""
    for name in ("torch", *others):
        if find_spec(name) is None:
            message = f"plan {verb} needs {name}: pip install 'meshplan[torch]'"
            raise RequestError(message)
    if version("torch").split(".")[:2] != TORCH.split("."):
        message = f"plan {verb} needs torch {TORCH}, got {version('torch')}: pip install 'meshplan[torch]'"
        raise RequestError(message)
