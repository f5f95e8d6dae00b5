"""A chunk of the delta rule as the chapter's system has it, with one thing wrong: what comes of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from grader.suites.state_cache.rules import NAMES

ROW = (
    "Row t of the triangular system takes beta_t, the rate of the token that reads what is there. "
)
BETWEEN = "Between two tokens s and t of the triangular system, what left_ts says is left. "


@dataclass(frozen=True, slots=True)
class Chunk:
    """found: how far S has decayed for a key. rate: whose a row of the system takes. left: of the
    system. read: of what the queries read. diagonal: whether they read their own token's write. solved:
    whether the system is, or corrected once. written: whether writes decay until the chunk's end."""

    found: str = "decayed"
    rate: str = "reader"
    left: str = "between"
    read: str = "between"
    diagonal: bool = True
    start: str = "decayed"
    solved: str = "whole"
    written: str = "between"


WRONG: dict[str, Chunk] = {
    "A key finds S as it was before the chunk. It must find what the decays up to its token, its own "
    "among them, have left of S.": Chunk(found="whole"),
    "A key finds S before its own token's decay: the state decays first, then the key reads.":
        Chunk(found="before"),
    f"{ROW}These are the numbers for beta_s, the rate of the token that wrote.": Chunk(rate="writer"),
    f"{ROW}These are the numbers without it.": Chunk(rate="none"),
    f"{BETWEEN}These are the numbers if nothing decays there.": Chunk(left="all"),
    f"{BETWEEN}These are the numbers without the decay of the token that reads.": Chunk(left="before"),
    "A key finds nothing of what earlier tokens of the chunk have written: u is on both sides, so "
    "this is a triangular system.": Chunk(solved="not"),
    "Each write is corrected by what the others would write uncorrected: these are corrected in their "
    "turn, as the solution of a triangular system is.": Chunk(solved="once"),
    "Keys find, and queries read, S as it was before the chunk: what the decays up to a token, its own "
    "among them, have left of it is there.": Chunk(found="whole", start="whole"),
    "Keys find, and queries read, S before their own token's decay: the state decays first.":
        Chunk(found="before", start="before"),
    "What the chunk has written is in the state as if nothing had decayed since.":
        Chunk(written="all"),
    "A query reads nothing of what its own token has written: left_tt is 1.":
        Chunk(diagonal=False),
    "A query reads what earlier tokens wrote as if nothing had decayed since.": Chunk(read="all"),
    "A query reads S as it was before the chunk. It must read what the decays up to its token have left "
    "of it.": Chunk(start="whole"),
    "A query reads S before its own token's decay: the state decays first.":
        Chunk(start="before"),
}  # fmt: skip


def outputs(tokens: Mapping[str, Tensor], states: Tensor) -> dict[str, Callable[[], Tensor]]:
    """What each mistake makes of out."""
    return {
        words: partial(_part, tokens, states, kind, 0)
        for words, kind in _apart(tokens)
        if kind.written == "between"
    }


def after(tokens: Mapping[str, Tensor], states: Tensor) -> dict[str, Callable[[], Tensor]]:
    """What each makes of the states after the chunk; those of reading make nothing of them."""
    right = Chunk()
    return {
        words: partial(_part, tokens, states, kind, 1)
        for words, kind in _apart(tokens)
        if (kind.found, kind.rate, kind.left, kind.solved, kind.written)
        != (right.found, right.rate, right.left, right.solved, right.written)
    }


def _apart(tokens: Mapping[str, Tensor]) -> list[tuple[str, Chunk]]:
    """Of a chunk of one token, before the chunk is before its own decay: one of the two is enough."""
    is_one = tokens["k"].shape[1] == 1
    return [
        (words, kind)
        for words, kind in WRONG.items()
        if not is_one or "before" not in (kind.found, kind.start)
    ]


def _part(tokens: Mapping[str, Tensor], states: Tensor, kind: Chunk, which: int) -> Tensor:
    return _chunk(tokens, states, kind)[which]


def _chunk(tokens: Mapping[str, Tensor], states: Tensor, kind: Chunk) -> tuple[Tensor, Tensor]:
    q, k, v, log_decay, beta = (tokens[name].double() for name in NAMES)
    group = v.shape[2] // k.shape[2]
    q, k = (one.repeat_interleave(group, 2).transpose(1, 2) for one in (q, k))  # [n, heads, C, d_k]
    v, log_decay, beta = (
        v.transpose(1, 2),
        log_decay.transpose(1, 2),
        beta.transpose(1, 2)[..., None],
    )
    sums, before = log_decay.cumsum(-1), states.double()
    between = (sums[..., :, None] - sums[..., None, :]).tril().exp().tril()
    shrunk = {
        "between": between,
        "all": torch.ones_like(between).tril(),
        "before": ((sums - log_decay)[..., :, None] - sums[..., None, :]).tril(-1).exp().tril(),
    }
    start: dict[str, Any] = {
        "decayed": sums.exp()[..., None],
        "whole": 1.0,
        "before": (sums - log_decay).exp()[..., None],
    }
    rates = {"reader": beta, "writer": beta.mT, "none": torch.ones_like(beta)}
    system = (rates[kind.rate] * (k @ k.mT) * shrunk[kind.left]).tril(-1)
    u = beta * (v - start[kind.found] * (k @ before))
    if kind.solved == "whole":
        u = torch.linalg.solve_triangular(system, u, upper=False, unitriangular=True)
    elif kind.solved == "once":
        u = u - system @ u
    read = (q @ k.mT) * shrunk[kind.read]
    out = start[kind.start] * (q @ before) + (read if kind.diagonal else read.tril(-1)) @ u
    states = sums[..., -1:, None].exp() * before + k.mT @ (
        shrunk[kind.written][..., -1, :, None] * u
    )
    return out.transpose(1, 2), states
