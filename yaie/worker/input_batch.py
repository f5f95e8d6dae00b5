"""`InputBatch`: what a worker keeps of each seat from step to step."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from yaie.core.batch import SamplingBatch
from yaie.core.step import Ints, NewSeats, StepInput
from yaie.worker.rows import Rows
from yaie.worker.rules import LogitsRule, entered
from yaie.worker.transfer import on_device, to_device

_FLOATS = ("temperature", "top_p", "min_p")
_INTS = ("top_k", "random_seeds")


class InputBatch:
    """The state of `num_seats` seats, and of one more that no request takes: rows of padding have it.

    nobody: the number of that seat. tables: [num_seats + 1, max_blocks] int32, on the device.
    last_tokens: [num_seats + 1] int64, on the device, the token that each seat drew last.
    num_known, num_prompt: [num_seats] int32 on the host, how many tokens control has sent, and how many
    of these are prompt. lives: [num_seats] int64 on the host, how often each seat has changed hands.
    rules: by name, those that some seat asks for.

    Sampling parameters and the number of tokens drawn are on the device: in a run of steps of the same
    seats only the counters move.
    """

    def __init__(
        self, num_seats: int, max_blocks: int, vocab_size: int, device: torch.device
    ) -> None:
        count = num_seats + 1
        self.nobody = num_seats
        self.tables = torch.zeros(count, max_blocks, dtype=torch.int32, device=device)
        self.last_tokens = torch.zeros(count, dtype=torch.int64, device=device)
        self.num_known = np.zeros(num_seats, dtype=np.int32)
        self.num_prompt = np.zeros(num_seats, dtype=np.int32)
        self.lives = np.zeros(num_seats, dtype=np.int64)
        self.rules: dict[str, LogitsRule] = {}
        self._vocab_size = vocab_size
        self._device = device
        self._host_tables = np.zeros((count, max_blocks), dtype=np.int32)
        self._tokens: list[NDArray[np.int32]] = [np.empty(0, dtype=np.int32)] * num_seats
        self._floats = torch.zeros(len(_FLOATS), count, device=device)
        self._ints = torch.zeros(len(_INTS) + 1, count, dtype=torch.int64, device=device)
        self._steps = self._ints[-1]
        self._ones = torch.ones(count, device=device)
        self._zeros = torch.zeros(count, device=device)
        self._int_zeros = torch.zeros(count, dtype=torch.int64, device=device)
        self._one = torch.ones(1, dtype=torch.int64, device=device)
        self._temperatures = np.zeros(count, np.float32)
        self._filters = np.zeros((3, count), np.bool_)  # top-k, top-p, min-p
        self._is_plain = np.ones(count, np.bool_)
        self._rows: Rows | None = None

    def enter(self, new: NewSeats) -> None:
        """Take over seats that change hands."""
        seats = new.seats
        self.num_known[seats] = new.num_tokens
        self.num_prompt[seats] = new.num_prompt_tokens
        self.lives[seats] += 1
        ends = np.cumsum(new.num_tokens)[:-1]
        for seat, tokens in zip(seats.tolist(), np.split(new.tokens, ends), strict=True):
            self._tokens[seat] = tokens
        self._rows = None
        index = on_device(seats.astype(np.int64), self._device)
        floats = np.stack([getattr(new, name) for name in _FLOATS])
        ints = np.stack([*(getattr(new, name) for name in _INTS), new.steps])
        self._floats.index_copy_(1, index, on_device(floats, self._device))
        self._ints.index_copy_(1, index, on_device(ints, self._device))
        self._temperatures[seats] = new.temperature
        self._filters[:, seats] = new.top_k > 0, new.top_p != 1, new.min_p != 0
        self._is_plain[seats] = ~self._filters[:, seats].any(0)
        if self.rules or new.extras:
            count = self.nobody + 1
            self.rules = entered(self.rules, new, count, self._vocab_size, self._device)
            for rule in self.rules.values():
                self._is_plain[seats] &= ~rule.asks[seats]

    def note_blocks(self, step: StepInput) -> None:
        """Enter the new blocks of a step into the tables on the host."""
        self._host_tables[step.table_seats, step.table_columns] = step.table_blocks

    def slots(self, seats: Ints, positions: Ints, block_size: int) -> Ints:
        """[n] int32: where in the pool the tokens at these positions [n] of these seats [n] lie, as
        `KVPool.slot_mapping` counts."""
        columns, offsets = np.divmod(positions, block_size)
        slots: Ints = self._host_tables[seats, columns] * block_size + offsets
        return slots

    def extend_tables(self, step: StepInput) -> None:
        """Enter the new blocks of a step into the tables on the device."""
        if len(step.table_seats):
            places = (step.table_seats, step.table_columns)
            (blocks,), index = to_device((step.table_blocks,), places, self._device)
            self.tables.index_put_(tuple(index), blocks)

    def known_tokens(self, seat: int, start: int, end: int) -> NDArray[np.int32]:
        """Tokens [start, end) of a seat, as far as control has sent them."""
        return self._tokens[seat][start:end]

    def is_plain(self, seats: Ints) -> bool:
        """Whether temperature and seed are all that these seats ask for."""
        return bool(self._is_plain[seats].all())

    def plain_batch(self, index: Tensor) -> SamplingBatch:
        """What the sampler gets for plain seats [n] int64. Its flags are always the same: graphs replay
        it."""
        n = len(index)
        _, seeds, steps = self._ints.index_select(1, index)
        return SamplingBatch(
            temperature=self._floats[0].index_select(0, index),
            top_k=self._int_zeros[:n],
            top_p=self._ones[:n],
            min_p=self._zeros[:n],
            seeds=seeds,
            steps=steps,
            all_greedy=False,
            any_top_k=False,
            any_top_p=False,
            any_min_p=False,
        )

    def rows(self, seats: Ints) -> Rows:
        """The rows of these seats, in order."""
        order = seats.tolist()
        if self._rows is None or self._rows.seats != order:
            self._rows = self._made(seats, order)
        rows = self._rows
        rows.batch.steps = self._steps[rows.index]
        return rows

    def advance(self, rows: Rows, token_ids: Tensor, chosen: Tensor | None = None) -> None:
        """Each row, or each of the `chosen` [m] int64, has drawn its token of `token_ids` [n] int64."""
        index, tokens = rows.index, token_ids
        if chosen is not None:
            index, tokens = index[chosen], tokens[chosen]
        self.last_tokens.index_copy_(0, index, tokens.clamp(min=0))
        self.count_draws(index)
        for rule in rows.rules:
            rule.drew(rows, token_ids, chosen)

    def count_draws(self, index: Tensor) -> None:
        """Each of these seats [n] int64 has drawn a token."""
        self._steps.index_add_(0, index, self._one.expand(len(index)))

    def settle(self, seats: Tensor, tokens: Tensor, counts: Tensor) -> None:
        """These seats [m] have drawn so many tokens each, `tokens` [m] last; all int64."""
        self.last_tokens.index_copy_(0, seats, tokens)
        self._steps.index_add_(0, seats, counts)

    def _made(self, seats: Ints, order: list[int]) -> Rows:
        index = on_device(seats.astype(np.int64), self._device)
        rules = [rule for rule in self.rules.values() if rule.asks[seats].any()]
        return Rows(order, index, self._batch(index, seats), rules)

    def _batch(self, index: Tensor, seats: Ints) -> SamplingBatch:
        floats = dict(zip(_FLOATS, self._floats.index_select(1, index), strict=True))
        top_k, seeds, steps = self._ints.index_select(1, index)
        any_top_k, any_top_p, any_min_p = np.any(self._filters[:, seats], axis=1).tolist()
        return SamplingBatch(
            **floats,
            top_k=top_k,
            seeds=seeds,
            steps=steps,
            all_greedy=bool((self._temperatures[seats] == 0).all()),
            any_top_k=any_top_k,
            any_top_p=any_top_p,
            any_min_p=any_min_p,
        )
