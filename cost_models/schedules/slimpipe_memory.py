"""What a rank holds under SlimPipe, with vocabulary-parallel logits: the memory model of its authors' planner.

Recovered from the predictions that they print with their artifact (SC '25, arXiv 2504.14519), which it gives to the
digits printed. It is about the first rank, bf16 weights and activations with fp32 gradients, one sequence a
micro-batch, flash attention and SwiGLU, and any shares of tokens, so that a cost model can take single terms from it.
How many slices are alive is read off the action table (`live.peak_live`).
"""

from dataclasses import dataclass
from typing import Any

BYTES_16_BIT = 2
BYTES_32_BIT = 4
WEIGHT_AND_GRADIENT_BYTES = BYTES_16_BIT + BYTES_32_BIT
OPTIMIZER_BYTES = 3 * BYTES_32_BIT
"""Master weight and both moments of AdamW."""


@dataclass(frozen=True)
class Decoder:
    """The sizes of a model that its memory depends on."""

    hidden: int
    ffn: int
    """Inner size of the MLP, or of one expert."""
    kv_share: float
    """Key and value heads by attention heads."""
    vocabulary: int
    experts: int = 1
    top_k: int = 1
    """Experts that a token goes to."""

    @property
    def attention_parameters(self) -> float:
        """Parameters of the attention of a layer."""
        return 2 * self.hidden**2 * (1 + self.kv_share)

    @property
    def expert_parameters(self) -> int:
        """Parameters of all experts, or of the one MLP, of a layer."""
        return 3 * self.hidden * self.ffn * self.experts

    @property
    def kv_bytes(self) -> float:
        """Bytes of keys and values of a token in a layer: what the KV cache of earlier slices holds."""
        return 2 * BYTES_16_BIT * self.hidden * self.kv_share

    @property
    def kept_bytes(self) -> float:
        """Bytes that the forward of a layer keeps of a token when nothing is recomputed, keys and values included."""
        return 12 * self.hidden + self.kv_bytes + 6 * self.top_k * self.ffn

    @property
    def kept_bytes_recomputed_mlp(self) -> float:
        """The same when norms, gate, up and SwiGLU are recomputed: the authors' balanced choice, "partial+fc1"."""
        return 8 * self.hidden + self.kv_bytes

    @property
    def kept_bytes_recomputed(self) -> int:
        """The same when the whole layer is recomputed: its input."""
        return BYTES_16_BIT * self.hidden


@dataclass(frozen=True)
class Cut:
    """How a model and its sequences are cut."""

    tp: int
    cp: int
    pp: int
    ep: int
    dp: int
    """Ranks that hold the same weights and are neither cp nor ep: tp * cp * pp * ep * dp are all."""
    chunks: int
    slices: int
    layers_per_chunk: int


def weight_and_gradient_bytes(model: Decoder, cut: Cut) -> float:
    """Bytes of the weights and gradients of the first rank, embedding included."""
    dense, experts = _parameters(model, cut)
    return WEIGHT_AND_GRADIENT_BYTES * (dense + experts)


def optimizer_bytes(model: Decoder, cut: Cut) -> float:
    """Bytes of its optimizer states, sharded over all ranks that hold the same weights."""
    dense, experts = _parameters(model, cut)
    return OPTIMIZER_BYTES * (dense / cut.ep + experts) / (cut.dp * cut.cp)


def activation_bytes(kept_bytes: float, tokens: float, cut: Cut, live: int) -> float:
    """Bytes kept of `live` chunk-slices (or chunks of micro-batches, with one slice), `kept_bytes` a token and layer.

    `tokens` are those of a micro-batch on a (tp, cp) rank. With the live count of SlimPipe on rank i it is
    (1 + 2 (p - 1 - i) / (n v)) micro-batches through the layers of one rank.
    """
    return kept_bytes * tokens / cut.slices * cut.layers_per_chunk * live


def recomputed_bytes(model: Decoder, tokens: float) -> float:
    """Bytes of the one layer that a full recompute has alive, of a micro-batch in one slice."""
    return model.kept_bytes * tokens


def kv_gradient_bytes(model: Decoder, tokens: float, cut: Cut) -> float:
    """Bytes of the gradients of keys and values that later slices add up for earlier ones; 0 for one slice.

    The authors count hidden for the width of keys and values, grouped heads or not.
    """
    chunk_slices: int = kv_gradient_chunk_slices(cut.chunks, cut.slices, cut.pp)
    return 2 * BYTES_16_BIT * model.hidden * tokens / cut.slices * cut.layers_per_chunk * chunk_slices


def kv_gradient_chunk_slices(chunks: Any, slices: Any, pp: Any) -> Any:
    """Chunk-slices whose keys and values have gradients to add up: those that wait in every chunk, and those at work.

    Backwards take pp slices through all chunks before the next: a chunk that is done with them has gradients of the
    other slices - pp, the last one of slices - 1, and as many again are being added to it. Works on numbers and arrays.
    """
    return ((chunks + 1) * slices - (chunks - 1) * pp - 2) * (slices > 1)


def logits_bytes(model: Decoder, tokens: float, cut: Cut) -> float:
    """Bytes of the fp32 logits of one micro-batch, the vocabulary spread over all pipeline ranks."""
    return BYTES_32_BIT * tokens * model.vocabulary / cut.pp


def _parameters(model: Decoder, cut: Cut) -> tuple[float, float]:
    """Parameters of the first rank: attention and embedding, and its share of the experts."""
    layers = cut.chunks * cut.layers_per_chunk
    dense = layers * model.attention_parameters + model.vocabulary * model.hidden
    return dense / cut.tp, layers * model.expert_parameters / cut.ep / cut.tp
