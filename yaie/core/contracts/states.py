"""Layers that keep a state: one fixed piece of memory a sequence, where attention keeps every token."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    import torch
    from torch import Tensor

    from yaie.core.request import Request


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

    def sigmoid_gate(self, x: "Tensor", gate: "Tensor") -> "Tensor":
        """x [T, heads, d], what heads attended to, times sigmoid of the gate [T, heads, d]. Rounded
        behind either. Returns [T, heads * d]."""
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


# ANCHOR: short_conv
class ShortConv(Protocol):
    """Lab 22. `short_conv(x, weight, bias, tails, starts)`: over n sequences in a flat batch."""

    def __call__(
        self,
        x: "Tensor",
        weight: "Tensor",
        bias: "Tensor | None",
        tails: "Tensor",
        starts: "Tensor",
        silu: bool = False,
    ) -> "tuple[Tensor, Tensor]":
        """A causal convolution of each channel over time, and the tails after it.

            out_t = weight[:, -1] x_t + weight[:, -2] x_(t-1) + ... + weight[:, 0] x_(t-width+1) + bias

        x: [T, channels]. weight: [channels, width], width at least 2. bias: [channels]. tails: [n,
        channels, width - 1], the inputs before a sequence's first token, the newest last; float32, or
        float64 where x is. x, weight and bias may be narrower, and are widened to that. starts: [n + 1]
        int32, where each sequence's tokens start; it may have none, and then its tail stays as it was.
        silu: whether SiLU follows.

        Returns (out [T, channels] of x's dtype, tails of the same shape and dtype as the given, which
        are left as they are). The sum, then the bias, then SiLU, all in the dtype of tails; x's dtype
        comes last. Rows of x from starts[n] on belong to no sequence: there out is 0. Nothing
        is read back from the device, and the number of operations depends on the width alone.
        """
        ...


# ANCHOR_END: short_conv


# ANCHOR: delta
class DeltaStep(Protocol):
    """Lab 22. `delta_step(q, k, v, log_decay, beta, states)`: one token of each of n sequences."""

    def __call__(
        self,
        q: "Tensor",
        k: "Tensor",
        v: "Tensor",
        log_decay: "Tensor",
        beta: "Tensor",
        states: "Tensor",
    ) -> "tuple[Tensor, Tensor]":
        """For each sequence and value head

            S = exp(log_decay) S
            S = S + k (beta (v - S^T k))^T
            out = S^T q

        q, k: [n, heads, d_k]. v: [n, v_heads, d_v]; value head h goes with head h // (v_heads // heads).
        log_decay, beta: [n, v_heads]. states: [n, v_heads, d_k, d_v], S of each, float32 or float64.

        Returns (out [n, v_heads, d_v], states after the token), both of the dtype of states, in which
        all is computed. The given states may be overwritten; nothing else may. The number of operations
        does not depend on n, nor on the heads.
        """
        ...


class DeltaChunk(Protocol):
    """Lab 22. `delta_chunk(q, k, v, log_decay, beta, states)`: C tokens of each of n sequences."""

    def __call__(
        self,
        q: "Tensor",
        k: "Tensor",
        v: "Tensor",
        log_decay: "Tensor",
        beta: "Tensor",
        states: "Tensor",
    ) -> "tuple[Tensor, Tensor]":
        """What C calls of `DeltaStep` give, in products of matrices.

        As for a step, with [n, C, ...] for [n, ...]: out is [n, C, v_heads, d_v], and states are those
        after the last token. Tokens of zeros leave the state as it is: a chunk that a sequence does not
        fill has them at its end. log_decay is 0 at most, and may be so low that nothing is left. The
        number of operations does not depend on n, on C, nor on the heads. Nothing is read back from the
        device; `torch.linalg.solve` does, to see whether there is a solution.
        """
        ...


class Decays(Protocol):
    """Lab 22. `decays(log_decay)`."""

    def __call__(self, log_decay: "Tensor") -> "Tensor":
        """[..., t, s] from log_decay [..., C]: exp(log_decay_(s+1) + ... + log_decay_t), what is left at
        token t of what token s wrote; 1 for t = s, 0 for t < s. Each keeps the digits of its own sum."""
        ...


# ANCHOR_END: delta


# ANCHOR: pool
class StatePool(Protocol):
    """Lab 22. `StatePool(layers, num_slots, device)`: for each layer that keeps a state its tensors
    [num_slots, *shape], zeros at first. A slot is a sequence's, for as long as it runs, or holds a copy.

    layers: [layer][tensor]. No two share a number. What a tensor holds of one slot is contiguous, and
    begins at a multiple of 16 numbers: each tensor's length is rounded up to a multiple, the last one's
    too, and no further.
    """

    @property
    def layers(self) -> "Sequence[Sequence[Tensor]]":
        """See above."""
        ...

    def __init__(
        self, layers: "Sequence[StateLayerSpec]", num_slots: int, device: "torch.device"
    ) -> None: ...

    def copy(self, sources: "Tensor", targets: "Tensor") -> None:
        """Slots [n] to slots [n] int64, of which no two targets are alike: all that a slot holds, of
        every layer. All sources are read before a target is written. How many operations that takes
        depends on the dtypes, and not on how many layers or slots there are. What other slots hold is
        neither copied nor written."""
        ...


class ReadStates(Protocol):
    """Lab 22. `read_states(tensor, slots, is_fresh, dtype)`."""

    def __call__(
        self, tensor: "Tensor", slots: "Tensor", is_fresh: "Tensor", dtype: "torch.dtype"
    ) -> "Tensor":
        """A copy of the slots [n] int64 of a pool's tensor, [n, ...] in float32, or in float64 where
        dtype is that. Zeros where is_fresh [n] says that a sequence begins: what its slot holds is of
        another one, and may be NaN. What other slots hold is neither copied nor converted."""
        ...


class WriteStates(Protocol):
    """Lab 22. `write_states(tensor, slots, states)`."""

    def __call__(self, tensor: "Tensor", slots: "Tensor", states: "Tensor") -> None:
        """states [n, ...] into these slots, in the tensor's dtype; all other slots stay. Rows of padding
        share one slot, which no sequence has: what it holds afterwards does not matter."""
        ...


# ANCHOR_END: pool


# ANCHOR: checkpoints
class Checkpoints(Protocol):
    """Lab 22. `Checkpoints(first, count)`: slots first to first + count - 1, for copies of states. Each
    is free, or holds the state after one block of a table.

    A block in the radix tree ends one prefix alone, so its number names the prefix. A state is
    pending while the block is that of a running request, and filed once it is in the tree. No call takes
    longer the more states are kept.
    """

    def __init__(self, first: int, count: int) -> None: ...

    @property
    def filed(self) -> "Collection[int]":
        """The blocks in the tree after which a state is kept."""
        ...

    @property
    def num_pending(self) -> int:
        """States of requests that run, not in the tree."""
        ...

    def depth(self, blocks: "Sequence[int]") -> int:
        """How many of these leading blocks of a text, all of them in the tree, may be reused: up to the
        last one with a state after it."""
        ...

    def use(self, block: int) -> int:
        """The slot of the state after a block of the tree, now the last to go. Raises KeyError."""
        ...

    def save(self, request: "Request", block: int, depth: int) -> int | None:
        """A slot for the state after a request's block, its `depth`th.

        What was pending after that block is dropped. At most count // 2 states are pending, the new one
        included: returns None where one more would be too many, even if slots are free. If no slot is
        free, the least recently used of the tree's gives way; being filed and `use` are uses.
        """
        ...

    def drop(self, block: int) -> None:
        """The state after a request's block is no longer wanted."""
        ...

    def sweep(self) -> None:
        """Free what belongs to requests that will not file it: they run no more, or were preempted."""
        ...

    def file(self, mine: "Sequence[int]", path: "Sequence[int]") -> None:
        """A request's leading blocks are in the tree now, as those of `path`: the same, or others with
        the same tokens, which were there before.

        What is pending after mine[i] is filed after path[i] if it is of depth i + 1. If there is a
        state after path[i], that one stays, which is no use of it, and the pending one's slot is free
        again. Whether the request still runs is not asked: `sweep` has been called before.
        """
        ...

    def has_pending(self, blocks: "Iterable[int]") -> bool:
        """Whether a state after one of these is to be filed."""
        ...

    def evicted(self, blocks: "Iterable[int]") -> None:
        """These blocks are in the tree no more. The slots of states that were filed after them are free
        again; blocks without a state are passed over."""
        ...


