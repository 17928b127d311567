"""Weights of a Hugging Face checkpoint, read in the parts that a rank holds."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from planner.document.job import Job
from runtime.chunk import EMBEDDING, VOCABULARY, full_shapes
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
# Tensors that are no parameters: causal masks of GPT-2, frequencies of rotary positions in old checkpoints.
BUFFERS = re.compile(r"(.*\.)?(h\.\d+\.attn\.(masked_)?bias|rotary_emb\.inv_freq)")
OUTPUT_HEAD = "lm_head.weight"
LAYER = re.compile(r"layers\.(\d+)\.(.+)")


@dataclass(frozen=True)
class _Place:
    """Where a full tensor of ours is in the checkpoint."""

    tensor: str
    first_row: int
    shape: tuple[int, ...]
    """Of ours."""
    transposed: bool


class Checkpoint:
    """The safetensors files of a folder as a source of parameters.

    The folder must hold the model of the job, all of it and nothing else: of another it could be a slice. Only the
    vocabulary may be longer, as it is where a checkpoint pads it.
    """

    def __init__(self, folder: Path, job: Job) -> None:
        self.folder = folder
        self._files: dict[str, Any] = {}
        self._file_of = _tensors_in(folder)
        self._is_gpt2 = any(name.endswith("wte.weight") for name in self._file_of)
        prefixed = "transformer.wte.weight" in self._file_of
        self._prefix = "transformer." if prefixed else ""
        self._places = dict(self._placed(full_shapes(job)))
        # Of every tensor of the checkpoint the rows of ours that lie in it, one behind the other.
        self._rows = {place.tensor: place.first_row + place.shape[0] for place in self._places.values()}
        self._has_twin = job.model.tie_embeddings and OUTPUT_HEAD in self._file_of
        self._refuse_what_is_not_used()

    def values(self, name: str, rows: Part, columns: Part | None) -> Tensor:
        """[rows, columns] of the tensor of our name. Raises WeightsError for one that has not the shape of ours."""
        place = self._places[name]
        values = self._part(place, name, rows, columns)
        if name == EMBEDDING and self._has_twin:
            twin = _Place(OUTPUT_HEAD, 0, place.shape, transposed=False)
            if not torch.equal(values, self._part(twin, name, rows, columns)):
                rule = f"must hold what {place.tensor} holds, as model.tie_embeddings says"
                message = f"{self.folder}: {OUTPUT_HEAD} {rule}, got other values in rows {rows.start}..{rows.stop - 1}"
                raise WeightsError(message)
        return values

    def _part(self, place: _Place, name: str, rows: Part, columns: Part | None) -> Tensor:
        tensor = self._slice(place.tensor)
        self._check_shape(place, name, tuple(tensor.get_shape()))
        first, last = rows.start + place.first_row, rows.stop + place.first_row
        if columns is None:
            return tensor[first:last]
        if place.transposed:
            return tensor[columns.start : columns.stop, first:last].T
        return tensor[first:last, columns.start : columns.stop]

    def _check_shape(self, place: _Place, name: str, got: tuple[int, ...]) -> None:
        wanted = (self._rows.get(place.tensor, place.shape[0]), *place.shape[1:])
        held = tuple(reversed(got)) if place.transposed else got
        longer = name in VOCABULARY and len(held) == len(wanted) and held[0] > wanted[0] and held[1:] == wanted[1:]
        if held != wanted and not longer:
            shape = list(reversed(wanted)) if place.transposed else list(wanted)
            rule = f"must be {shape}{' or have more rows' if name in VOCABULARY else ''} for the plan's model"
            message = f"{self.folder}: {place.tensor} {rule}, got {list(got)}"
            raise WeightsError(message)

    def _placed(self, shapes: Mapping[str, tuple[int, ...]]) -> Iterator[tuple[str, _Place]]:
        """Where each of our tensors is; those that share one of the checkpoint's lie in it one behind the other."""
        rows: dict[str, int] = {}
        for name, shape in shapes.items():
            tensor, transposed = self._tensor(name, is_matrix=len(shape) > 1)
            if tensor not in self._file_of:
                message = f"{self.folder} has no tensor {tensor}, which the plan's model needs"
                raise WeightsError(message)
            first = rows.get(tensor, 0)
            rows[tensor] = first + shape[0]
            yield name, _Place(tensor, first, shape, transposed)

    def _tensor(self, name: str, *, is_matrix: bool) -> tuple[str, bool]:
        """The checkpoint's name for one of ours, and whether it is stored by inputs."""
        layer = LAYER.fullmatch(name)
        index, inner = (layer[1], layer[2]) if layer else ("", name)
        table: Mapping[str, str] = GPT2 if self._is_gpt2 else LLAMA
        module, _, kind = inner.rpartition(".")
        if inner in table:
            return self._prefix + table[inner], False
        if module not in table:
            message = f"{self.folder}: {name} of the plan's model has no place in a checkpoint of this kind"
            raise WeightsError(message)
        tensor = f"{self._prefix}{table[module]}.{kind}".replace("{i}", index)
        return tensor, self._is_gpt2 and is_matrix

    def _refuse_what_is_not_used(self) -> None:
        """Nothing when every tensor of the folder is one of the model's. Raises WeightsError."""
        allowed = {OUTPUT_HEAD} if self._has_twin else set()
        surplus = [
            name for name in self._file_of if name not in self._rows.keys() | allowed and not BUFFERS.fullmatch(name)
        ]
        if surplus:
            others = f" and {len(surplus) - 1} more" if len(surplus) > 1 else ""
            message = f"{self.folder} holds {min(surplus)}{others}, which the plan's model lacks"
            raise WeightsError(message)

    def _slice(self, tensor: str) -> Any:
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
