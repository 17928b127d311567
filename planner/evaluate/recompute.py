"""What a row recomputes: shares of the recompute vocabulary's modules, and on which layers."""

import re
from dataclasses import dataclass

from planner.evaluate.errors import UnsupportedRunError

__all__ = ["FULL", "Recompute", "read_recompute"]

MODULES = {
    "layernorm": "norm",
    "norm": "norm",
    "moe_act": "activation",
    "activation": "activation",
    "act": "activation",
    "core_attn": "core_attention",
    "core_attention": "core_attention",
    "mla_up_proj": "mla_up_proj",
    "mlp": "mlp",
    "moe": "moe",
    "shared_experts": "shared_experts",
    "full": "full",
}
# torchtitan's selective policy keeps every second matrix product and the attention: of the MLP's two first products
# one stays, and the norms and activations between are run again.
EVERY_OTHER_PRODUCT = {"norm": 1.0, "activation": 1.0, "mlp": 0.5}
FULL = "full"
BLOCK = re.compile(r"full:(\d+) layers per")


@dataclass(frozen=True)
class Recompute:
    """Shares of modules, 0 to 1, on `share` of the layers, or on up to `per_chunk` layers of every chunk."""

    shares: tuple[tuple[str, float], ...] = ()
    share: float = 1.0
    per_chunk: int | None = None


def read_recompute(text: str) -> Recompute:
    """What a cell such as "full", "selective:moe_act+layernorm" or "none" stands for. Raises UnsupportedRunError."""
    name = text.lower().strip()
    if name in ("", "none", "no", "0", "false"):
        return Recompute()
    block = BLOCK.match(name)
    if block:
        return Recompute((("full", 1.0),), per_chunk=int(block[1]))
    if name == "full" or name.startswith("full:"):
        return Recompute((("full", 1.0),))
    if name == "selective":
        return Recompute((("core_attention", 1.0),))
    kind, _, wanted = name.partition(":")
    if kind == "selective" and wanted == "op":
        return Recompute(tuple(EVERY_OTHER_PRODUCT.items()))
    if kind == "selective" and wanted.startswith("every-"):
        return Recompute((("full", 1.0),), share=0.5)
    names = [part.strip() for part in (wanted if kind == "selective" else name).split("+")]
    unknown = [part for part in names if part not in MODULES]
    if unknown:
        message = f"recompute must be none, full, selective or selective:{'+'.join(MODULES)}, got {text}"
        raise UnsupportedRunError(message)
    return Recompute(tuple(sorted({MODULES[part]: 1.0 for part in names}.items())))
