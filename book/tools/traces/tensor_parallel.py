"""One layer on 1, 2 and 4 ranks: what each holds, and every message of its all-reduces."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from book.tools.traces import Part, Trace
from yaie.core.contracts.ranks import Transfer

if TYPE_CHECKING:
    from torch import Tensor

    from yaie.core.threaded_ranks import ThreadLink

LAB = "tensor_parallel"

# A layer of Llama 3.1 8B, and one row in bfloat16.
HIDDEN, HEADS, KV_HEADS, HEAD_DIM, INNER, LAYERS = 4096, 32, 8, 128, 14336, 32
BYTES = 2
SIZES = (1, 2, 4)


@dataclass(frozen=True, slots=True)
class Message:
    """chunk: which of the row's chunks it carried. summands: the ranks whose numbers are in its sums."""

    source: int
    target: int
    num_bytes: int
    chunk: int
    summands: list[int]


@dataclass(frozen=True, slots=True)
class ReadLink:
    """A `yaie.core.contracts.ranks.Link` over another, whose messages are read. sent: by source."""

    link: "ThreadLink"
    sent: list[list[Message]]

    @property
    def rank(self) -> int:
        return self.link.rank

    @property
    def size(self) -> int:
        return self.link.size

    def send(self, tensor: "Tensor", to: int) -> Transfer:
        self.sent[self.rank].append(_read(self.rank, to, tensor))
        return self.link.send(tensor, to)

    def receive(self, into: "Tensor", source: int) -> Transfer:
        return self.link.receive(into, source)


def record(part: Part) -> Trace:
    """A track for each number of ranks."""
    lab = part("tensor_parallel")
    return {
        "tracks_label": "Ranks",
        "tracks": {str(size): {"label": str(size), **_track(lab, size)} for size in SIZES},
    }


