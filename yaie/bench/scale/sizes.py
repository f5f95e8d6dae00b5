"""What one rank of several reads, multiplies and sends in a step, counted from the model's numbers."""

from dataclasses import dataclass
from typing import Any, Literal

from yaie.bench.collectives import Algorithm, bytes_sent

Draws = Literal["greedy", "sampled"]
Kind = Literal["all_reduce", "all_gather"]
LOGIT_BYTES = 4
"""Logits are float32."""
BEST_BYTES = 16
"""A rank's best token and its logit, two numbers of float64."""


@dataclass(frozen=True, slots=True)
class Dims:
    """A model of Llama's kind in numbers. width: bytes of a weight, a key and a hidden state."""

    hidden: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    width: int

    @classmethod
    def of(cls, config: Any, width: int) -> "Dims":
        """config: of transformers, or what has the same names."""
        heads, hidden = config.num_attention_heads, config.hidden_size
        return cls(
            hidden=hidden,
            inner=getattr(config, "intermediate_size", None) or 4 * hidden,
            layers=config.num_hidden_layers,
            heads=heads,
            kv_heads=getattr(config, "num_key_value_heads", None) or heads,
            head_dim=getattr(config, "head_dim", None) or hidden // heads,
            vocab=config.vocab_size,
            width=width,
        )

    def held_kv_heads(self, ranks: int) -> int:
        """KV heads of each of so many ranks: several ranks hold the same one if there are too few."""
        return max(1, self.kv_heads // ranks)

    def layer_weights(self, ranks: int) -> int:
        """Weights of a layer's products on each rank."""
        queries = self.heads // ranks * self.head_dim
        keys = self.held_kv_heads(ranks) * self.head_dim
        return self.hidden * (2 * queries + 2 * keys + 3 * self.inner // ranks)

    def head_weights(self, ranks: int) -> int:
        """Weights of the output head on the rank that has most of them."""
        return self.hidden * -(-self.vocab // ranks)

    def kv_bytes(self, ranks: int) -> int:
        """Of a token's keys and values in one layer, on each rank."""
        return 2 * self.held_kv_heads(ranks) * self.head_dim * self.width

    def query_width(self, ranks: int) -> int:
        """Query heads of a rank times their size."""
        return self.heads // ranks * self.head_dim


@dataclass(frozen=True, slots=True)
class Call:
    """A collective that a step makes `times` times. num_bytes: of the tensor that each rank gives."""

    kind: Kind
    num_bytes: int
    times: int

    def sent(self, algorithm: Algorithm, ranks: int) -> float:
        """Bytes that the rank that sends most sends, in all of these calls."""
        if self.kind == "all_gather":
            return float(self.times * (ranks - 1) * self.num_bytes)
        return self.times * max(bytes_sent(algorithm, self.num_bytes, ranks))


def calls(dims: Dims, ranks: int, rows: int, draws: Draws) -> list[Call]:
    """The collectives of a step of `rows` tokens, each of which is followed by a draw.

    One all-reduce for the embedding and two a layer; then the logits, or only each rank's best token.
    """
    if ranks == 1:
        return []
    states = rows * dims.hidden * dims.width
    held = -(-dims.vocab // ranks)
    ends = rows * (BEST_BYTES if draws == "greedy" else held * LOGIT_BYTES)
    return [Call("all_reduce", states, 1 + 2 * dims.layers), Call("all_gather", ends, 1)]
