"""A step with chunks on memory that stays where it is, as a CUDA graph records it.

Prompts that come while others decode make steps of a few hundred tokens: launched one by one, their
kernels keep the host busy for longer than the device. So do steps that verify drafts, to which a token
and its drafts are a chunk. Such a step has two zones of rows, one for decodes
and behind it one for the tokens of chunks, each padded to one of a few sizes. What it ends in is the
model's hidden states; which of them are needed, and what is drawn, is computed launch by launch.

Larger steps keep the device busy for longer than the host: they are launched as they are.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from yaie.backends.attention import attend_through
from yaie.core.batch import AttentionBatch
from yaie.core.step import Ints, StepInput
from yaie.worker.layout import sent_tokens
from yaie.worker.padded import PaddedMachine

MOST_TOKENS = 2048
"""Of chunks in a step that is padded."""
DECODE_ZONES = (32, 128, 512)
FEW_TOKENS = (8, 16, 32)
"""More sizes of chunks where requests have drafts: what verifies them is a chunk of a few tokens."""
DRAWN = -1
"""In place of a token that only the device knows."""
ALIGNED = 4
"""int32s in 16 bytes. Each part of an upload begins at a multiple, for which kernels are compiled."""


def chunk_zones(most: int, *, drafts: bool = False) -> list[int]:
    """Tokens that chunks are padded to, ascending, up to the lesser of `most` and MOST_TOKENS."""
    last = min(most, MOST_TOKENS)
    zones = [*FEW_TOKENS] if drafts else []
    zones += [*range(64, 512, 64), *range(512, MOST_TOKENS, 128)]
    return [zone for zone in zones if zone < last] + [last]


def decode_zones(most: int, *, drafts: bool = False) -> list[int]:
    """Decodes that are padded to, ascending, the last one `most`. With drafts there may be none."""
    return [0] * drafts + [zone for zone in DECODE_ZONES if zone < most] + [most]


class Zones(NamedTuple):
    """The size of a step: rows of decodes, tokens of chunks, and how many chunks there may be."""

    decodes: int
    tokens: int
    chunks: int

    @property
    def rows(self) -> int:
        return self.decodes + self.tokens


class Uploaded(NamedTuple):
    """What a step brings, as parts of one array of int32.

    token_ids, positions, slots: of each row. seats, kv_lens: of each decode, then of each chunk. starts:
    the row at which each of them begins, and one number more.
    """

    token_ids: Any
    positions: Any
    slots: Any
    seats: Any
    kv_lens: Any
    starts: Any


def parts_of(memory: Any, zones: Zones) -> Uploaded:
    """`memory`, an array or a tensor [num_uploaded or more], as its parts."""
    rows, seqs = zones.rows, zones.decodes + zones.chunks
    sizes = (rows, rows, rows, seqs, seqs, seqs + 1)
    begins = np.cumsum([0] + [-(-size // ALIGNED) * ALIGNED for size in sizes]).tolist()
    return Uploaded(*(memory[at : at + size] for at, size in zip(begins, sizes, strict=False)))


def num_uploaded(zones: Zones) -> int:
    """int32s of a step's upload."""
    return 3 * zones.rows + 3 * (zones.decodes + zones.chunks) + 1 + 6 * ALIGNED


class MixedStep:
    """Steps of a size. inputs: where their uploads go, int32 on the device."""

    def __init__(self, zones: Zones, machine: PaddedMachine, memory: Tensor) -> None:
        """memory: [num_uploaded(zones) or more], which steps of other sizes may share."""
        self.zones = zones
        self.inputs = memory[: num_uploaded(zones)]
        self._parts = parts_of(self.inputs, zones)
        self._machine = machine

    def forward(self) -> Tensor:
        """The model's hidden states [rows, hidden]. The tables have their new blocks already."""
        machine, parts, zones = self._machine, self._parts, self.zones
        seats, positions = parts.seats.long(), parts.positions.long()
        token_ids = parts.token_ids.long()
        drawn = machine.batch.last_tokens.index_select(0, seats)
        # A chunk may begin with one too, if drafts follow. Padding chunks begin where nothing is drawn.
        firsts = parts.starts[:-1].long().clamp(max=zones.rows - 1)
        begun = token_ids.index_select(0, firsts)
        token_ids.index_copy_(0, firsts, torch.where(begun == DRAWN, drawn, begun))
        batch = AttentionBatch(
            query_lens=[1] * zones.decodes + [zones.tokens] + [0] * (zones.chunks - 1),
            kv_lens=[machine.max_model_len] * (zones.decodes + zones.chunks),
            query_start_loc=parts.starts,
            seq_lens=parts.kv_lens,
            block_tables=machine.batch.tables.index_select(0, seats),
            slot_mapping=parts.slots.long(),
            positions=positions,
            num_decodes=zones.decodes,
        )
        attend = attend_through(machine.attention, machine.attention.plan(batch))
        return machine.adapter.forward(token_ids, positions, attend)


