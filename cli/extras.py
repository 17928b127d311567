"""Verbs that run ranks need torch, which a planner does not."""

from importlib.util import find_spec

from planner.errors import RequestError


def require_torch(verb: str) -> None:
    """Nothing where torch is installed. Raises RequestError otherwise."""
    if find_spec("torch") is None:
        message = f"plan {verb} needs PyTorch: pip install 'meshplan[torch]'"
        raise RequestError(message)