def _track(lab: Any, size: int) -> dict[str, Any]:
    rounds = _all_reduces(lab, size)
    first, second = rounds[: len(rounds) // 2], rounds[len(rounds) // 2 :]
    holds = [_held(lab, rank, size) for rank in range(size)]
    story = Story(size)
    bytes_held = HIDDEN * BYTES
    story.tell(
        f"Each rank has the row, {HIDDEN:,} numbers or {bytes_held:,} bytes, and "
        + ("all of the layer." if size == 1 else "its share of the layer."),
    )
    story.tell(
        "Queries, keys and values: column parallel. Each rank multiplies the whole row by the rows of "
        "the weight that belong to its heads. Nothing is sent.",
        at="qkv",
    )
    story.tell(
        "Attention: each rank has the keys and values of its own heads, and no others. Nothing is sent.",
        at="kv",
    )
    story.summands("The output product: row parallel. ", at="o")
    for number, messages in enumerate(first):
        story.round(f"Round {number + 1} of {len(first)}", messages)
    story.tell("Residual and norm: on each rank, of the whole row. Nothing is sent.", at="")
    story.tell(
        "Gate and up: column parallel again. Each rank computes its share of the inner numbers and "
        "multiplies them element by element. Nothing is sent.",
        at="ffn",
    )
    story.summands("Down: row parallel. ", at="down")
    story.again([message for messages in second for message in messages])
    return {"holds": holds, "steps": story.steps}


def _held(lab: Any, rank: int, size: int) -> list[list[str]]:
    """Lines [key, text] on what a rank holds of the layer's weights."""
    queries, keys = lab.share_heads(HEADS, KV_HEADS, rank, size)
    inner = lab.share(INNER, rank, size)
    rows = (len(queries) + 2 * len(keys)) * HEAD_DIM
    weights = HIDDEN * (rows + len(queries) * HEAD_DIM + 3 * len(inner))
    return [
        ["qkv", f"q of heads {_span(queries)}"],
        ["qkv", f"k, v of heads {_span(keys)}"],
        ["kv", f"cache: heads {_span(keys)}"],
        ["o", f"o for heads {_span(queries)}"],
        ["ffn", f"gate, up {_span(inner)}"],
        ["down", f"down {_span(inner)}"],
        ["", f"{weights * BYTES / 1e6:.0f} MB of weights"],
    ]


def _span(numbers: range) -> str:
    return f"{numbers[0]}–{numbers[-1]}"


def _all_reduces(lab: Any, size: int) -> list[list[Message]]:
    """The messages of a layer's two row-parallel products, by rounds: the n-th of each rank.

    Rank r's summand of chunk c is 2 ** r * 16 ** c in all its numbers, which bfloat16 adds exactly: a
    message tells by its numbers which chunk it is, and whose summands are in it.
    """
    import torch

    from yaie.core.threaded_ranks import Wire

    sent: list[list[Message]] = [[] for _ in range(size)]

    def product(rank: int) -> "Tensor":
        chunks = [
            torch.full((len(lab.share(HIDDEN, chunk, size)),), 2.0**rank * 16**chunk)
            for chunk in range(size)
        ]
        return torch.cat(chunks).to(torch.bfloat16)[None]

    def work(link: "ThreadLink") -> None:
        split = lab.RowParallel(lambda x: product(link.rank), None, lab.Ring(ReadLink(link, sent)))
        for _ in range(2):
            split(torch.ones(1, 1))

    Wire(size).run(work)
    rounds = max(map(len, sent))
    return [[one[number] for one in sent if number < len(one)] for number in range(rounds)]


def _read(source: int, target: int, tensor: "Tensor") -> Message:
    number = float(tensor.reshape(-1)[0])
    chunk = int(math.log2(number)) // 4
    present = round(number / 16**chunk)
    summands = [rank for rank in range(4) if present >> rank & 1]
    return Message(source, target, tensor.numel() * tensor.element_size(), chunk, summands)


class Story:
    """The steps of a track. cells: of each rank and chunk, the ranks whose summands are there."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.sent = [0] * size
        self.steps: list[dict[str, Any]] = []
        self.cells = self._whole()

    def _whole(self) -> list[list[list[int]]]:
        return [[list(range(self.size))] * self.size for _ in range(self.size)]

    def tell(self, say: str, *, at: str = "", messages: "list[Message] | None" = None) -> None:
        self.steps.append(
            {
                "say": say,
                "at": at,
                "cells": [[list(cell) for cell in row] for row in self.cells],
                "sent": list(self.sent),
                "messages": [[one.source, one.target, one.chunk] for one in messages or []],
            }
        )

    def summands(self, head: str, *, at: str) -> None:
        if self.size == 1:
            self.tell(f"{head}With one rank the result is whole.", at=at)
            return
        self.cells = [[[rank]] * self.size for rank in range(self.size)]
        self.tell(
            f"{head}Each rank multiplies what it has by its columns of the weight, and gets a partial "
            "sum for every number of the row. Now they have to be added up.",
            at=at,
        )

    def round(self, which: str, messages: list[Message]) -> None:
        """All ranks send at once; what arrives is added, or is the whole sum already."""
        partial = any(len(one.summands) < self.size for one in messages)
        for one in messages:
            self.sent[one.source] += one.num_bytes
            held = self.cells[one.target][one.chunk]
            new = sorted({*held, *one.summands})
            self.cells[one.target] = list(self.cells[one.target])
            self.cells[one.target][one.chunk] = new
        most = max(one.num_bytes for one in messages)
        around = all(one.target == (one.source + 1) % self.size for one in messages)
        to = "the next" if around else "another"
        what = "is added to what is there" if partial else "is whole, and replaces what is there"
        self.tell(
            f"{which}: each rank sends {most:,} bytes to {to}, a chunk that {what}.",
            at="o",
            messages=messages,
        )

    def again(self, messages: list[Message]) -> None:
        """The second all-reduce, in one step."""
        self.cells = self._whole()
        if not messages:
            self.tell("The layer is done. One rank has nothing to send.")
            return
        for one in messages:
            self.sent[one.source] += one.num_bytes
        most = max(self.sent)
        self.tell(
            f"The same all-reduce once more, and the layer is done. Each rank has sent {most:,} bytes; "
            f"in {LAYERS} layers that is {most * LAYERS / 1e6:.2f} MB for one token.",
            at="down",
        )
