"""What a checkpoint's config.json says and a plan does not, because it costs nothing."""

import json
from dataclasses import dataclass
from pathlib import Path

from runtime.errors import WeightsError

__all__ = ["Constants", "constants_in"]


@dataclass(frozen=True)
class Constants:
    """Numbers inside the operators of a model."""

    rope_theta: float = 10_000.0
    norm_epsilon: float = 1e-5


def constants_in(folder: Path) -> Constants:
    """The constants of a checkpoint's config.json. Raises WeightsError for one that cannot be read or needs more."""
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        message = f"cannot read {path}: {error}"
        raise WeightsError(message) from error
    if not isinstance(config, dict):
        message = f"{path} must hold a JSON object, got a {type(config).__name__}"
        raise WeightsError(message)
    positions = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kind = positions.get("rope_type", positions.get("type", "default"))
    if kind != "default":
        message = f"{path}: rope scaling must be 'default' to run here, got {kind!r}"
        raise WeightsError(message)
    theta = config.get("rope_theta", positions.get("rope_theta", Constants.rope_theta))
    epsilon = config.get("rms_norm_eps", config.get("layer_norm_epsilon", Constants.norm_epsilon))
    return Constants(_positive(path, "rope_theta", theta), _positive(path, "rms_norm_eps", epsilon))


def _positive(path: Path, name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        message = f"{path}: {name} must be a number > 0, got {value!r}"
        raise WeightsError(message)
    return float(value)
