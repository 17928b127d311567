"""A GPT in Mist's terms: operators, seconds of one micro-batch and MiB of a layer, the embedding and the head."""

from dataclasses import dataclass

from tests.oracles.mist.hardware import Card

MIB = 2.0**20
VOCAB = 50304
SEQ_LEN = 2048


@dataclass(frozen=True)
class Gpt:
    """Shapes of a model; 16-bit weights and gradients, Adam in 32 bits, tensor parallelism of 1."""

    hidden: int
    layers: int
    heads: int
    flash: bool
    seq_len: int = SEQ_LEN
    vocab: int = VOCAB

    @property
    def layer_parameters(self) -> int:
        """Parameters of one layer: four projections of attention and MLP without bias, two norms."""
        return 12 * self.hidden**2 + 4 * self.hidden

    @property
    def vocab_parameters(self) -> int:
        """Parameters of the embedding, and of the head."""
        return self.vocab * self.hidden

    def layer_operators(self, batch: int) -> list[tuple[str, str]]:
        """Operators of a layer that take time, with their shapes."""
        hidden, tokens = self.hidden, f"{batch}x{self.seq_len}"
        wide, head_dim = f"{tokens}x{hidden}", hidden // self.heads
        if self.flash:
            attention = [("flash_attention", f"{tokens}x3x{self.heads}x{head_dim}")]
        else:
            rows = batch * self.heads
            scores, tall = f"{rows}x{self.seq_len}x{self.seq_len}", f"{rows}x{self.seq_len}x{head_dim}"
            attention = [
                ("scores", f"{scores};{tall};{rows}x{head_dim}x{self.seq_len}"),
                ("softmax", scores),
                ("context", f"{scores};{tall}"),
            ]
        return [
            ("norm", f"{wide};{hidden};{hidden}"),
            ("linear", f"{wide};{3 * hidden}x{hidden}"),
            *attention,
            ("linear", f"{wide};{hidden}x{hidden}"),
            ("add", f"{wide};{wide}"),
            ("norm", f"{wide};{hidden};{hidden}"),
            ("linear", f"{wide};{4 * hidden}x{hidden}"),
            ("gelu", f"{tokens}x{4 * hidden}"),
            ("linear", f"{tokens}x{4 * hidden};{hidden}x{4 * hidden}"),
            ("add", f"{wide};{wide}"),
        ]

    def embedding_operators(self, batch: int) -> list[tuple[str, str]]:
        """Operators of the embedding; the positions are added to the tokens."""
        tokens = f"{batch}x{self.seq_len}"
        wide = f"{tokens}x{self.hidden}"
        return [("embedding", f"{tokens};{self.hidden}"), ("add", f"{wide};{wide}"), ("dropout", wide)]

    def head_operators(self, batch: int) -> list[tuple[str, str]]:
        """Operators of the head and the loss; by Mist's figures, without the norm in front of them."""
        wide, rows = f"{batch}x{self.seq_len}x{self.hidden}", batch * self.seq_len
        return [
            ("linear", f"{wide};{self.vocab}x{self.hidden}"),
            ("loss", f"{rows}x{self.vocab};{rows}"),
        ]

    def unit_mib(self, batch: int) -> float:
        """MiB of one activation of a micro-batch: a value of 16 bits for each token and hidden unit."""
        return 2 * batch * self.seq_len * self.hidden / MIB

    def scores_mib(self, batch: int) -> float:
        """MiB of attention scores that are kept; none with flash attention."""
        return 0.0 if self.flash else 2 * batch * self.heads * self.seq_len**2 / MIB

    def logits_mib(self, batch: int) -> float:
        """MiB of the logits of a micro-batch, in 16 bits."""
        return 2 * batch * self.seq_len * self.vocab / MIB

    def saved_mib(self, batch: int) -> float:
        """MiB that a layer keeps for its backward pass: inputs of its operators, norm statistics, softmax sums."""
        sums = 4 * batch * self.heads * self.seq_len if self.flash else 0
        return 16 * self.unit_mib(batch) + self.scores_mib(batch) + (16 * self.seq_len * batch + sums) / MIB


@dataclass(frozen=True)
class MicroBatch:
    """Seconds, forward and backward, of one micro-batch of `batch` sequences."""

    layer_s: tuple[float, float]
    embedding_s: tuple[float, float]
    head_s: tuple[float, float]

    @classmethod
    def of(cls, model: Gpt, card: Card, batch: int, micro_batches: int) -> "MicroBatch":
        """Seconds by table; gradients are added to those of the micro-batches before, all but the first time."""
        added = (micro_batches - 1) / micro_batches

        def unit(operators: list[tuple[str, str]], parameters: int) -> tuple[float, float]:
            forward_s, backward_s = card.operators_s(operators)
            return forward_s, backward_s + added * card.accumulation_s(parameters)

        return cls(
            unit(model.layer_operators(batch), model.layer_parameters),
            unit(model.embedding_operators(batch), model.vocab_parameters),
            unit(model.head_operators(batch), model.vocab_parameters),
        )


# Hidden size, layers and heads, of GPT and of Llama.
SIZES = {"1.3b": (2048, 24, 16), "2.7b": (2560, 32, 32), "7b": (4096, 32, 32)}


def gpt(size: str, flash: bool) -> Gpt:
    """One of the models that Mist was measured on."""
    hidden, layers, heads = SIZES[size]
    return Gpt(hidden, layers, heads, flash)
