"""What usual mistakes make of a case, in float64: the report names the one that fits."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from grader.kit.kernels import paged_gather
from grader.kit.siblings import Sibling, fitting
from yaie.core.batch import AttentionSpec

TILES = (16, 32, 64, 128, 256)
"""Keys that a program may take at once."""
SHARE_WHY = (
    "Each part is divided by its own sum of weights, relative to its own largest score: combined, it "
    "counts with exp2(its lse - the largest lse)."
)
HIDDEN_WHY = (
    "Lanes behind a sequence's last key are counted with a score of 0. Their loads are masked, and give "
    "0: give the scores there -inf."
)

Join = Callable[[Tensor, Tensor], Tensor]
"""(largest score, sum of weights) of each part -> how much it counts."""
JOINS: list[tuple[str, Join]] = [
    ("The logarithm of the sum of weights is natural, and exp2 is taken of it: all of lse is to base 2.",
     lambda top, total: (top + math.log(2) * total.log()).exp()),
    ("exp2 is taken of an lse that is a natural logarithm: all of it is to base 2.",
     lambda top, total: (math.log(2) * (top + total.log())).exp()),
    ("exp is taken of an lse to base 2.", lambda top, total: ((top + total.log()) / math.log(2)).exp()),
    ("All parts count alike.", lambda top, total: torch.ones_like(total)),
    ("Parts count by their largest scores alone, however many keys they have.",
     lambda top, total: top.exp()),
    ("Parts count by their sums of weights alone, whatever their largest scores are.",
     lambda top, total: total),
]  # fmt: skip


def why_of(case: Any, splits: int | None, got: Tensor, right: Tensor) -> str:
    """case: of `bench`. splits: parts, if they were asked for."""
    return fitting(got, right, [*_of_spec(case), *_of_padding(case), *_of_joins(case, splits or 1)])


def _of_spec(case: Any) -> list[Sibling]:
    spec: AttentionSpec = case.spec

    def changed(**fields: Any) -> Callable[[], Tensor]:
        return lambda: torch.as_tensor(replace(case, spec=replace(spec, **fields)).exact())

    found = [
        ("The scale is applied twice: it is applied once.", changed(scale=spec.scale**2)),
        ("The scale of the spec is not applied.", changed(scale=1.0)),
        ("The weights are powers of 2 of the scores: exp2 needs them times log2(e).",
         changed(scale=spec.scale * math.log(2))),
    ]  # fmt: skip
    if spec.window is not None:
        rule = "the first key of a window is length - window, or 0."
        found += [
            (f"The window is one key too long: {rule}", changed(window=spec.window + 1)),
            (f"The window is ignored: {rule}", changed(window=None)),
        ]
        if spec.window > 1:
            found.append(
                (f"The window is one key too short: {rule}", changed(window=spec.window - 1))
            )
    if spec.softcap is not None:
        found += [
            ("The softcap is not applied.", changed(softcap=None)),
            ("The scores are tanh(score / softcap), at most 1: the factor softcap is missing.",
             changed(scale=spec.scale / spec.softcap, softcap=1.0)),
            ("The softcap acts on the products: it acts on the scores, which are scaled before.",
             changed(softcap=spec.softcap * spec.scale)),
        ]  # fmt: skip
    if spec.sinks is not None:
        found += [
            ("The sinks have no share of the weight.", changed(sinks=None)),
            ("The sinks are scaled like products: they are logits already.",
             changed(sinks=spec.sinks * spec.scale)),
        ]  # fmt: skip
        heads, group = case.q.shape[1], case.q.shape[1] // case.kv_heads
        if group > 1:
            of = torch.arange(heads) // group
            words = (
                "Query head h has the sink number h // group here. Every query head has its own."
            )
            found.append((words, changed(sinks=spec.sinks[of])))
    if case.pool.block_tables.shape[1] > 1 and len(case.lens):
        first = case.pool.block_tables[:, :1]
        tables = first + torch.arange(case.pool.block_tables.shape[1], dtype=first.dtype)
        words = (
            "The blocks of a sequence are taken one behind the other from its table's first entry on: "
            "they lie anywhere in the pool, each where its own entry says."
        )
        pool = replace(case.pool, block_tables=tables)
        found.append((words, lambda: torch.as_tensor(replace(case, pool=pool).exact())))
        size = case.pool.key_blocks.shape[1]
        found += [
            ("From the second tile on, each is read from the blocks of the tile before.",
             partial(_a_tile_late, case, tile // size))
            for tile in TILES
            if tile % size == 0 and max(case.lens) > tile
        ]  # fmt: skip
    heads, group = case.q.shape[1], case.q.shape[1] // case.kv_heads
    if group > 1:
        # Head h must read h // group: what it reads of h % kv_heads is what another head should.
        numbers = torch.arange(heads)
        place = numbers % case.kv_heads * group + numbers // case.kv_heads
        back = torch.empty_like(case.q)
        back[:, place] = case.q
        words = (
            "Query head h reads key head h % kv_heads here. The heads of a group are neighbours."
        )
        found.append((words, lambda: torch.as_tensor(replace(case, q=back).exact())[:, place]))
    return found


def _a_tile_late(case: Any, blocks: int) -> Tensor:
    """blocks: of a tile."""
    tables = case.pool.block_tables.clone()
    tables[:, blocks:] = case.pool.block_tables[:, :-blocks]
    return torch.as_tensor(replace(case, pool=replace(case.pool, block_tables=tables)).exact())


def _of_padding(case: Any) -> list[Sibling]:
    """Decodes in which each tile's lanes behind the last key take part with score 0 and value 0."""
    if case.queries is not None or case.spec.softcap or case.spec.sinks is not None:
        return []
    return [(HIDDEN_WHY, partial(_padded, case, tile)) for tile in TILES]


