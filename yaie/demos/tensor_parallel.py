"""Lab 20: what the ranks of a group send for one step, counted on a wire between threads."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from yaie.core.contracts.ranks import Link
from yaie.core.threaded_ranks import Wire
from yaie.demos.shown import Shown, row
from yaie.demos.subject import Subject
from yaie.demos.tensors import generator
from yaie.models.config import read_config
from yaie.models.tutor import TUTOR_PATH

RANKS = 4
SEQUENCES = 2


def show(subject: Subject) -> Shown:
    """The sums and the token of a decode step of the tutor on four ranks."""
    config = read_config(TUTOR_PATH)
    layers, vocab, hidden = config.num_hidden_layers, config.vocab_size, config.hidden_size
    part, each_to_all = subject.package, subject.naive().EachToAll
    numbers = generator()
    partial = torch.randn(RANKS, SEQUENCES, hidden, generator=numbers)
    logits = torch.randn(SEQUENCES, vocab, generator=numbers)
    exact = partial.double().sum(0)

    def reduced(group: Any) -> Tensor:
        return torch.as_tensor(group.all_reduce(partial[group.rank].clone()))

    def joined(link: Link) -> Tensor:
        """All ranks get all logits."""
        width = vocab // RANKS
        mine = logits[:, link.rank * width : (link.rank + 1) * width].contiguous()
        return torch.cat(tuple(each_to_all(link).all_gather(mine)), dim=1).argmax(dim=1)

    def best(link: Link) -> Tensor:
        held = part.share(vocab, link.rank, link.size)
        mine = logits[:, held.start : held.stop].contiguous()
        return torch.as_tensor(part.VocabLogits(vocab, part.Ring(link)).arg_max(mine))

    plain, plain_sums = _on_wire(lambda link: reduced(each_to_all(link)))
    ring, sums = _on_wire(lambda link: reduced(part.Ring(link)))
    gathered, _ = _on_wire(joined)
    pairs, tokens = _on_wire(best)
    count = 1 + 2 * layers  # behind the embedding, attention and the feed-forward of each layer
    right = _right(sums, exact)
    agreed = sum(torch.equal(one, logits.argmax(1)) for one in tokens)
    rows = [
        row(
            f"rank {rank}: bytes of {count} sums", *(count * w.sent_by(rank) for w in (plain, ring))
        )
        for rank in range(RANKS)
    ]
    sent = [sum(map(wire.sent_by, range(RANKS))) for wire in (plain, ring, gathered, pairs)]
    totals = [count * sent[0] + sent[2], count * sent[1] + sent[3]]
    return Shown(
        f"A decode step of {SEQUENCES} sequences on {RANKS} ranks: {hidden} numbers a row, {vocab:,} "
        "tokens.",
        ("each to all", "ring, split"),
        (
            *rows,
            row("tensors that rank 0 sends for a sum", *(_tensors(w) for w in (plain, ring))),
            row("all ranks: bytes for the token", sent[2], sent[3]),
            row("ranks with the right sum", _right(plain_sums, exact), right),
            row("ranks with the right token", "", agreed),
        ),
        f"All ranks together send {totals[1]:,} bytes for a step in place of {totals[0]:,}, and "
        f"{agreed} of {RANKS} have the right token.",
    )


def _on_wire(work: Callable[[Link], Tensor]) -> tuple[Wire, list[Tensor]]:
    wire = Wire(RANKS)
    return wire, wire.run(work)


def _tensors(wire: Wire) -> int:
    return sum(one.source == 0 for one in wire.log)


def _right(sums: list[Tensor], exact: Tensor) -> int:
    return sum(torch.allclose(one.double(), exact, atol=1e-5) for one in sums)
