"""A step as data: what control sends to a worker, and what a worker sends back.

Arrays and numbers only, no `Request` and no tensor on a device: the same step can go to a worker in
this thread, on another thread, in another process, to every rank of a group, or to a file.

A running request has a *seat* for as long as it runs: a number under which the worker keeps what does
not change from step to step (prompt, sampling parameters) and what it can move on by itself (block
table, last token, number of tokens drawn, penalty counts). A StepInput holds just what the worker does
not have yet.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import cast

import numpy as np
from numpy.typing import NDArray

from yaie.core.request import TokenLogprob

Ints = NDArray[np.int32]
Pairs = NDArray[np.int64]


no_ints = cast(Callable[[], Ints], partial(np.empty, 0, np.int32))
"""An array of nothing."""
no_pairs = cast(Callable[[], Pairs], partial(np.empty, (0, 2), np.int64))
"""No moves of blocks: [0, 2]."""


# ANCHOR: new_seats
@dataclass(slots=True)
class NewSeats:
    """Requests that begin to run, or begin anew after a preemption: m of them.

    seats: [m] int32. tokens: the tokens of all of them, flat; `num_tokens` and `num_prompt_tokens` [m]
        say whose they are and how many of each are prompt. What comes after is drawn by the worker.
    temperature, top_p, min_p, presence, frequency, repetition: [m] float32. top_k: [m] int64.
    random_seeds: [m] int64. steps: [m] int64, output tokens drawn so far.
    logprobs, prompt_logprobs: [m] int32, how many top tokens are wanted; -1 for no log-probabilities.
    biases: [b, 2] int64, (position in `seats`, token id), with `bias_values` [b] float32.
    constrained: [m] bool, whether each of its draws waits for a mask (`StepMasks`).
    min_tokens: [m] int64; before a seat has drawn so many it draws none of its held tokens.
    held: [h, 2] int64, (position in `seats`, token id).
    logprob_tokens: [t, 2] int64, likewise: tokens whose log-probabilities are wanted, in the place of
        the most likely ones.
    """

    seats: Ints
    tokens: Ints
    num_tokens: Ints
    num_prompt_tokens: Ints
    temperature: NDArray[np.float32]
    top_k: NDArray[np.int64]
    top_p: NDArray[np.float32]
    min_p: NDArray[np.float32]
    presence: NDArray[np.float32]
    frequency: NDArray[np.float32]
    repetition: NDArray[np.float32]
    random_seeds: NDArray[np.int64]
    steps: NDArray[np.int64]
    logprobs: Ints
    prompt_logprobs: Ints
    biases: Pairs
    bias_values: NDArray[np.float32]
    constrained: NDArray[np.bool_]
    min_tokens: NDArray[np.int64]
    held: Pairs
    logprob_tokens: Pairs


# ANCHOR_END: new_seats


@dataclass(slots=True)
class BlockData:
    """Keys and values from another engine, for blocks of this one's pool.

    blocks: [n] int32. data: uint8, layer by layer, of each K and then V, as the n blocks lie in a pool:
        [n * block_size, kv_heads, head_dim] in its dtype.
    """

    blocks: Ints
    data: NDArray[np.uint8]


# ANCHOR: step_input
@dataclass(slots=True)
class StepInput:
    """One step of n seats. Everything in it happens in the order of the fields.

    step: a running number. new: seats that change hands.
    table_seats, table_columns, table_blocks: [k] int32, entries of block tables that are new: block
        `table_blocks[i]` at column `table_columns[i]` of seat `table_seats[i]`.
    swap_out, swap_in, copies: [j, 2] int64, blocks to move before the forward pass, as in `StepPlan`.
    seats, starts, num_tokens: [n] int32, whose tokens [start, start + num_tokens) are computed. Single
        tokens come first.
    samples: [n] bool, whether a token is drawn after the last of them. masked: whether one of those
        seats is constrained; then StepMasks follow.
    drafts: [d] int32, flat, the last tokens of their seats' share; num_drafts: [n] int32.
    prompt_logprobs: [p] int32, rows (positions in `seats`) whose computed tokens are to tell the
        log-probabilities of the prompt tokens that follow them.
    pooled: [q, 2] int64, (row, first): rows whose hidden states are to be summed, from that one of their
        computed tokens on.
    ahead: [n] int32, how many drafts the worker's own head is to make behind each row that samples;
        empty if it has none, or is to rest. The tables have room for them.
    arriving: blocks that another engine has computed, to be stored before the forward pass. leaving: [n]
        int32, blocks whose keys and values are to be told.
    """

    step: int
    seats: Ints
    starts: Ints
    num_tokens: Ints
    samples: NDArray[np.bool_]
    masked: bool = False
    new: NewSeats | None = None
    table_seats: Ints = field(default_factory=no_ints)
    table_columns: Ints = field(default_factory=no_ints)
    table_blocks: Ints = field(default_factory=no_ints)
    swap_out: Pairs = field(default_factory=no_pairs)
    swap_in: Pairs = field(default_factory=no_pairs)
    copies: Pairs = field(default_factory=no_pairs)
    drafts: Ints = field(default_factory=no_ints)
    num_drafts: Ints = field(default_factory=no_ints)
    prompt_logprobs: Ints = field(default_factory=no_ints)
    pooled: Pairs = field(default_factory=no_pairs)
    ahead: Ints = field(default_factory=no_ints)
    arriving: BlockData | None = None
    leaving: Ints = field(default_factory=no_ints)


# ANCHOR_END: step_input


# ANCHOR: step_masks
@dataclass(slots=True)
class StepMasks:
    """Which tokens a step's constrained seats may draw. It follows its StepInput, because a grammar must
    have seen the token before; only sampling waits for it.

    seats: [m] int32, those that are constrained and sample, one with k drafts k + 1 times. bits: [m,
    ceil(vocab / 8)] uint8, the lowest bit first; a set bit allows its token. Row j of a seat is what may
    follow its first j drafts. A seat of which nothing is allowed draws nothing.
    """

    step: int
    seats: Ints
    bits: NDArray[np.uint8]


# ANCHOR_END: step_masks


# ANCHOR: fault
@dataclass(frozen=True, slots=True)
class Fault:
    """An exception in a worker, as data: it may have been raised in another process.

    lab: of the learner's part that failed, or "" if none did. where: file and line in this repository.
    """

    message: str
    lab: str = ""
    where: str = ""


# ANCHOR_END: fault


# ANCHOR: step_result
@dataclass(slots=True)
class StepResult:
    """What came out of a step.

    token_ids: for each row that samples, in the order of `StepInput.seats`, the tokens drawn: one, more
        where drafts were accepted, none if its logits were not finite or nothing was allowed.
    corrupted: rows (positions in `seats`) whose hidden states or logits hold NaN or infinity. Nothing
        that they computed may be kept.
    logprobs: by row, one for each drawn token, where they were asked for.
    prompt_logprobs: by row, of the prompt tokens that follow the computed ones.
    pooled: by row, the sum that was asked for: [hidden] float32.
    out_of_memory: rows that the device had no memory for; they drew nothing and stored nothing.
    blocks: of the leaving blocks, as in `BlockData.data`.
    drafts: by row, those that were made behind what it drew. draft_seconds: what making them took.
    fault: what broke the step, if something did; then everything else is empty.
    """

    step: int
    token_ids: list[list[int]] = field(default_factory=list)
    corrupted: list[int] = field(default_factory=list)
    logprobs: dict[int, list[TokenLogprob]] = field(default_factory=dict)
    prompt_logprobs: dict[int, list[TokenLogprob]] = field(default_factory=dict)
    pooled: dict[int, NDArray[np.float32]] = field(default_factory=dict)
    out_of_memory: list[int] = field(default_factory=list)
    blocks: NDArray[np.uint8] | None = None
    drafts: dict[int, list[int]] = field(default_factory=dict)
    draft_seconds: float = 0.0
    fault: Fault | None = None


# ANCHOR_END: step_result


@dataclass(slots=True)
class DraftStep:
    """What a draft model is to compute: n rows, texts whose state it does not know but by their tables.

    tokens: [T] int32, flat, what each row lacks; starts, num_tokens: [n] int32, where in its text they
        stand, and how many they are, at least one. Single tokens come first.
    num_drafts: [n] int32, how many tokens are wanted behind a row's last one.
    tables: [n, m] int32, block tables with room for all tokens and all drafts but the last.
    """

    tokens: Ints
    starts: Ints
    num_tokens: Ints
    num_drafts: Ints
    tables: NDArray[np.int32]
