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

    nobody: the number of that seat. tables: [num_seats + 1, max_blocks] int32, on the device;
    host_tables: the same on the host.
    last_tokens: [num_seats + 1] int64, on the device, the token that each seat drew last.
    num_known, num_prompt: [num_seats] int32 on the host, how many tokens control has sent, and how many
    of these are prompt. lives: [num_seats] int64 on the host, how often each seat has changed hands.
    rules: by name, those that some seat asks for.
    floats, ints: [n, num_seats + 1] on the device, the sampling parameters, and as the last of `ints`
    the number of tokens drawn: in a run of steps of the same seats only that moves.
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
        self.host_tables = np.zeros((count, max_blocks), dtype=np.int32)
        self._tokens: list[NDArray[np.int32]] = [np.empty(0, dtype=np.int32)] * num_seats
        self.floats = torch.zeros(len(_FLOATS), count, device=device)
        self.ints = torch.zeros(len(_INTS) + 1, count, dtype=torch.int64, device=device)
        self._steps = self.ints[-1]
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
        self.floats.index_copy_(1, index, on_device(floats, self._device))
        self.ints.index_copy_(1, index, on_device(ints, self._device))
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
        self.host_tables[step.table_seats, step.table_columns] = step.table_blocks

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
        floats = dict(zip(_FLOATS, self.floats.index_select(1, index), strict=True))
        top_k, seeds, steps = self.ints.index_select(1, index)
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