class MixedSteps:
    """Carries out the model's part of steps with chunks, padded to one of the sizes there are.

    prepared: makes of a MixedStep what carries out its `forward`, such as a recording.
    """

    def __init__(
        self,
        machine: PaddedMachine,
        decodes: Sequence[int],
        tokens: Sequence[int],
        prepared: Callable[[MixedStep], Callable[[], Tensor]],
    ) -> None:
        """decodes, tokens: sizes of the two zones, ascending."""
        self._machine = machine
        self._decodes, self._tokens = list(decodes), list(tokens)
        self._prepared = prepared
        largest = num_uploaded(self._zones(self._decodes[-1], self._tokens[-1]))
        self._memory = torch.zeros(largest, dtype=torch.int32, device=machine.device)
        self._ready: dict[Zones, Callable[[], Tensor]] = {}

    @property
    def sizes(self) -> list[Zones]:
        """All there are, the largest first."""
        return [
            self._zones(decodes, tokens)
            for tokens in reversed(self._tokens)
            for decodes in reversed(self._decodes)
        ]

    def prepare(self, zones: Zones) -> None:
        """Make ready for steps of a size, which otherwise happens when it is first met."""
        self._made(zones)

    def takes(self, step: StepInput) -> bool:
        """Whether a step is one that this carries out."""
        decodes = _decodes(step)
        tokens = int(step.num_tokens[decodes:].sum())
        return decodes <= self._decodes[-1] and tokens <= self._tokens[-1]

    def forward(self, step: StepInput) -> Tensor:
        """The hidden states [T, hidden] of a step's tokens, which are the caller's."""
        decodes = _decodes(step)
        tokens = int(step.num_tokens[decodes:].sum())
        zones = self._zones(_next(self._decodes, decodes), _next(self._tokens, tokens))
        forward, machine = self._made(zones), self._machine
        pinned = torch.empty(
            num_uploaded(zones), dtype=torch.int32, pin_memory=machine.device.type == "cuda"
        )
        fill(parts_of(pinned.numpy(), zones), zones, step, machine)
        self._memory[: len(pinned)].copy_(pinned, non_blocking=True)
        hidden = forward()
        first = zones.decodes
        return torch.cat((hidden[:decodes], hidden[first : first + tokens]))

    def _zones(self, decodes: int, tokens: int) -> Zones:
        return Zones(decodes, tokens, max(1, min(self._decodes[-1], tokens // 2)))

    def _made(self, zones: Zones) -> Callable[[], Tensor]:
        if zones not in self._ready:
            step = MixedStep(zones, self._machine, self._memory)
            step.inputs.copy_(torch.from_numpy(idle(zones, self._machine.batch.nobody)))
            self._ready[zones] = self._prepared(step)
        return self._ready[zones]


def fill(parts: Uploaded, zones: Zones, step: StepInput, machine: PaddedMachine) -> None:
    """Write a step into arrays that are uploaded, and padding around it: rows that store nothing, and
    sequences without queries and keys."""
    blank(parts, zones, machine.batch.nobody)
    lens, decodes = step.num_tokens, _decodes(step)
    kv_lens, ends = step.starts + lens, np.cumsum(lens, dtype=np.int32)
    rows = np.repeat(np.arange(len(lens)), lens)
    positions = np.arange(ends[-1], dtype=np.int32) - np.repeat(ends - kv_lens, lens)
    token_ids, is_drawn = sent_tokens(step, machine.batch, ends - lens)
    token_ids[(ends - lens)[is_drawn]] = DRAWN
    slots = machine.batch.slots(step.seats[rows], positions, machine.pool.block_size)
    for target, values in (
        (parts.token_ids, token_ids), (parts.positions, positions), (parts.slots, slots)
    ):  # fmt: skip
        target[:decodes] = values[:decodes]
        target[zones.decodes :][: len(values) - decodes] = values[decodes:]
    for target, values in ((parts.seats, step.seats), (parts.kv_lens, kv_lens)):
        target[:decodes] = values[:decodes]
        target[zones.decodes :][: len(values) - decodes] = values[decodes:]
    chunk_ends = zones.decodes + ends[decodes:] - decodes
    parts.starts[zones.decodes + 1 :][: len(chunk_ends)] = chunk_ends
    if len(chunk_ends):
        parts.starts[zones.decodes + 1 + len(chunk_ends) :] = chunk_ends[-1]


def blank(parts: Uploaded, zones: Zones, nobody: int) -> None:
    """A step of padding alone."""
    for part in (parts.token_ids, parts.positions, parts.kv_lens):
        part[:] = 0
    parts.slots[:], parts.seats[:] = -1, nobody
    parts.starts[: zones.decodes] = np.arange(zones.decodes)
    parts.starts[zones.decodes :] = zones.decodes


def idle(zones: Zones, nobody: int) -> Ints:
    """What is uploaded for a step of padding alone."""
    memory = np.zeros(num_uploaded(zones), dtype=np.int32)
    blank(parts_of(memory, zones), zones, nobody)
    return memory


def _decodes(step: StepInput) -> int:
    """How many single tokens there are: they come first."""
    longer = step.num_tokens > 1
    return int(longer.argmax()) if longer.any() else len(longer)


def _next(sizes: Sequence[int], least: int) -> int:
    return sizes[bisect_left(sizes, least)]
