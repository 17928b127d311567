"""Weights of Hugging Face checkpoints, whole and in parts."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from planner.document.job import Job
from runtime.chunk import full_shapes, whole_chunk
from runtime.constants import Constants, constants_in
from runtime.errors import WeightsError
from runtime.parameters import Part, fill
from runtime.weights import Checkpoint
from tests.runtime.checkpoints import LAYER, gpt_tensors, llama_tensors, qwen_tensors
from tests.runtime.jobs import MODELS, small_job, small_model

QWEN, GPT = (small_job(small_model(layers=1, **MODELS[kind])) for kind in ("qwen", "gpt"))


def checkpoint(folder: Path, tensors: dict[str, Tensor], job: Job = QWEN) -> Checkpoint:
    """The checkpoint of some tensors in one file of a folder."""
    save_file(tensors, folder / "model.safetensors")
    return Checkpoint(folder, job)


@pytest.mark.parametrize("files", [1, 2])
def test_parts_of_a_llama_checkpoint_are_found_by_their_names(files: int, tmp_path: Path) -> None:
    """In one file, or in several with an index."""
    tensors = qwen_tensors()
    names = list(tensors)
    if files == 1:
        save_file(tensors, tmp_path / "model.safetensors")
    else:
        parts = {"a.safetensors": names[:5], "b.safetensors": names[5:]}
        for file, held in parts.items():
            save_file({name: tensors[name] for name in held}, tmp_path / file)
        weight_map = {name: file for file, held in parts.items() for name in held}
        (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    source = Checkpoint(tmp_path, QWEN)
    for ours, theirs in (
        ("layers.0.attention.key.weight", f"{LAYER}self_attn.k_proj.weight"),
        ("layers.0.mlp.gate.weight", f"{LAYER}mlp.gate_proj.weight"),
        ("layers.0.mlp.down.weight", f"{LAYER}mlp.down_proj.weight"),
        ("embedding.weight", "model.embed_tokens.weight"),
    ):
        assert torch.equal(source.values(ours, Part(3, 9), Part(4, 20)), tensors[theirs][3:9, 4:20])
    for ours, theirs in (
        ("layers.0.attention.query.bias", f"{LAYER}self_attn.q_proj.bias"),
        ("layers.0.attention.query_norm.weight", f"{LAYER}self_attn.q_norm.weight"),
        ("layers.0.mlp_norm.weight", f"{LAYER}post_attention_layernorm.weight"),
        ("final_norm.weight", "model.norm.weight"),
    ):
        assert torch.equal(source.values(ours, Part(2, 7), None), tensors[theirs][2:7])


@pytest.mark.parametrize("prefix", ["", "transformer."])
def test_parts_of_a_gpt2_checkpoint_are_cut_out_and_turned(prefix: str, tmp_path: Path) -> None:
    """Its matrices are stored by inputs, queries, keys and values side by side."""
    tensors = gpt_tensors()
    source = checkpoint(tmp_path, {f"{prefix}{name}": tensor for name, tensor in tensors.items()}, GPT)
    joined, bias = tensors["h.0.attn.c_attn.weight"], tensors["h.0.attn.c_attn.bias"]
    key = source.values("layers.0.attention.key.weight", Part(8, 16), Part(0, 32))
    assert torch.equal(key, joined[:, 40:48].T)
    assert torch.equal(source.values("layers.0.attention.value.bias", Part(8, 16), None), bias[72:80])
    up = source.values("layers.0.mlp.up.weight", Part(5, 9), Part(3, 7))
    assert torch.equal(up, tensors["h.0.mlp.c_fc.weight"][3:7, 5:9].T)
    assert torch.equal(source.values("positions.weight", Part(1, 3), Part(0, 32)), tensors["wpe.weight"][1:3])
    assert torch.equal(source.values("final_norm.bias", Part(1, 3), None), tensors["ln_f.bias"][1:3])


@pytest.mark.parametrize("model", MODELS)
def test_every_tensor_of_a_model_is_read_from_its_own_place(model: str, tmp_path: Path) -> None:
    """A chunk that is filled from a checkpoint holds each of its values once, and nothing else."""
    job = small_job(small_model(layers=2, **MODELS[model]))
    shapes = full_shapes(job)
    tensors = {"llama": llama_tensors, "qwen": qwen_tensors, "gpt": gpt_tensors}[model]()
    for name in [name for name in tensors if ".0." in name]:
        tensors[name.replace(".0.", ".1.")] = tensors[name].clone()
    numbered = {name: torch.full_like(one, index) for index, (name, one) in enumerate(tensors.items())}
    source = checkpoint(tmp_path, numbered, job)
    read: set[float] = set()
    for name, shape in shapes.items():
        values = source.values(name, Part(0, shape[0]), Part(0, shape[1]) if len(shape) > 1 else None)
        assert values.shape == shape
        read |= set(values.unique().tolist())
    assert len(read) == len([name for name in tensors if not name.endswith(".attn.bias")])


def test_only_the_vocabulary_may_be_longer(tmp_path: Path) -> None:
    """Rows that pad it are left out; any other size is another model's, of which we would get a slice."""
    tensors = qwen_tensors(**{"embed_tokens.weight": (64, 32)})
    rows = checkpoint(tmp_path, tensors).values("embedding.weight", Part(50, 61), Part(0, 32))
    assert torch.equal(rows, tensors["model.embed_tokens.weight"][50:61])
    for part, shape, ours, rule in (
        ("embed_tokens.weight", (60, 32), "embedding.weight", r"must be \[61, 32\] or have more rows"),
        ("embed_tokens.weight", (64, 40), "embedding.weight", r"must be \[61, 32\] or have more rows"),
        ("gate_proj.weight", (64, 32), "layers.0.mlp.gate.weight", r"must be \[48, 32\]"),
        ("gate_proj.weight", (48, 64), "layers.0.mlp.gate.weight", r"must be \[48, 32\]"),
        ("down_proj.weight", (48, 32), "layers.0.mlp.down.weight", r"must be \[32, 48\]"),
        ("q_proj.bias", (64,), "layers.0.attention.query.bias", r"must be \[32\]"),
        ("q_norm.weight", (8, 1), "layers.0.attention.query_norm.weight", r"must be \[8\]"),
    ):
        source = checkpoint(tmp_path, qwen_tensors(**{part: shape}))
        told = rf"{part} {rule} for the plan's model, got \[{', '.join(map(str, shape))}\]"
        with pytest.raises(WeightsError, match=told):
            source.values(ours, Part(0, 1), Part(0, 1) if len(shape) > 1 and "norm" not in ours else None)


