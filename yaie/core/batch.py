"""What flows through one step: the plan, the attention batch, the sampling batch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from yaie.core.request import Request

if TYPE_CHECKING:
    from torch import Tensor

    Norm = Callable[[Tensor, Tensor, float], Tensor]
    Rope = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


# ANCHOR: step_plan
@dataclass(slots=True)
class ScheduledRequest:
    """One request's share of a step: compute tokens [start, start + num_tokens).

    start: the request's `num_computed_tokens` when it was scheduled.
    block_table: its physical blocks, covering at least start + num_tokens tokens. Read only. The
        list object grows in place; any other change to a table makes a new list, so a holder may
        copy just the tail while the object is the same.
    samples: whether the last token of the request is among these, so that its logits are needed.
    drafts: guesses for the tokens that follow it, to be verified. They are the last of the `num_tokens`,
        and none of them counts in the request's `num_tokens`.
    ahead: how many drafts the worker's head is to make behind what is drawn here; None: it is not to
        look at this request at all. The table has room for them.
    """

    request: Request
    start: int
    num_tokens: int
    block_table: list[int]
    samples: bool
    drafts: Sequence[int] = ()
    ahead: int | None = None


@dataclass(slots=True)
class StepPlan:
    """What `Scheduler.schedule` decided. Block moves happen before the forward pass, in this order:
    `swap_out` (device, host), `swap_in` (host, device), `copies` (device, device).

    scheduled: single tokens first, then chunks, as attention likes them.
    preempted: requests that lost their place in this step.
    failed: requests that can never run; `error` is set on each and they hold nothing.
    asks: what control asks of the worker in this step besides what requests do, see `yaie.engine.asks`.
    """

    scheduled: list[ScheduledRequest] = field(default_factory=list)
    swap_out: list[tuple[int, int]] = field(default_factory=list)
    swap_in: list[tuple[int, int]] = field(default_factory=list)
    copies: list[tuple[int, int]] = field(default_factory=list)
    preempted: list[Request] = field(default_factory=list)
    failed: list[Request] = field(default_factory=list)
    asks: list[Any] = field(default_factory=list)

    @property
    def num_tokens(self) -> int:
        return sum(item.num_tokens for item in self.scheduled)

    @property
    def is_empty(self) -> bool:
        """Whether a worker has nothing to do for it: nothing to compute and nothing to move."""
        return not (self.scheduled or self.swap_out or self.swap_in or self.copies)


@dataclass(slots=True)
class StepOutcome:
    """What came of a plan.

    token_ids: for each scheduled request that samples, in order, the tokens it sampled: one, more where
        drafts were accepted, none if it failed.
    failed: requests for which the step went wrong, those that do not sample included; `error` and
        `failure` are set on each. Nothing that the step computed for them may be kept.
    """

    token_ids: list[list[int]] = field(default_factory=list)
    failed: list[Request] = field(default_factory=list)


# ANCHOR_END: step_plan


# ANCHOR: attention_batch
@dataclass(slots=True)
class AttentionBatch:
    """A flat batch of n sequences and T query tokens, sequence after sequence.

    Sequence i asks `query_lens[i]` consecutive queries, the last at position `kv_lens[i] - 1`, and
    attends to `kv_lens[i]` keys and values found through row i of `block_tables`.

    query_lens, kv_lens: n Python integers each (host copies, for planning). In a padded step, which the
        next one replays, they are bounds, and rows of no request have `seq_lens` 0 and slot -1.
    query_start_loc: [n + 1] int32, where each sequence's queries start in the flat batch.
    seq_lens: [n] int32, `kv_lens` on the device.
    block_tables: [n, max_blocks] int32; entries past a sequence's blocks name any block of the pool.
    slot_mapping: [T] int64, the slot that each token's K and V are written to.
    positions: [T] int64, each token's position in its sequence.
    num_decodes: given in a padded step with chunks: so many sequences at the front have one query each,
        and all others are chunks, of which the host knows no length.
    """

    query_lens: list[int]
    kv_lens: list[int]
    query_start_loc: "Tensor"
    seq_lens: "Tensor"
    block_tables: "Tensor"
    slot_mapping: "Tensor"
    positions: "Tensor"
    num_decodes: int | None = None


# ANCHOR_END: attention_batch


# ANCHOR: attention_spec
@dataclass(frozen=True, slots=True)
class AttentionSpec:
    """What kind of attention a layer wants.

    scale: multiplies query times key; usually head_dim ** -0.5.
    window: a query sees this many keys, itself included; None sees all before it.
    softcap: scores become softcap * tanh(scores / softcap) before masking (Gemma 2).
    sinks: [num_heads] in any float dtype, a logit per head that joins the softmax but has no value
        (gpt-oss).
    """

    scale: float
    window: int | None = None
    softcap: float | None = None
    sinks: "Tensor | None" = None


# ANCHOR_END: attention_spec


# ANCHOR: rotation
@dataclass(frozen=True, slots=True)
class HeadNorms:
    """An RMSNorm of every head of the queries and of the keys, which some families (Qwen3) have.

    norm: `TransformerOps.rms_norm`. q, k: its weights [d]. eps: as there.
    """

    norm: "Norm"
    q: "Tensor"
    k: "Tensor"
    eps: float

    def apply(self, q: "Tensor", k: "Tensor") -> "tuple[Tensor, Tensor]":
        """q [T, heads, d] and k [T, kv_heads, d], normed."""
        return self.norm(q, self.q, self.eps), self.norm(k, self.k, self.eps)


@dataclass(frozen=True, slots=True)
class Rotation:
    """A rotary embedding that queries and keys are still to be given, and the norms before it, if any.

    An adapter hands it to `attend` instead of rotating, so that a kernel may do it on the way to the
    pool; whatever has no such kernel calls `apply` first. The fields are as in `TransformerOps.rope`.
    """

    rope: "Rope"
    positions: "Tensor"
    cos: "Tensor"
    sin: "Tensor"
    norms: HeadNorms | None = None

    def apply(self, q: "Tensor", k: "Tensor") -> "tuple[Tensor, Tensor]":
        """q [T, heads, d] and k [T, kv_heads, d], normed and rotated."""
        if self.norms is not None:
            q, k = self.norms.apply(q, k)
        return self.rope(q, k, self.positions, self.cos, self.sin)


# ANCHOR_END: rotation


@dataclass(frozen=True, slots=True)
class KVLayerSpec:
    """The shape of one layer's keys and values: heads x head_dim, for K and for V."""

    num_kv_heads: int
    head_dim: int


