"""Layers that keep a state: one fixed piece of memory a sequence, where attention keeps every token."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch
    from torch import Tensor


@dataclass(slots=True)
class StateBatch:
    """A flat batch of n sequences and T tokens, sequence after sequence, for layers that keep a state.

    Sequence i has `lens[i]` consecutive tokens; its state lies in slot `slots[i]` of every state pool,
    is read before them and written after them.

    lens: n Python integers, on the host, for planning; in a padded step they are bounds.
    starts: [n + 1] int32, where each sequence's tokens start in the flat batch.
    slots: [n] int64, no two alike, but for rows of padding, which all have the slot that no request has.
    is_fresh: [n] bool, whether the sequence begins here: what lies in its slot is of another request,
        and counts as zero.
    """

    lens: list[int]
    starts: "Tensor"
    slots: "Tensor"
    is_fresh: "Tensor"


class StateOps(Protocol):
    """What layers with a state compute, over the sequences of a StateBatch. Pools are changed in place,
    in the slots of the batch alone."""

    def short_conv(
        self,
        x: "Tensor",
        weight: "Tensor",
        bias: "Tensor | None",
        pool: "Tensor",
        batch: StateBatch,
        silu: bool = False,
    ) -> "Tensor":
        """A causal convolution of each channel over time.

        x: [T, channels]. weight: [channels, width], the newest token's factor last. bias: [channels].
        pool: [slots, channels, width - 1], the inputs of the last tokens, the newest last.
        silu: whether SiLU follows. Returns [T, channels], of x's dtype; sums are float32.
        """
        ...

    def gated_delta_rule(
        self,
        q: "Tensor",
        k: "Tensor",
        v: "Tensor",
        log_decay: "Tensor",
        beta: "Tensor",
        pool: "Tensor",
        batch: StateBatch,
    ) -> "Tensor":
        """Gated DeltaNet (https://arxiv.org/abs/2412.06464), equation 10, for every head and token t:

            S = exp(log_decay_t) S
            S = S + k_t (beta_t (v_t - S^T k_t))^T
            out_t = S^T q_t

        q, k: [T, heads, d_k], normed and scaled by the caller. v: [T, v_heads, d_v]; v_heads is a
        multiple of heads, and value head h goes with head h // (v_heads // heads). log_decay, beta:
        [T, v_heads] float32. pool: [slots, v_heads, d_k, d_v] float32. Returns [T, v_heads, d_v], of
        v's dtype; everything between is float32.
        """
        ...

    def selective_scan(
        self,
        x: "Tensor",
        dt: "Tensor",
        a: "Tensor",
        b: "Tensor",
        c: "Tensor",
        d: "Tensor | None",
        pool: "Tensor",
        batch: StateBatch,
    ) -> "Tensor":
        """Mamba-2's SSD (https://arxiv.org/abs/2405.21060), for every head and token t:

            S = exp(dt_t a) S + dt_t x_t b_t^T
            out_t = S c_t + d x_t

        x: [T, heads, p]. dt: [T, heads] float32, biased and through softplus already. a, d: [heads]
        float32, a negative. b, c: [T, groups, n]; head h goes with group h // (heads // groups).
        pool: [slots, heads, p, n] float32. Returns [T, heads, p], of x's dtype; everything between is
        float32.
        """
        ...

    def delta_inputs(
        self,
        q: "Tensor",
        k: "Tensor",
        a: "Tensor",
        b: "Tensor",
        log_a: "Tensor",
        dt_bias: "Tensor",
        eps: float = 1e-6,
    ) -> "tuple[Tensor, Tensor, Tensor, Tensor]":
        """What `gated_delta_rule` takes, of what a Gated DeltaNet layer has: q, k, log_decay, beta.

        q, k: [T, heads, d_k]; they get lengths of d_k ** -0.5 and 1, but for eps, which is added to the
        sum of squares. log_decay = -exp(log_a) softplus(a + dt_bias), and beta = sigmoid(b). a, b:
        [T, v_heads]. log_a, dt_bias: [v_heads] float32.
        """
        ...

    def gated_norm(
        self,
        x: "Tensor",
        gate: "Tensor",
        weight: "Tensor",
        eps: float,
        gate_first: bool = False,
    ) -> "Tensor":
        """RMSNorm of each row of x [T, rows, d], times SiLU of the gate [T, rows * d], which comes
        before the norm if it is `gate_first`. weight: [d], or [rows, d]. Returns [T, rows * d]."""
        ...


class StateTensor(NamedTuple):
    """One of the tensors that a layer keeps of a sequence. dtype: as the layer wants it, whatever the
    model's."""

    shape: tuple[int, ...]
    dtype: "torch.dtype"

    @property
    def num_bytes(self) -> int:
        """In each slot."""
        size = self.dtype.itemsize
        for length in self.shape:
            size *= length
        return size


StateLayerSpec = tuple[StateTensor, ...]
"""What one layer keeps of a sequence."""


@dataclass(slots=True)
class StepStates:
    """What the layers with a state are given in a step, beside `attend`.

    pools: of each such layer, for each of its tensors, [slots, *shape].
    """

    ops: StateOps
    pools: "Sequence[Sequence[Tensor]]"
    batch: StateBatch