@pytest.mark.parametrize(
    ("name", "shape", "told"),
    [
        ("wpe.weight", (32, 32), r"wpe.weight must be \[16, 32\] for the plan's model, got \[32, 32\]"),
        ("h.0.attn.c_attn.weight", (32, 128), r"c_attn.weight must be \[32, 96\] .* got \[32, 128\]"),
        ("h.0.attn.c_attn.bias", (64,), r"c_attn.bias must be \[96\] .* got \[64\]"),
        ("h.0.mlp.c_fc.weight", (48, 32), r"c_fc.weight must be \[32, 48\] .* got \[48, 32\]"),
    ],
)
def test_shapes_of_gpt2_are_told_as_its_files_hold_them(
    name: str, shape: tuple[int, ...], told: str, tmp_path: Path
) -> None:
    """Longer positions, other widths, matrices the wrong way round."""
    source = checkpoint(tmp_path, gpt_tensors() | {name: torch.zeros(shape)}, GPT)
    with pytest.raises(WeightsError, match=told):
        fill(whole_chunk(GPT, Constants()), source)


def test_a_checkpoint_of_more_than_the_model_is_refused(tmp_path: Path) -> None:
    """More layers, biases that the model lacks, a head of its own: what is left out would have changed the answers."""
    deeper = qwen_tensors() | {"model.layers.1.mlp.up_proj.weight": torch.zeros(48, 32)}
    with pytest.raises(
        WeightsError, match=r"holds model\.layers\.1\.mlp\.up_proj\.weight, which the plan's model lacks"
    ):
        checkpoint(tmp_path, deeper)
    biased = small_job(small_model(layers=1, **MODELS["qwen"] | {"qkv_bias": False}))
    with pytest.raises(WeightsError, match=r"k_proj\.bias and 2 more, which the plan's model lacks"):
        checkpoint(tmp_path, qwen_tensors(), biased)
    tensors = qwen_tensors()
    head = tensors["model.embed_tokens.weight"].clone()
    rows, columns = Part(5, 9), Part(0, 32)
    copied = checkpoint(tmp_path, tensors | {"lm_head.weight": head})
    assert torch.equal(copied.values("embedding.weight", rows, columns), head[5:9])
    head[6] += 1
    own = checkpoint(tmp_path, tensors | {"lm_head.weight": head})
    with pytest.raises(WeightsError, match=r"lm_head.weight must hold what model.embed_tokens.weight holds"):
        own.values("embedding.weight", rows, columns)


