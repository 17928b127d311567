"""What a checkpoint's config.json says and a plan does not, because it costs nothing."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cost_models.specs.model import ModelSpec
from runtime.errors import WeightsError

__all__ = ["Constants", "constants_in"]


@dataclass(frozen=True)
class Constants:
    """Numbers inside the operators of a model."""

    rope_theta: float = 10_000.0
    norm_epsilon: float = 1e-5


# What layers here compute to the last detail; models of other kinds scale embeddings, cap logits, rotate half a head.
ALLOWED: dict[str, tuple[object, ...]] = {
    "model_type": ("llama", "mistral", "qwen2", "qwen3", "gpt2"),
    "hidden_act": (None, "silu"),
    "activation_function": (None, "gelu_new", "gelu_pytorch_tanh"),
}
# Shapes of matrices do not tell how many heads they hold.
HEADS = {"num_attention_heads": "heads", "n_head": "heads", "num_key_value_heads": "kv_heads"}


def constants_in(folder: Path, model: ModelSpec) -> Constants:
    """The constants of a checkpoint's config.json.

    Raises WeightsError for one that cannot be read, is of a model that layers here do not compute, or has other heads
    than the plan's.
    """
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        message = f"cannot read {path}: {error}"
        raise WeightsError(message) from error
    if not isinstance(config, dict):
        message = f"{path} must hold a JSON object, got a {type(config).__name__}"
        raise WeightsError(message)
    _check_model(path, config, model)
    positions = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kind = positions.get("rope_type", positions.get("type", "default")) if isinstance(positions, dict) else positions
    if kind != "default":
        message = f"{path}: rope scaling must be 'default' to run here, got {kind!r}"
        raise WeightsError(message)
    theta = config.get("rope_theta", positions.get("rope_theta", Constants.rope_theta))
    epsilon = config.get("rms_norm_eps", config.get("layer_norm_epsilon", Constants.norm_epsilon))
    return Constants(_positive(path, "rope_theta", theta), _positive(path, "rms_norm_eps", epsilon))


def _check_model(path: Path, config: dict[str, Any], model: ModelSpec) -> None:
    for name, allowed in ALLOWED.items():
        if config.get(name) not in allowed:
            names = ", ".join(str(one) for one in allowed if one is not None)
            message = f"{path}: {name} must be one of {names} to run here, got {config.get(name)!r}"
            raise WeightsError(message)
    for name, field in HEADS.items():
        wanted = getattr(model, field)
        if config.get(name, wanted) != wanted:
            message = f"{path}: {name} must be model.{field} ({wanted}), got {config[name]!r}"
            raise WeightsError(message)


def _positive(path: Path, name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        message = f"{path}: {name} must be a number > 0, got {value!r}"
        raise WeightsError(message)
    return float(value)
