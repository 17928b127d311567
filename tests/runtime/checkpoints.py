"""Checkpoints of small models of one layer, as Hugging Face names and shapes them."""

import torch
from torch import Tensor

LAYER = "model.layers.0."


def drawn(shapes: dict[str, tuple[int, ...]]) -> dict[str, Tensor]:
    """Tensors of some shapes."""
    generator = torch.Generator().manual_seed(0)
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def qwen_tensors(**changes: tuple[int, ...] | None) -> dict[str, Tensor]:
    """A whole checkpoint of the Qwen shape, with some shapes changed, by the last parts of their names."""
    layer = {
        "input_layernorm.weight": (32,),
        "post_attention_layernorm.weight": (32,),
        "self_attn.q_proj.weight": (32, 32),
        "self_attn.k_proj.weight": (16, 32),
        "self_attn.v_proj.weight": (16, 32),
        "self_attn.q_proj.bias": (32,),
        "self_attn.k_proj.bias": (16,),
        "self_attn.v_proj.bias": (16,),
        "self_attn.q_norm.weight": (8,),
        "self_attn.k_norm.weight": (8,),
        "self_attn.o_proj.weight": (32, 32),
        "mlp.gate_proj.weight": (48, 32),
        "mlp.up_proj.weight": (48, 32),
        "mlp.down_proj.weight": (32, 48),
    }
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (61, 32), "model.norm.weight": (32,)}
    shapes |= {f"{LAYER}{name}": shape for name, shape in layer.items()}
    for part, shape in changes.items():
        name = next((name for name in shapes if name.endswith(part)), part)
        del shapes[name]
        shapes |= {name: shape} if shape is not None else {}
    return drawn(shapes)


def gpt_tensors() -> dict[str, Tensor]:
    """A whole checkpoint of GPT-2, with the causal mask that it keeps among its weights."""
    layer = {
        "ln_1.weight": (32,),
        "ln_1.bias": (32,),
        "attn.bias": (1, 1, 16, 16),
        "attn.c_attn.weight": (32, 96),
        "attn.c_attn.bias": (96,),
        "attn.c_proj.weight": (32, 32),
        "attn.c_proj.bias": (32,),
        "ln_2.weight": (32,),
        "ln_2.bias": (32,),
        "mlp.c_fc.weight": (32, 48),
        "mlp.c_fc.bias": (48,),
        "mlp.c_proj.weight": (48, 32),
        "mlp.c_proj.bias": (32,),
    }
    ends = {"wte.weight": (61, 32), "wpe.weight": (16, 32), "ln_f.weight": (32,), "ln_f.bias": (32,)}
    return drawn({**ends, **{f"h.0.{name}": shape for name, shape in layer.items()}})


def llama_tensors() -> dict[str, Tensor]:
    """A whole checkpoint of the Llama shape."""
    tensors = {name: one for name, one in qwen_tensors().items() if "bias" not in name and "_norm" not in name}
    return tensors | drawn({"lm_head.weight": (61, 32)})