def test_faults_of_checkpoints_are_named(tmp_path: Path) -> None:
    """No files, no such tensor, a file that is gone or broken, a model of another kind."""
    with pytest.raises(WeightsError, match="must hold .safetensors files, got none"):
        Checkpoint(tmp_path, QWEN)
    with pytest.raises(WeightsError, match=r"has no tensor model\.layers\.0\.mlp\.up_proj\.weight, which"):
        checkpoint(tmp_path, qwen_tensors(**{"up_proj.weight": None}))
    behind = small_job(small_model(layers=1, **MODELS["qwen"] | {"norm_placement": "both"}))
    with pytest.raises(WeightsError, match="has no place in a checkpoint of this kind"):
        checkpoint(tmp_path, qwen_tensors(), behind)
    (tmp_path / "model.safetensors").write_bytes(b"not tensors")
    with pytest.raises(WeightsError, match="cannot read the weights"):
        Checkpoint(tmp_path, QWEN)
    index = {"weight_map": dict.fromkeys(qwen_tensors(), "gone.safetensors")}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(WeightsError, match=r"cannot read .*gone\.safetensors"):
        Checkpoint(tmp_path, QWEN).values("embedding.weight", Part(0, 1), Part(0, 1))


def test_constants_come_from_the_config(tmp_path: Path) -> None:
    """Base of the rotary positions and epsilon of the norms."""
    config = {"model_type": "qwen3", "rope_theta": 500000.0, "rms_norm_eps": 1e-6, "num_attention_heads": 4}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert constants_in(tmp_path, QWEN.model) == Constants(rope_theta=500000.0, norm_epsilon=1e-6)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"rope_scaling": {"rope_type": "yarn"}}, "rope scaling must be 'default' to run here, got 'yarn'"),
        ({"rope_scaling": "yarn"}, "rope scaling must be 'default' to run here, got 'yarn'"),
        ({"rope_theta": -1}, "rope_theta must be a number > 0, got -1"),
        ({"rms_norm_eps": math.inf}, "rms_norm_eps must be a number > 0, got inf"),
        ({"model_type": "gemma2"}, "model_type must be one of llama, mistral, qwen2, qwen3, gpt2 .* got 'gemma2'"),
        ({"model_type": None}, "model_type must be one of .* got None"),
        ({"hidden_act": "gelu"}, "hidden_act must be one of silu to run here, got 'gelu'"),
        ({"num_attention_heads": 8}, r"num_attention_heads must be model\.heads \(4\), got 8"),
        ({"num_key_value_heads": 4}, r"num_key_value_heads must be model\.kv_heads \(2\), got 4"),
    ],
)
def test_a_config_of_another_model_is_refused(changes: dict[str, Any], told: str, tmp_path: Path) -> None:
    """Scaled positions, other activations, other heads of the same width: shapes would not tell."""
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen3"} | changes))
    with pytest.raises(WeightsError, match=told):
        constants_in(tmp_path, QWEN.model)


@pytest.mark.parametrize("text", ["[", "[]"])
def test_a_config_that_is_none_is_refused(text: str, tmp_path: Path) -> None:
    """No JSON, or no object."""
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(WeightsError, match=r"cannot read|must hold a JSON object"):
        constants_in(tmp_path, QWEN.model)
