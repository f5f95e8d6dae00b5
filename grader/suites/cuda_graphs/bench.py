"""Steps of a part on the stand-in device, beside the same steps carried out one by one.

bench = Bench()
bench.begin(5, 9)                    a prompt of 9 tokens in seat 5, of which none is computed
with bench.running():
    made = ...                       of the part, on bench.machine and bench.device
    step = bench.step(0, 3, chunks={5: 4})       the next token of seats 0 and 3, and 4 of seat 5
    hidden, drawn = bench.eager(step)
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from grader.kit import expect, expect_equal, note, start_script
from grader.kit.expect import Mismatch
from grader.suites.cuda_graphs.device import StandIn
from grader.suites.cuda_graphs.machine import BLOCK, MAX_BLOCKS, SEATS, Machine
from solutions import cuda_graphs as reference
from solutions.cuda_graphs.naive import EagerSteps, draw_one_by_one
from yaie.core.contracts.graphs import Size
from yaie.core.step import StepInput

LEFT = 3
"""The block that stands in all tables behind those of a seat: another request's, which has left."""


class Bench:
    """machine: of the part, on `device`. Seats begin with a prompt of one token, drawn or not.

    drawn: the last token of each seat before the step that was carried out last. seats_before: those of
    the step before it.
    """

    def __init__(self, lengths: Sequence[int] = (1,) * SEATS) -> None:
        start_script()
        self.device = StandIn()
        self.machine, self.plain = Machine(self.device), Machine()
        self.lengths = np.array([*lengths, *[1] * (SEATS - len(lengths))], dtype=np.int32)
        self.num_steps = 0
        self._order = np.random.default_rng(17).permutation(SEATS * MAX_BLOCKS).tolist()
        self._blocks = np.full(SEATS, 0)
        self._eager = EagerSteps(self.plain)
        self.drawn, self.seats_before = list[int](), list[int]()
        self._seats: list[int] = []
        for machine in (self.machine, self.plain):
            machine.last_tokens.copy_(torch.arange(SEATS + 1) * 5 % 31 + 1)
            machine.tables.fill_(LEFT)
            machine.num_known[:] = self.lengths
        for seat, length in enumerate(self.lengths.tolist()):
            for column in range(-(-length // BLOCK)):
                block = self._new_block(seat)
                for machine in (self.machine, self.plain):
                    machine.tables[seat, column] = machine.host_tables[seat, column] = block

    def begin(self, seat: int, tokens: int) -> None:
        """A request takes a seat, with a prompt of so many tokens that are still to be computed."""
        note(f"a request with a prompt of {tokens} tokens takes seat {seat}")
        self.lengths[seat] = 0
        for machine in (self.machine, self.plain):
            machine.num_known[seat] = tokens

    def come_back(self, seat: int) -> list[tuple[int, int, int]]:
        """The entries of a request that was swapped out and takes this seat again: its blocks are others
        now, with the same keys, and the seat's table holds another request's."""
        note(f"the request of seat {seat} comes back from the host, in other blocks")
        self.settle()
        found = []
        with self.device.aside():
            for column in range(int(self._blocks[seat])):
                block = int(self._order.pop())
                for machine in (self.machine, self.plain):
                    old = int(machine.tables[seat, column])
                    keys = machine.keys[:-1].view(-1, BLOCK)
                    keys[block] = keys[old]
                    keys[old] = 0
                    machine.tables[seat, column] = LEFT
                    machine.host_tables[seat, column] = block
                found.append((seat, column, block))
        return found

    @contextmanager
    def running(self) -> Iterator[StandIn]:
        with self.device.running():
            yield self.device

    def _new_block(self, seat: int) -> int:
        self._blocks[seat] += 1
        return int(self._order.pop())

    def step(
        self,
        *seats: int,
        chunks: Mapping[int, int] | None = None,
        drafts: Mapping[int, Sequence[int]] | None = None,
        entries: Sequence[tuple[int, int, int]] = (),
    ) -> StepInput:
        """The next token of these seats, and behind them so many of the seats of `chunks`. The last
        token of a prompt is sampled from. Blocks come as they are needed.

        drafts: by seat, the last tokens of its chunk; all are taken to be right. entries: further ones
        of the tables.
        """
        chunks, drafts = chunks or {}, drafts or {}
        chosen = np.array([*seats, *chunks], dtype=np.int32)
        counts = np.array([*[1] * len(seats), *chunks.values()], dtype=np.int32)
        starts = self.lengths[chosen].copy()
        ends = starts + counts
        new = list(entries)
        for seat, end in zip(chosen.tolist(), ends.tolist(), strict=True):
            while self._blocks[seat] * BLOCK < end:
                new.append((seat, int(self._blocks[seat]), self._new_block(seat)))
        self.lengths[chosen] = ends
        self.num_steps += 1
        columns = np.array(new, dtype=np.int32).reshape(-1, 3).T.copy()
        step = StepInput(
            self.num_steps,
            chosen,
            starts,
            counts,
            ends >= self.machine.num_known[chosen],
            table_seats=columns[0],
            table_columns=columns[1],
            table_blocks=columns[2],
        )
        if drafts:
            step.num_drafts = np.array([len(drafts.get(seat, ())) for seat in chosen], np.int32)
            step.drafts = np.array([x for seat in chosen for x in drafts.get(seat, ())], np.int32)
        for machine in (self.machine, self.plain):
            machine.host_tables[columns[0], columns[1]] = columns[2]
        note(f"step {self.num_steps}: {_shares(step)}{_entered(new)}")
        return step

    def eager(self, step: StepInput) -> tuple[Tensor, list[int]]:
        """Hidden states and tokens of a step, carried out one call at a time."""
        self.seats_before, self._seats = self._seats, step.seats.tolist()
        with self.device.aside():
            self.drawn = self.plain.last_tokens.tolist()
            return self._eager.run(step)

    def logits(self, hidden: Tensor) -> Tensor:
        """Of the eager run's states."""
        with self.device.aside():
            return self.plain.logits(hidden)

    def draw(self, step: StepInput, hidden: Tensor) -> list[int]:
        """Draw from the states of a step that the part has carried out, as the worker does."""
        self.settle()
        with self.device.aside():
            return draw_one_by_one(self.machine, step, hidden)

    def upload(self, padded: Any, size: Size, step: StepInput) -> None:
        """Fill the buffer of a padded step, as the reference does."""
        inputs = self.device.pinned(reference.num_uploaded(size), dtype=torch.int32)
        reference.fill(reference.parts_of(inputs.numpy(), size), size, step, self.machine)
        padded.inputs.copy_(inputs, non_blocking=True)

    def padded(self, size: Size, memory: Tensor | None = None) -> Any:
        """The reference's step of a size."""
        return reference.PaddedStep(
            size, self.machine, memory_of(size) if memory is None else memory
        )

    def settle(self) -> None:
        """Let the device do what is queued. No wait of the part's."""
        self.device.idle_queue()

    def expect_state(self, why: str, counted: str = "") -> None:
        """Last tokens, counts and keys of every seat, and tables, are the eager run's. counted: explains
        wrong counts, if `why` does not."""
        self.settle()
        for name, what in (
            ("tables", "the block tables"),
            ("last_tokens", "the last token of each seat"),
            ("counts", "how often each seat has drawn"),
        ):
            with self.device.aside():
                got = getattr(self.machine, name)[:SEATS].tolist()
                expected = getattr(self.plain, name)[:SEATS].tolist()
            reason = counted or why if name == "counts" else why
            steps = "1 step" if self.num_steps == 1 else f"{self.num_steps} steps"
            expect_equal(got, expected, f"{what}, after {steps}", why=reason)
        with self.device.aside():
            got, right = self.machine.keys[:-1], self.plain.keys[:-1]
            wrong = (got != right).nonzero().flatten().tolist()
        expect(not wrong, f"the pool's slots {wrong} hold other keys than in an eager run", why=why)

    def misplaced(self, step: StepInput, got: Any, expected: Tensor) -> str:
        """Whose state stands in the first wrong row, if all rows are states of the step's tokens."""
        self.settle()
        with self.device.aside():
            if not isinstance(got, Tensor) or got.shape != expected.shape:
                return ""
            rows, rights = got.tolist(), expected.tolist()
        if rows == rights or sorted(rows) != sorted(rights):
            return ""
        names = [
            f"seat {seat} at position {start + at}"
            for seat, start, count in zip(
                *(x.tolist() for x in (step.seats, step.starts, step.num_tokens)), strict=True
            )
            for at in range(count)
        ]
        first = next(at for at, row in enumerate(rows) if row != rights[at])
        other = names[rights.index(rows[first])]
        return f"Row {first} is the state of {other}, where that of {names[first]} belongs. "

    def expect_rows(self, got: Any, expected: Any, what: str, why: str) -> None:
        """A tensor of the device, settled, against rows of the eager run."""
        self.settle()
        with self.device.aside():
            if not isinstance(got, torch.Tensor):
                raise Mismatch(f"{what}: not a tensor", "a tensor", f"{got!r:.60}", why)
            right = expected.tolist() if isinstance(expected, torch.Tensor) else list(expected)
            expect_equal(got.shape[0], len(right), f"rows of {what}", why=why)
            expect_equal(got.tolist(), right, what, why=why)


def expect_unchanged(step: StepInput, before: StepInput, changer: str, why: str) -> None:
    """before: a deep copy of the step. changer: what it was given to."""
    for field in fields(StepInput):
        now, then = getattr(step, field.name), getattr(before, field.name)
        if not np.array_equal(now, then):
            problem = f"`{changer}` changed `step.{field.name}`"
            raise Mismatch(problem, f"{_plain(then)}", f"{_plain(now)}", why)


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value


def _shares(step: StepInput) -> str:
    """What a step computes, in words."""
    seats, starts, counts = (x.tolist() for x in (step.seats, step.starts, step.num_tokens))
    n = step.num_decodes
    texts = [f"seats {seats[:n]} at positions {starts[:n]}"] if n else []
    texts += [
        f"positions {start} to {start + count - 1} of seat {seat}"
        for seat, start, count in zip(seats[n:], starts[n:], counts[n:], strict=True)
    ]
    if len(step.drafts):
        texts.append(f"drafts {step.drafts.tolist()}")
    return ", ".join(texts)


def _entered(new: Sequence[tuple[int, int, int]]) -> str:
    return f", new table entries (seat, column, block) {new}" if new else ""


def memory_of(size: Size) -> Tensor:
    """A buffer for the uploads of one size. While a stand-in runs, it is the device's."""
    return torch.zeros(reference.num_uploaded(size), dtype=torch.int32, device="cpu")


def alone(*rows: int) -> list[Size]:
    """Sizes of decodes alone."""
    return [Size(count) for count in rows]


@contextmanager
def lent(part: ModuleType, task: str) -> Iterator[None]:
    """While task 17.4 or 17.5 is graded, what it builds on is the reference's, wherever the part's
    modules name it: each task fails for its own mistakes."""
    ours = {
        "padded_sizes": "17.1",
        "size_for": "17.1",
        "place": "17.2",
        "fill": "17.2",
        "PaddedStep": "17.3",
        "Recording": "17.4",
    }
    modules = [vars(one) for one in _modules(part)]
    changed = []
    for name, owner in ours.items():
        own = getattr(part, name)
        for names in modules if owner != task else ():
            if names.get(name) is own:
                changed.append((names, name, own))
                names[name] = getattr(reference, name)
    try:
        yield
    finally:
        for names, name, own in changed:
            names[name] = own


def _modules(part: ModuleType) -> list[ModuleType]:
    begin = part.__name__ + "."
    return [module for name, module in list(sys.modules.items()) if name.startswith(begin)]
