"""The rows to draw for: sampling parameters of seats, and what surrounds the sampler.

    raw logits   copied for the rows that ask for log-probabilities: those are the model's own
    biases       added
    held tokens  those that would end an output before its `min_tokens` get -inf
    masks        what a grammar forbids gets -inf
    the part     draws (lab 1 or 12)

Where nothing of it is asked for, the part is called and nothing else happens.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from yaie.core.batch import PenaltyBatch, SamplingBatch
from yaie.core.step import Ints, NewSeats, StepMasks
from yaie.worker.penalties import TokenCounts
from yaie.worker.transfer import on_device

NEG_INF = float("-inf")
_FLOATS = ("temperature", "top_p", "min_p", "presence", "frequency", "repetition")
_INTS = ("top_k", "random_seeds")


@dataclass(slots=True)
class Rows:
    """Seats [n] that draw, row by row, and what they ask for.

    index: the seats on the device, int64. biased: rows, token ids and biases, [k] each, or None.
    constrained: rows that wait for a mask. told, told_index: rows that ask for log-probabilities, and
    the same on the device; num_top: of how many top tokens each; named: token ids that are told instead,
    or None. count_rows: see `TokenCounts`, or None if no row has penalties.
    held: rows, token ids and the seat's `min_tokens`, [k] each, or None; num_held: for how many more
    steps of these rows that may matter.
    """

    seats: list[int]
    index: Tensor
    batch: SamplingBatch
    biased: tuple[Tensor, Tensor, Tensor] | None
    constrained: list[int]
    told: list[int]
    told_index: Tensor
    num_top: list[int]
    named: list[list[int] | None]
    count_rows: Tensor | None
    held: tuple[Tensor, Tensor, Tensor] | None
    num_held: int

    @property
    def takes_the_best(self) -> bool:
        """Whether every row draws the token with the highest logit as the model gives it, and asks for
        nothing else."""
        return self.batch.all_greedy and self._takes_logits_as_they_are

    @property
    def is_plain(self) -> bool:
        """Whether temperature and seed are all that every row asks for."""
        batch = self.batch
        is_filtered = batch.any_top_k or batch.any_top_p or batch.any_min_p
        return not is_filtered and self._takes_logits_as_they_are

    @property
    def _takes_logits_as_they_are(self) -> bool:
        changed = (self.biased, self.count_rows, self.held)
        return all(one is None for one in changed) and not (self.constrained or self.told)


class SamplingState:
    """Sampling parameters and counters of `num_seats` seats, on the host for decisions and on the device
    for the sampler. In a run of steps of the same seats only the counters move."""

    def __init__(self, num_seats: int, vocab_size: int, device: torch.device) -> None:
        self._device = device
        self._floats = torch.zeros(len(_FLOATS), num_seats, device=device)
        self._ints = torch.zeros(len(_INTS) + 1, num_seats, dtype=torch.int64, device=device)
        self._steps = self._ints[-1]
        self._ones = torch.ones(num_seats, device=device)
        self._zeros = torch.zeros(num_seats, device=device)
        self._one = torch.ones(1, dtype=torch.int64, device=device)
        self._int_zeros = torch.zeros(num_seats, dtype=torch.int64, device=device)
        self._temperatures = np.zeros(num_seats, np.float32)
        self._filters = np.zeros((3, num_seats), np.bool_)  # top-k, top-p, min-p
        self._is_plain = np.ones(num_seats, np.bool_)
        self._has_penalties = np.zeros(num_seats, np.bool_)
        self.constrained = np.zeros(num_seats, np.bool_)
        self._logprobs = np.full(num_seats, -1, np.int32)
        self.prompt_logprobs = np.full(num_seats, -1, np.int32)
        self._biases: dict[int, tuple[NDArray, NDArray]] = {}
        self._named: dict[int, list[int]] = {}
        self._held: dict[int, NDArray] = {}
        self._min_tokens = np.zeros(num_seats, np.int64)
        self._least_drawn = np.zeros(num_seats, np.int64)  # on the host: at least so many
        self._counts = TokenCounts(vocab_size, device)
        self._rows: Rows | None = None

    def enter(self, new: NewSeats) -> None:
        """Take over seats that change hands."""
        self._rows = None
        index = on_device(new.seats.astype(np.int64), self._device)
        floats = np.stack([getattr(new, name) for name in _FLOATS])
        ints = np.stack([*(getattr(new, name) for name in _INTS), new.steps])
        self._floats.index_copy_(1, index, on_device(floats, self._device))
        self._ints.index_copy_(1, index, on_device(ints, self._device))
        self._temperatures[new.seats] = new.temperature
        self._filters[:, new.seats] = new.top_k > 0, new.top_p != 1, new.min_p != 0
        self.constrained[new.seats] = new.constrained
        self._logprobs[new.seats] = new.logprobs
        self.prompt_logprobs[new.seats] = new.prompt_logprobs
        off = (new.presence == 0) & (new.frequency == 0) & (new.repetition == 1)
        self._has_penalties[new.seats] = ~off
        tokens = np.split(new.tokens, np.cumsum(new.num_tokens)[:-1])
        for position, seat in enumerate(new.seats.tolist()):
            for special in (self._biases, self._named, self._held):
                special.pop(seat, None)
            self._counts.drop(seat)
            if not off[position]:
                num_prompt = new.num_prompt_tokens[position]
                own = tokens[position]
                self._counts.add(seat, own[:num_prompt], own[num_prompt:])
        for place in np.unique(new.biases[:, 0]).tolist():
            mine = new.biases[:, 0] == place
            self._biases[int(new.seats[place])] = (new.biases[mine, 1], new.bias_values[mine])
        self._min_tokens[new.seats] = new.min_tokens
        self._least_drawn[new.seats] = new.steps
        for place, held in _by_position(new.held):
            self._held[int(new.seats[place])] = held
        for place, named in _by_position(new.logprob_tokens):
            self._named[int(new.seats[place])] = named.tolist()
        self._is_plain[new.seats] = (
            off & ~new.constrained & (new.logprobs < 0) & ~self._filters[:, new.seats].any(0)
        )
        for special in (self._biases, self._held):
            self._is_plain[[seat for seat in new.seats.tolist() if seat in special]] = False

    def is_plain(self, seats: Ints) -> bool:
        """Whether temperature and seed are all that these seats ask for."""
        return bool(self._is_plain[seats].all())

    def plain_batch(self, index: Tensor) -> SamplingBatch:
        """What the sampler gets for plain seats [n] int64, whoever they are: no flag tells of them."""
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

    def count_draws(self, index: Tensor) -> None:
        """Each of these seats [n] int64 has drawn a token."""
        self._steps.index_add_(0, index, self._one.expand(len(index)))

    def rows(self, seats: Ints) -> Rows:
        """The rows of these seats, in order."""
        order = seats.tolist()
        if self._rows is None or self._rows.seats != order:
            self._rows = self._made(seats, order)
        rows = self._rows
        if rows.held is not None:
            rows.num_held -= 1
            rows.held = rows.held if rows.num_held >= 0 else None
            self._least_drawn[seats] += 1
        rows.batch.steps = self._steps[rows.index]
        if rows.count_rows is not None:
            rows.batch.penalties = self._penalties(rows)
        return rows

    def advance(self, rows: Rows, token_ids: Tensor, chosen: Tensor | None = None) -> None:
        """Each row, or each of the `chosen` [m] int64, has drawn its token of `token_ids` [n] int64."""
        self.count_draws(rows.index if chosen is None else rows.index[chosen])
        if rows.count_rows is not None:
            self.count_tokens(rows, token_ids, chosen)

    def count_gains(self, index: Tensor, counts: Tensor) -> None:
        """Seats [m] int64 have drawn so many tokens each, [m] int64."""
        self._steps.index_add_(0, index, counts)

    def count_tokens(self, rows: Rows, token_ids: Tensor, chosen: Tensor | None) -> None:
        """What of `advance` penalties need, of rows that have some."""
        counted = rows.count_rows
        assert counted is not None
        if chosen is not None:
            counted, token_ids = counted[chosen], token_ids[chosen]
        self._counts.count(counted, token_ids)

    def _made(self, seats: Ints, order: list[int]) -> Rows:
        index = on_device(seats.astype(np.int64), self._device)
        told = np.flatnonzero(self._logprobs[seats] >= 0).tolist()
        has_penalties = bool(self._has_penalties[seats].any())
        all_greedy = bool((self._temperatures[seats] == 0).all())
        batch = self._batch(index, np.any(self._filters[:, seats], axis=1), all_greedy)
        return Rows(
            seats=order,
            index=index,
            batch=batch,
            biased=self._biased(order),
            constrained=np.flatnonzero(self.constrained[seats]).tolist(),
            told=told,
            told_index=on_device(np.array(told, np.int64), self._device),
            num_top=self._logprobs[seats][told].tolist(),
            named=[self._named.get(order[row]) for row in told] if self._named else [],
            count_rows=self._counts.rows(order) if has_penalties else None,
            held=self._held_rows(order) if self._held else None,
            num_held=int((self._min_tokens[seats] - self._least_drawn[seats]).max()),
        )

    def _batch(self, index: Tensor, filters: NDArray[np.bool_], all_greedy: bool) -> SamplingBatch:
        floats = dict(zip(_FLOATS, self._floats[:3].index_select(1, index), strict=False))
        top_k, seeds, steps = self._ints.index_select(1, index)
        any_top_k, any_top_p, any_min_p = filters.tolist()
        return SamplingBatch(
            **floats,
            top_k=top_k,
            seeds=seeds,
            steps=steps,
            all_greedy=all_greedy,
            any_top_k=any_top_k,
            any_top_p=any_top_p,
            any_min_p=any_min_p,
        )

    def _penalties(self, rows: Rows) -> PenaltyBatch:
        assert rows.count_rows is not None
        output, prompt = self._counts.of(rows.count_rows)
        presence, frequency, repetition = self._floats[3:].index_select(1, rows.index)
        return PenaltyBatch(presence, frequency, repetition, output, prompt)

    def _biased(self, order: list[int]) -> tuple[Tensor, Tensor, Tensor] | None:
        found = [
            (row, *self._biases[seat]) for row, seat in enumerate(order) if seat in self._biases
        ]
        if not found:
            return None
        return self._joined(found)

    def _held_rows(self, order: list[int]) -> tuple[Tensor, Tensor, Tensor] | None:
        """Those that may still be below their `min_tokens`; how many they have drawn only the device
        knows."""
        found = []
        for row, seat in enumerate(order):
            least = self._min_tokens[seat]
            if seat in self._held and self._least_drawn[seat] < least:
                tokens = self._held[seat]
                found.append((row, tokens, np.full(len(tokens), least)))
        return self._joined(found) if found else None

    def _joined(self, found: list[tuple[int, NDArray, NDArray]]) -> tuple[Tensor, Tensor, Tensor]:
        """(row, tokens, values) of several rows as three flat tensors on the device."""
        rows = np.concatenate([np.full(len(tokens), row) for row, tokens, _ in found])
        tokens = np.concatenate([tokens for _, tokens, _ in found])
        values = np.concatenate([values for _, _, values in found])
        rows_, tokens_, values_ = (
            on_device(array, self._device) for array in (rows, tokens, values)
        )
        return rows_, tokens_, values_


def _by_position(pairs: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """(position, tokens) of pairs [n, 2] of both."""
    for position in np.unique(pairs[:, 0]).tolist():
        yield position, pairs[pairs[:, 0] == position, 1]


def apply_biases(logits: Tensor, rows: Rows) -> None:
    """Add the biases to `logits` [n, vocab], in place."""
    if rows.biased is not None:
        index, tokens, values = rows.biased
        logits.index_put_((index, tokens), values, accumulate=True)


def hold_tokens(logits: Tensor, rows: Rows) -> None:
    """Give `logits` [n, vocab] -inf, in place, where a token would end an output before `min_tokens`."""
    if rows.held is not None:
        index, tokens, least = rows.held
        too_early = rows.batch.steps[index] < least
        # Added, not filled in: a row with NaN must stay one.
        forbidden = torch.zeros(len(index), device=logits.device).masked_fill_(too_early, NEG_INF)
        logits.index_put_((index, tokens), forbidden, accumulate=True)


def apply_masks(logits: Tensor, rows: Rows, masks: StepMasks) -> None:
    """Give what a grammar forbids -inf, in place. `masks` has the constrained rows' seats, in order."""
    seats = [rows.seats[row] for row in rows.constrained]
    assert masks.seats.tolist() == seats, f"masks for seats {masks.seats.tolist()}, not {seats}"
    if not seats:  # their prompts were shed
        return
    bits = np.unpackbits(masks.bits, axis=1, count=logits.shape[1], bitorder="little")
    allowed = on_device(bits, logits.device).bool()
    # Added, not filled in: a row with NaN must stay one.
    forbidden = torch.zeros(allowed.shape, device=logits.device).masked_fill_(~allowed, NEG_INF)
    logits.index_add_(0, on_device(np.array(rows.constrained), logits.device), forbidden)