def _padded(case: Any, tile: int) -> Tensor:
    rows = []
    for row, right in enumerate(case.exact()):
        scores = _scores(case, row)
        lanes = -scores.shape[1] % tile
        total = scores.exp().sum(1)
        rows.append(right * (total / (total + lanes))[:, None])
    return torch.stack(rows)


def _of_joins(case: Any, splits: int) -> list[Sibling]:
    if splits < 2 or case.queries is not None or case.spec.softcap or case.spec.sinks is not None:
        return []
    return [
        (f"{words} {SHARE_WHY}", partial(_joined, case, splits, tile, join))
        for words, join in JOINS
        for tile in TILES
    ]


def _joined(case: Any, splits: int, tile: int, join: Join) -> Tensor:
    rows = []
    for row in range(len(case.lens)):
        scores, values = _scores(case, row), _gathered(case, case.pool.value_blocks, row)
        tiles = -(-scores.shape[1] // tile)
        size = -(-tiles // splits) * tile
        parts = zip(scores.split(size, 1), values.split(size, 0), strict=True)
        tops, totals, means = [], [], []
        for part, held in parts:
            weights = (part - part.amax(1, keepdim=True)).exp()
            tops.append(part.amax(1))
            totals.append(weights.sum(1))
            means.append(torch.einsum("hk,khd->hd", weights, held) / weights.sum(1)[:, None])
        top = torch.stack(tops)
        counts = join(top - top.amax(0), torch.stack(totals))
        joined = (torch.stack(means) * counts[..., None]).sum(0) / counts.sum(0)[:, None]
        rows.append(joined)
    return torch.stack(rows)


def _scores(case: Any, row: int) -> Tensor:
    """[heads, keys of the window] of a decode, in powers of e."""
    keys = _gathered(case, case.pool.key_blocks, row)
    return torch.einsum("hd,khd->hk", case.q[row].double(), keys) * case.spec.scale


def _gathered(case: Any, blocks: Tensor, row: int) -> Tensor:
    """[keys of the window, heads, d] of a sequence, each key head as often as its group is large."""
    group = case.q.shape[1] // case.kv_heads
    found = paged_gather(blocks, case.pool.block_tables[row], case.lens[row]).double()
    return found.repeat_interleave(group, 1)[-(case.spec.window or len(found)) :]
