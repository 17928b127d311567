"""Weights of Hugging Face checkpoints, whole and in parts."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from runtime.constants import Constants, constants_in
from runtime.errors import WeightsError
from runtime.parameters import Part
from runtime.weights import Checkpoint
from tests.runtime.jobs import MODELS, small_model

QWEN, GPT = small_model(layers=1, **MODELS["qwen"]), small_model(layers=1, **MODELS["gpt"])


def qwen_tensors() -> dict[str, Tensor]:
    """A checkpoint of the Qwen shape."""
    generator = torch.Generator().manual_seed(0)
    layer = "model.layers.0."
    shapes = {
        "model.embed_tokens.weight": (61, 32),
        "model.norm.weight": (32,),
        f"{layer}input_layernorm.weight": (32,),
        f"{layer}post_attention_layernorm.weight": (32,),
        f"{layer}self_attn.q_proj.weight": (32, 32),
        f"{layer}self_attn.k_proj.weight": (16, 32),
        f"{layer}self_attn.q_proj.bias": (32,),
        f"{layer}self_attn.q_norm.weight": (8,),
        f"{layer}self_attn.o_proj.weight": (32, 32),
        f"{layer}mlp.gate_proj.weight": (48, 32),
        f"{layer}mlp.down_proj.weight": (32, 48),
    }
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


@pytest.mark.parametrize("files", [1, 2])
def test_parts_of_a_llama_checkpoint_are_found_by_their_names(files: int, tmp_path: Path) -> None:
    """In one file, or in several with an index."""
    tensors = qwen_tensors()
    if files == 1:
        save_file(tensors, tmp_path / "model.safetensors")
    else:
        names = list(tensors)
        parts = {"a.safetensors": names[:5], "b.safetensors": names[5:]}
        for file, held in parts.items():
            save_file({name: tensors[name] for name in held}, tmp_path / file)
        weight_map = {name: file for file, held in parts.items() for name in held}
        (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    source = Checkpoint(tmp_path, QWEN)
    layer = "model.layers.0."
    for ours, theirs in (
        ("layers.0.attention.key.weight", f"{layer}self_attn.k_proj.weight"),
        ("layers.0.mlp.gate.weight", f"{layer}mlp.gate_proj.weight"),
        ("layers.0.mlp.down.weight", f"{layer}mlp.down_proj.weight"),
        ("embedding.weight", "model.embed_tokens.weight"),
    ):
        assert torch.equal(source.values(ours, Part(3, 9), Part(4, 20)), tensors[theirs][3:9, 4:20])
    for ours, theirs in (
        ("layers.0.attention.query.bias", f"{layer}self_attn.q_proj.bias"),
        ("layers.0.attention.query_norm.weight", f"{layer}self_attn.q_norm.weight"),
        ("layers.0.mlp_norm.weight", f"{layer}post_attention_layernorm.weight"),
        ("final_norm.weight", "model.norm.weight"),
    ):
        assert torch.equal(source.values(ours, Part(2, 7), None), tensors[theirs][2:7])


def test_parts_of_a_gpt2_checkpoint_are_cut_out_and_turned(tmp_path: Path) -> None:
    """Its matrices are stored by inputs, queries, keys and values side by side."""
    joined, bias, up = torch.randn(32, 96), torch.randn(96), torch.randn(32, 48)
    tensors = {"wte.weight": torch.randn(61, 32), "wpe.weight": torch.randn(16, 32), "ln_f.bias": torch.randn(32)}
    tensors |= {"h.0.attn.c_attn.weight": joined, "h.0.attn.c_attn.bias": bias, "h.0.mlp.c_fc.weight": up}
    save_file({f"transformer.{name}": tensor for name, tensor in tensors.items()}, tmp_path / "model.safetensors")
    source = Checkpoint(tmp_path, GPT)
    key = source.values("layers.0.attention.key.weight", Part(8, 16), Part(0, 32))
    assert torch.equal(key, joined[:, 40:48].T)
    assert torch.equal(source.values("layers.0.attention.value.bias", Part(8, 16), None), bias[72:80])
    assert torch.equal(source.values("layers.0.mlp.up.weight", Part(5, 9), Part(3, 7)), up[3:7, 5:9].T)
    assert torch.equal(source.values("positions.weight", Part(1, 3), Part(0, 32)), tensors["wpe.weight"][1:3])
    assert torch.equal(source.values("final_norm.bias", Part(1, 3), None), tensors["ln_f.bias"][1:3])


def test_faults_of_checkpoints_are_named(tmp_path: Path) -> None:
    """No files, no such tensor, a tensor that is too small, a model of another kind."""
    with pytest.raises(WeightsError, match="must hold .safetensors files, got none"):
        Checkpoint(tmp_path, QWEN)
    save_file(qwen_tensors(), tmp_path / "model.safetensors")
    source = Checkpoint(tmp_path, QWEN)
    with pytest.raises(WeightsError, match=r"has no tensor model\.layers\.1\."):
        source.values("layers.1.mlp.up.weight", Part(0, 1), Part(0, 1))
    with pytest.raises(WeightsError, match=r"embed_tokens.weight must be at least \[62, 32\] .* got \[61, 32\]"):
        source.values("embedding.weight", Part(0, 62), Part(0, 32))
    with pytest.raises(WeightsError, match="has no place in a checkpoint of this kind"):
        source.values("layers.0.mlp_output_norm.weight", Part(0, 1), None)
    (tmp_path / "model.safetensors").write_bytes(b"not tensors")
    with pytest.raises(WeightsError, match="cannot read the weights"):
        Checkpoint(tmp_path, QWEN)


def test_constants_come_from_the_config(tmp_path: Path) -> None:
    """Base of the rotary positions and epsilon of the norms; scaled positions are refused."""
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"rope_theta": 500000.0, "rms_norm_eps": 1e-6}))
    assert constants_in(tmp_path) == Constants(rope_theta=500000.0, norm_epsilon=1e-6)
    config.write_text(json.dumps({"rope_scaling": {"rope_type": "yarn"}}))
    with pytest.raises(WeightsError, match="rope scaling must be 'default' to run here, got 'yarn'"):
        constants_in(tmp_path)
    config.write_text(json.dumps({"rope_theta": -1}))
    with pytest.raises(WeightsError, match="rope_theta must be a number > 0, got -1"):
        constants_in(tmp_path)
    config.write_text("[")
    with pytest.raises(WeightsError, match="cannot read"):
        constants_in(tmp_path)
