"""Weights of a Hugging Face checkpoint, read in the parts that a rank holds."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from cost_models.specs.model import ModelSpec
from runtime.errors import WeightsError
from runtime.parameters import Part

__all__ = ["Checkpoint"]

# By the last part of our names: Llama, Qwen and their kin. {i} is the layer.
LLAMA = {
    "embedding.weight": "model.embed_tokens.weight",
    "head.weight": "lm_head.weight",
    "final_norm": "model.norm",
    "attention_norm": "model.layers.{i}.input_layernorm",
    "mlp_norm": "model.layers.{i}.post_attention_layernorm",
    "attention.query": "model.layers.{i}.self_attn.q_proj",
    "attention.key": "model.layers.{i}.self_attn.k_proj",
    "attention.value": "model.layers.{i}.self_attn.v_proj",
    "attention.output": "model.layers.{i}.self_attn.o_proj",
    "attention.query_norm": "model.layers.{i}.self_attn.q_norm",
    "attention.key_norm": "model.layers.{i}.self_attn.k_norm",
    "mlp.gate": "model.layers.{i}.mlp.gate_proj",
    "mlp.up": "model.layers.{i}.mlp.up_proj",
    "mlp.down": "model.layers.{i}.mlp.down_proj",
}
# GPT-2 keeps its matrices transposed, and queries, keys and values in one.
GPT2 = {
    "embedding.weight": "wte.weight",
    "positions.weight": "wpe.weight",
    "final_norm": "ln_f",
    "attention_norm": "h.{i}.ln_1",
    "mlp_norm": "h.{i}.ln_2",
    "attention.query": "h.{i}.attn.c_attn",
    "attention.key": "h.{i}.attn.c_attn",
    "attention.value": "h.{i}.attn.c_attn",
    "attention.output": "h.{i}.attn.c_proj",
    "mlp.up": "h.{i}.mlp.c_fc",
    "mlp.down": "h.{i}.mlp.c_proj",
}
JOINED = {"attention.query": 0, "attention.key": 1, "attention.value": 2}
LAYER = re.compile(r"layers\.(\d+)\.(.+)")


@dataclass(frozen=True)
class _Place:
    """Where a full tensor of ours is in the checkpoint."""

    tensor: str
    first_row: int = 0
    transposed: bool = False


class Checkpoint:
    """The safetensors files of a folder as a source of parameters."""

    def __init__(self, folder: Path, model: ModelSpec) -> None:
        self.folder, self.model = folder, model
        self._files: dict[str, Any] = {}
        self._file_of = _tensors_in(folder)
        self._is_gpt2 = any(name.endswith("wte.weight") for name in self._file_of)
        prefixed = "transformer.wte.weight" in self._file_of
        self._prefix = "transformer." if prefixed else ""

    def values(self, name: str, rows: Part, columns: Part | None) -> Tensor:
        """[rows, columns] of the tensor of our name. Raises WeightsError when the folder lacks it or is too small."""
        place = self._place(name)
        tensor = self._slice(place.tensor)
        first, last = rows.start + place.first_row, rows.stop + place.first_row
        shape = tensor.get_shape()
        needed = (last,) if columns is None else (last, columns.stop)
        held = tuple(reversed(shape)) if place.transposed else tuple(shape)
        if len(held) != len(needed) or any(one < other for one, other in zip(held, needed, strict=True)):
            message = f"{self.folder}: {place.tensor} must be at least {list(needed)} for the plan's model, got {shape}"
            raise WeightsError(message)
        if columns is None:
            return tensor[first:last]
        if place.transposed:
            return tensor[columns.start : columns.stop, first:last].T
        return tensor[first:last, columns.start : columns.stop]

    def _place(self, name: str) -> _Place:
        layer = LAYER.fullmatch(name)
        index, inner = (layer[1], layer[2]) if layer else ("", name)
        table: Mapping[str, str] = GPT2 if self._is_gpt2 else LLAMA
        module, _, kind = inner.rpartition(".")
        if inner in table:
            return _Place(self._prefix + table[inner])
        if module not in table:
            message = f"{self.folder}: {name} of the plan's model has no place in a checkpoint of this kind"
            raise WeightsError(message)
        tensor = f"{self._prefix}{table[module]}.{kind}".replace("{i}", index)
        if not self._is_gpt2:
            return _Place(tensor)
        width = self.model.heads * self.model.head_dim
        is_matrix = kind == "weight" and "norm" not in module
        return _Place(tensor, JOINED.get(module, 0) * width, transposed=is_matrix)

    def _slice(self, tensor: str) -> Any:
        if tensor not in self._file_of:
            message = f"{self.folder} has no tensor {tensor}, which the plan's model needs"
            raise WeightsError(message)
        path = self._file_of[tensor]
        try:
            if path.name not in self._files:
                self._files[path.name] = safe_open(path, framework="pt")
            return self._files[path.name].get_slice(tensor)
        except (OSError, SafetensorError) as error:
            message = f"cannot read {path}: {error}"
            raise WeightsError(message) from error


def _tensors_in(folder: Path) -> dict[str, Path]:
    """The file of every tensor of a folder. Raises WeightsError."""
    index = folder / "model.safetensors.index.json"
    try:
        if index.is_file():
            table = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
            return {str(name): folder / str(file) for name, file in table.items()}
        found: dict[str, Path] = {}
        for path in sorted(folder.glob("*.safetensors")):
            with safe_open(path, framework="pt") as file:
                found |= dict.fromkeys(file.keys(), path)
    except (OSError, ValueError, KeyError, AttributeError, SafetensorError) as error:
        message = f"cannot read the weights in {folder}: {error}"
        raise WeightsError(message) from error
    if not found:
        message = f"{folder} must hold .safetensors files, got none"
        raise WeightsError(message)
    return found
