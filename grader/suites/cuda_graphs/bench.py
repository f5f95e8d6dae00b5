"""Decode steps of a part on the stand-in device, beside the same steps carried out one by one.

bench = Bench()
with bench.running():
    made = ...                       of the part, on bench.machine and bench.device
    step = bench.step(0, 3)          the next token of seats 0 and 3, as the worker gets it
    logits, drawn = bench.eager(step)
"""

import sys
from collections.abc import Iterator, Sequence
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
from solutions.cuda_graphs.naive import EagerSteps
from yaie.core.step import StepInput

NAMES = ("SEATS", "KV_LENS", "POSITIONS", "SLOTS", "TABLE_SEATS", "TABLE_COLUMNS", "TABLE_BLOCKS")


class Bench:
    """machine: of the part, on `device`. Seats begin with a prompt of one token, drawn or not."""

    def __init__(self, lengths: Sequence[int] = (1,) * SEATS) -> None:
        start_script()
        self.device = StandIn()
        self.machine, self.plain = Machine(self.device), Machine()
        self.lengths = np.array([*lengths, *[1] * (SEATS - len(lengths))], dtype=np.int32)
        self.num_steps = 0
        self._order = np.random.default_rng(17).permutation(SEATS * MAX_BLOCKS).tolist()
        self._blocks = np.full(SEATS, 0)
        self._eager = EagerSteps(self.plain)
        for machine in (self.machine, self.plain):
            machine.last_tokens.copy_(torch.arange(SEATS + 1) * 5 % 31 + 1)
            machine.num_known[:] = self.lengths
        for seat, length in enumerate(self.lengths.tolist()):
            for column in range(-(-length // BLOCK)):
                block = self._new_block(seat)
                for machine in (self.machine, self.plain):
                    machine.tables[seat, column] = machine.host_tables[seat, column] = block

    @contextmanager
    def running(self) -> Iterator[StandIn]:
        with self.device.running():
            yield self.device

    def _new_block(self, seat: int) -> int:
        self._blocks[seat] += 1
        return int(self._order.pop())

    def step(self, *seats: int, entries: Sequence[tuple[int, int, int]] = ()) -> StepInput:
        """The next token of these seats, which the device has drawn. Blocks come as they are needed.

        entries: further ones of the tables.
        """
        chosen = np.array(seats, dtype=np.int32)
        starts = self.lengths[chosen].copy()
        new = list(entries)
        for seat, start in zip(seats, starts.tolist(), strict=True):
            if start // BLOCK == self._blocks[seat]:
                new.append((seat, start // BLOCK, self._new_block(seat)))
        self.lengths[chosen] += 1
        self.num_steps += 1
        columns = np.array(new, dtype=np.int32).reshape(-1, 3).T.copy()
        step = StepInput(
            self.num_steps,
            chosen,
            starts,
            np.ones(len(seats), np.int32),
            np.ones(len(seats), np.bool_),
            table_seats=columns[0],
            table_columns=columns[1],
            table_blocks=columns[2],
        )
        for machine in (self.machine, self.plain):
            machine.host_tables[columns[0], columns[1]] = columns[2]
        entered = f", new table entries (seat, column, block) {new}" if new else ""
        note(f"step {self.num_steps}: seats {list(seats)} at positions {starts.tolist()}{entered}")
        return step

    def eager(self, step: StepInput) -> tuple[Tensor, list[int]]:
        """Logits and tokens of a step, carried out one call at a time."""
        with self.device.aside():
            return self._eager.run(step)

    def upload(self, padded: Any, step: StepInput) -> None:
        """Fill the buffer of a padded step, as the reference does."""
        inputs = self.device.pinned(*padded.inputs.shape, dtype=torch.int32)
        reference.fill(inputs.numpy(), step, self.machine.slots(step), self.machine.nobody)
        padded.inputs.copy_(inputs, non_blocking=True)

    def padded(self, size: int, memory: Tensor | None = None) -> Any:
        """The reference's step of a size."""
        return reference.PaddedStep(
            size, self.machine, memory_of(size) if memory is None else memory
        )

    def settle(self) -> None:
        """Let the device do what is queued. No wait of the part's."""
        self.device.idle_queue()

    def expect_state(self, why: str) -> None:
        """Last tokens, counts and keys of every seat, and tables, are the eager run's."""
        self.settle()
        for name, what in (
            ("tables", "the block tables"),
            ("last_tokens", "the last token of each seat"),
            ("counts", "how often each seat has drawn"),
        ):
            with self.device.aside():
                got = getattr(self.machine, name)[:SEATS].tolist()
                expected = getattr(self.plain, name)[:SEATS].tolist()
            expect_equal(got, expected, f"{what}, after {self.num_steps} steps", why=why)
        with self.device.aside():
            got, right = self.machine.keys[:-1], self.plain.keys[:-1]
            wrong = (got != right).nonzero().flatten().tolist()
        expect(not wrong, f"the pool's slots {wrong} hold other keys than in an eager run", why=why)

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


def memory_of(size: int) -> Tensor:
    """A buffer for the uploads of one size. While a stand-in runs, it is the device's."""
    return torch.zeros(7 * size, dtype=torch.int32, device="cpu")


@contextmanager
def lent(part: ModuleType, task: str) -> Iterator[None]:
    """While task 17.4 or 17.5 is graded, what it builds on is the reference's, wherever the part's
    modules name it: each task fails for its own mistakes."""
    ours = {
        "padded_sizes": "17.1",
        "size_for": "17.1",
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
