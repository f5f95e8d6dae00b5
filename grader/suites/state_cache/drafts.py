"""A step with drafts as the suite of lab 22 hands it to a part: two layers of states, what a step's
tokens bring into them, and where these states are when some of the tokens count."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from types import ModuleType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from grader.kit import expect, expect_equal, note
from grader.suites.state_cache.rules import F64, NAMES, conv, delta, delta_tokens, drawn
from yaie.core.contracts.rollback import Kept, Verified
from yaie.core.contracts.states import StateBatch

CHANNELS, WIDTH = 3, 3
HEADS, D_K, D_V = 2, 4, 3
Rule = Callable[[Sequence[Tensor], Tensor], tuple[Tensor, Tensor]]
"""Of the tokens and the state of one sequence: what comes out, and the state after them."""
Span = tuple[int, int]
"""Rows of what was kept, from the first to before the last."""
BATCH = (
    "compute gets a StateBatch: lens, one Python integer for each sequence; starts, int32, one more; "
    "slots, int64; is_fresh, bool."
)


def upload(array: NDArray[Any]) -> Tensor:
    """As the engine's, on a CPU."""
    return torch.from_numpy(array).clone()


def _tail(tokens: Sequence[Tensor], state: Tensor) -> tuple[Tensor, Tensor]:
    (x,) = tokens
    weight = torch.tensor([[1.0, 10.0, 100.0]], dtype=F64).expand(x.shape[1], WIDTH)
    out, after = conv(x, weight, None, state[None], [len(x)], False)
    return out, after[0]


def _matrix(tokens: Sequence[Tensor], state: Tensor) -> tuple[Tensor, Tensor]:
    named = {name: one[None] for name, one in zip(NAMES, tokens, strict=True)}
    out, after = delta(named, state[None])
    return out[0], after[0]


@dataclass
class Layer:
    """pool: [slots, ...]. batches: what `compute` was called with."""

    name: str
    rule: Rule
    pool: Tensor
    batches: list[StateBatch] = field(default_factory=list)

    def compute(self, *given: Any) -> Tensor:
        """As a layer of the engine, sequence by sequence."""
        *tokens, batch = given
        self.batches.append(batch)
        starts = _checked(batch, len(tokens[0]))
        out = torch.zeros(len(tokens[0]), 1, dtype=F64)
        for number, span in enumerate(pairwise(starts)):
            slot, fresh = int(batch.slots[number]), bool(batch.is_fresh[number])
            self.pool[slot] = self.moved(tokens, span, self.pool[slot], fresh)
        return out

    def moved(self, tokens: Sequence[Tensor], span: Span, state: Tensor, fresh: bool) -> Tensor:
        """A state after the tokens of a span."""
        begun = torch.zeros_like(state) if fresh else state
        if span[0] == span[1]:
            return begun
        return self.rule([one[slice(*span)] for one in tokens], begun)[1]


def _checked(batch: StateBatch, rows: int) -> list[int]:
    """Where its sequences start and end."""
    for name, dtype in (("starts", torch.int32), ("slots", torch.int64), ("is_fresh", torch.bool)):
        got = getattr(batch, name)
        expect(isinstance(got, Tensor), f"batch.{name} is no tensor: {got!r}", why=BATCH)
        expect_equal(got.dtype, dtype, f"the dtype of batch.{name}", why=BATCH)
    starts: list[int] = batch.starts.tolist()
    count = len(batch.slots)
    told = f"of {count} sequences"
    expect_equal(len(starts), count + 1, f"entries of batch.starts {told}", why=BATCH)
    expect_equal(len(batch.is_fresh), count, f"entries of batch.is_fresh {told}", why=BATCH)
    expect_equal(starts[0], 0, "the first of batch.starts", why=BATCH)
    expect_equal(starts[-1], rows, "the last of batch.starts, and rows of tokens", why=BATCH)
    lens = [end - begin for begin, end in pairwise(starts)]
    expect(min(lens, default=0) >= 0, f"batch.starts goes back: {starts}", why=BATCH)
    expect_equal(list(batch.lens), lens, "batch.lens, and what batch.starts says", why=BATCH)
    return starts


def layers(num_slots: int, seed: int) -> list[Layer]:
    """A layer with tails and one with matrices; both hold something in every slot."""
    return [
        Layer("tails", _tail, drawn(num_slots, CHANNELS, WIDTH - 1, seed=seed)),
        Layer("matrices", _matrix, drawn(num_slots, HEADS, D_K, D_V, seed=seed + 1)),
    ]


def brought(count: int, seed: int, behind: int = 0) -> list[list[Tensor]]:
    """What so many tokens bring into the two layers, and rows of padding that hold NaN."""
    named = delta_tokens(1, count + behind, HEADS, 1, D_K, D_V, seed=seed)
    tokens = [[drawn(count + behind, CHANNELS, seed=seed + 5)], [named[name][0] for name in NAMES]]
    for one in (*tokens[0], *tokens[1]):
        one[count:] = torch.nan
    return tokens


@dataclass
class Case:
    """A step of n sequences: lists of n. See `Verified`."""

    lens: list[int]
    drafts: list[int]
    gained: list[int]
    slots: list[int]
    fresh: list[bool]

    @property
    def begins(self) -> list[int]:
        return [sum(self.lens[:number]) for number in range(len(self.lens))]

    @property
    def counts(self) -> list[int]:
        """How many tokens each is moved on by when the step is settled."""
        rows = zip(self.lens, self.drafts, self.gained, strict=True)
        return [length - d + got - 1 if d and got else 0 for length, d, got in rows]

    def spans(self, counts: Sequence[int]) -> list[Span]:
        """The first rows of each sequence."""
        return [(begin, begin + n) for begin, n in zip(self.begins, counts, strict=True)]

    def verified(self) -> Verified:
        return Verified(
            lens=np.array(self.lens, np.int64),
            num_drafts=np.array(self.drafts, np.int64),
            num_gained=np.array(self.gained, np.int64),
            slots=np.array(self.slots, np.int64),
            is_fresh=np.array(self.fresh, np.bool_),
        )

    def told(self) -> str:
        return f"lens={self.lens}, num_drafts={self.drafts}, num_gained={self.gained}"


def after(
    case: Case, layer: Layer, tokens: Sequence[Tensor], spans: Sequence[Span], fresh: Any = None
) -> Tensor:
    """[n, ...], the states of the case's sequences, each moved on by a span of rows."""
    states = []
    for slot, span, begins in zip(case.slots, spans, fresh or case.fresh, strict=True):
        state = layer.pool[slot]
        moves = span[0] < span[1]
        states.append(layer.moved(tokens, span, state, begins) if moves else state)
    return torch.stack(states)


def settle(
    part: ModuleType, case: Case, own: Sequence[Layer], tokens: Sequence[list[Tensor]]
) -> None:
    """Have the part settle a step."""
    note(f"settle(kept, {case.told()})")
    kept = [Kept(layer.compute, given) for layer, given in zip(own, tokens, strict=True)]
    part.settle(kept, case.verified(), upload)