class CutShare(Protocol):
    """Lab 22. `cut_share(start, num_tokens, block_size, wanted, least)`."""

    def __call__(
        self,
        start: int,
        num_tokens: int,
        block_size: int,
        wanted: "Sequence[int]",
        least: int | None,
    ) -> tuple[int, int]:
        """Where a share of a prompt has to end for its state to be kept.

        A state is that after the last token computed: it can be kept at the end of a step alone, and
        serves a prefix of whole blocks alone. The share has the tokens from start to start + num_tokens.
        wanted: depths in blocks, ascending, at which a state is wanted. least: a share that reaches none
        of them, and ends because the step's budget is used up, is cut after its last whole block if that
        is of this depth or deeper. None: the share ends its prompt, and is not cut there.

        Returns (tokens of it that are computed now, depth of the state that is kept after them): the
        first wanted depth that it reaches, or that last block. Otherwise (num_tokens, 0).
        """
        ...


# ANCHOR_END: checkpoints


# ANCHOR: delta_decode
class DeltaDecode(Protocol):
    """Lab 22. What `decode_kernel()` returns: a launch in Triton."""

    def __call__(
        self,
        out: "Tensor",
        q: "Tensor",
        k: "Tensor",
        v: "Tensor",
        log_decay: "Tensor",
        beta: "Tensor",
        pool: "Tensor",
        batch: StateBatch,
        most: int,
    ) -> None:
        """The gated delta rule for the sequences of a batch that have 1 to `most` tokens each.

        Shapes as in `StateOps.gated_delta_rule`. out [T, v_heads, d_v], of v's dtype: the rows of these
        sequences are written, and their slots of the pool; no other row or slot is read or written. A
        fresh sequence's slot is not read. Of q, k and v rows and heads may be anywhere, of log_decay and
        beta rows. A state is read once and written once, however many tokens there are. Arithmetic is
        float32. The lengths are those of `batch.starts`: `batch.lens` are bounds.

        One launch, whose programs have 8 columns of a state or more. Nothing is read back from the
        device; no copies of q, k, v.
        """
        ...


# ANCHOR_END: delta_decode
