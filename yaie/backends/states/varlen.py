"""How one batch of tokens and states is worked through: single tokens all at once, the rest in chunks.

A rule is given twice, as a function of one token (`step`) and of a chunk of tokens (`chunk`) of many
sequences. Both take the tokens' tensors and the states before them, and return what comes out and the
states behind them. A chunk that a sequence does not fill is filled up with zeros, which must leave the
state as it is.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from yaie.core.contracts.states import StateBatch

Compute = Callable[..., tuple[Tensor, Tensor]]
CHUNK = 64


@dataclass(frozen=True, slots=True)
class Rule:
    """step: of [n, ...] tokens and [n, ...] states. chunk: of [n, tokens, ...] and states; see above.
    slots: the part of lab 22, which reads and writes states where they lie."""

    step: Compute
    chunk: Compute
    slots: Any

    def over_sequences(
        self, tokens: Sequence[Tensor], out: Tensor, pool: Tensor, batch: StateBatch
    ) -> Tensor:
        """Fills out [T, ...] and the pool's slots. tokens: tensors of T rows each.

        Where every sequence has one token nothing is read back from the device.
        """
        read, write = self.slots.read_states, self.slots.write_states
        if len(batch.lens) == len(out) and all(length == 1 for length in batch.lens):
            states = read(pool, batch.slots, batch.is_fresh, out.dtype)
            values, states = self.step(*tokens, states)
            write(pool, batch.slots, states)
            return out.copy_(values)
        starts = batch.starts.tolist()
        lengths = [end - first for first, end in pairwise(starts)]
        out[starts[-1] :] = 0
        single = [i for i, length in enumerate(lengths) if length == 1]
        longer = sorted((i for i, n in enumerate(lengths) if n > 1), key=lambda i: -lengths[i])
        if single:
            which = torch.tensor(single, device=out.device)
            rows = batch.starts[which].long()
            states = read(pool, batch.slots[which], batch.is_fresh[which], out.dtype)
            values, states = self.step(*(one[rows] for one in tokens), states)
            write(pool, batch.slots[which], states)
            out[rows] = values.to(out.dtype)
        if longer:
            which = torch.tensor(longer, device=out.device)
            states = read(pool, batch.slots[which], batch.is_fresh[which], out.dtype)
            size = min(CHUNK, lengths[longer[0]])
            for first in range(0, lengths[longer[0]], size):
                # The longest go first: those that have a chunk here are at the front.
                going = [i for i in longer if lengths[i] > first]
                begins = [starts[i] + first for i in going]
                ends = [min(starts[i] + first + size, starts[i + 1]) for i in going]
                rows, is_token = _rows(begins, ends, size, out.device)
                cut = [_filled(one, rows, is_token) for one in tokens]
                values, states[: len(going)] = self.chunk(*cut, states[: len(going)])
                out[rows[is_token]] = values[is_token].to(out.dtype)
            write(pool, batch.slots[which], states)
        return out


def _rows(
    begins: list[int], ends: list[int], size: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """[n, size] indices of tokens, and which of them there are."""
    rows = torch.tensor(begins, device=device)[:, None] + torch.arange(size, device=device)
    is_token = rows < torch.tensor(ends, device=device)[:, None]
    return rows.masked_fill_(~is_token, begins[0]), is_token


def _filled(one: Tensor, rows: Tensor, is_token: Tensor) -> Tensor:
    """[n, size, ...] with zeros behind each sequence's end."""
    return one[rows].masked_fill_(~is_token.view(*rows.shape, *[1] * (one.dim() - 1)), 0.0)