# ANCHOR: sampling_batch
@dataclass(slots=True)
class SamplingBatch:
    """Sampling parameters of n rows, one tensor each, on the logits' device.

    temperature, top_p, min_p: [n] float32. top_k: [n] int64, 0 is off.
    seeds: [n] int64. steps: [n] int64, the index of the token to sample in its request's output; with
        the seed it names the noise, so the token does not depend on the batch around it.
    all_greedy: every temperature is 0. The flags `any_*` say that some row uses that filter.
    penalties: None when no row uses one.
    """

    temperature: "Tensor"
    top_k: "Tensor"
    top_p: "Tensor"
    min_p: "Tensor"
    seeds: "Tensor"
    steps: "Tensor"
    all_greedy: bool
    any_top_k: bool
    any_top_p: bool
    any_min_p: bool
    penalties: "PenaltyBatch | None" = None


# ANCHOR_END: sampling_batch


# ANCHOR: penalty_batch
@dataclass(slots=True)
class PenaltyBatch:
    """What the penalties of n rows need.

    presence, frequency, repetition: [n] float32; 0, 0 and 1 are off.
    output_counts: [n, vocab] float32, how often each token was generated.
    prompt_mask: [n, vocab] bool, whether the prompt holds the token.
    """

    presence: "Tensor"
    frequency: "Tensor"
    repetition: "Tensor"
    output_counts: "Tensor"
    prompt_mask: "Tensor"


# ANCHOR_END: penalty_batch
