"""A step as data: what control sends to a worker, and what a worker sends back.

Arrays and numbers only, no `Request` and no tensor on a device: the same step can go to a worker in
this thread, on another thread, in another process, to every rank of a group, or to a file.

A running request has a *seat* for as long as it runs: a number under which the worker keeps what does
not change from step to step (prompt, sampling parameters), what it was sent (the block table) and what
it can move on by itself (last token, number of tokens drawn, penalty counts). A StepInput holds only
what the worker does not have yet.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int32]
Pairs = NDArray[np.int64]


no_ints = cast(Callable[[], Ints], partial(np.empty, 0, np.int32))
"""An array of nothing."""
no_pairs = cast(Callable[[], Pairs], partial(np.empty, (0, 2), np.int64))
"""No moves of blocks: [0, 2]."""

Arrays = dict[str, NDArray[Any]]
Extras = dict[str, Arrays]
"""By technique, what it tells a worker, or a worker tells it: arrays by name. `rows`, where there are
some, says which rows the others are about, with an entry for each along their first dimension. What no
request asks for is not there."""


@dataclass(slots=True)
class NewSeats:
    """Requests that begin to run, or begin anew after a preemption: m of them.

    seats: [m] int32. tokens: the tokens of all of them, flat; `num_tokens` and `num_prompt_tokens` [m]
        say whose they are and how many of each are prompt. What comes after is drawn by the worker.
    temperature, top_p, min_p: [m] float32. top_k: [m] int64. random_seeds: [m] int64. steps: [m] int64,
        output tokens drawn so far.
    extras: what some ask for besides; `rows` are positions in `seats`. They hold until the seat changes
        hands. See `yaie.worker.rules`.
    """

    seats: Ints
    tokens: Ints
    num_tokens: Ints
    num_prompt_tokens: Ints
    temperature: NDArray[np.float32]
    top_k: NDArray[np.int64]
    top_p: NDArray[np.float32]
    min_p: NDArray[np.float32]
    random_seeds: NDArray[np.int64]
    steps: NDArray[np.int64]
    extras: Extras = field(default_factory=dict)


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
    extras: what this step is asked for besides; `rows` are positions in `seats`. See
        `yaie.worker.readouts`, `yaie.worker.blocks` and `yaie.engine.states`.
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
    extras: Extras = field(default_factory=dict)

    @property
    def num_decodes(self) -> int:
        """How many seats compute a single token: they come first, and all others compute chunks."""
        lens = self.num_tokens
        if not len(lens) or lens[-1] == 1:
            return len(lens)
        return int(np.argmax(lens > 1))

    @property
    def positions(self) -> Ints:
        """[T] int32: where in its sequence each token stands."""
        lens = self.num_tokens
        if not len(lens) or lens[-1] == 1:
            return self.starts
        ends = np.cumsum(lens, dtype=np.int32)
        return np.arange(ends[-1], dtype=np.int32) + np.repeat(self.starts - (ends - lens), lens)


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
@dataclass(slots=True, eq=False)
class StepResult:
    """What came out of a step.

    token_ids: for each row that samples, in the order of `StepInput.seats`, the tokens drawn: one, more
        where drafts were accepted, none if its logits were not finite or nothing was allowed.
    corrupted: rows (positions in `seats`) whose hidden states or logits hold NaN or infinity. Nothing
        that they computed may be kept.
    out_of_memory: rows that the device had no memory for; they drew nothing and stored nothing.
    extras: what was asked for besides; `rows` are positions in `seats`.
    fault: what broke the step, if something did; then everything else is empty.
    """

    step: int
    token_ids: list[list[int]] = field(default_factory=list)
    corrupted: list[int] = field(default_factory=list)
    out_of_memory: list[int] = field(default_factory=list)
    extras: Extras = field(default_factory=dict)
    fault: Fault | None = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StepResult):
            return NotImplemented
        plain = attrgetter("step", "token_ids", "corrupted", "out_of_memory", "fault")
        return plain(self) == plain(other) and _same(self.extras, other.extras)


# ANCHOR_END: step_result


def _same(one: Extras, other: Extras) -> bool:
    """Whether both hold the same numbers."""
    return one.keys() == other.keys() and all(
        arrays.keys() == other[name].keys()
        and all(np.array_equal(array, other[name][key]) for key, array in arrays.items())
        for name, arrays in one.items()
    )


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
