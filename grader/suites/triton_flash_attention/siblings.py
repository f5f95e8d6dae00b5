"""What usual mistakes make of a problem, in float64: the report names the one that fits."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

import torch
from torch import Tensor

from grader.kit.kernels import seen as visible
from grader.kit.siblings import Sibling, fitting
from grader.suites.triton_flash_attention.problems import BF16, F32, Problem
from grader.suites.triton_flash_attention.products import Products

LAST_ONES = "It stands at tk - tq + j: the queries are the last ones."
RESCALED = "When a tile raises the peak, total and acc must be rescaled"
PEAK = "by exp(old peak - new peak) before it is added:"
TAIL = (
    "The lanes that pad the last tile of keys are weighed with a score of 0. The tail must be masked: "
    "its scores become -inf before the softmax, not only its loads 0."
)
NO_PEAK = (
    "lse is the logarithm of total alone. The peak, which was subtracted from every score, is not added "
    "back: lse = peak + log(total), of scaled scores."
)
NO_WHOLE = "The tiles that are seen whole are left out: those from full_begin up to full_end."
HALF = "Only what enters the next product is rounded, and out, at the end."

Round = Callable[[Tensor], Tensor]


def as_it_is(values: Tensor) -> Tensor:
    return values


@dataclass(frozen=True, slots=True)
class Way:
    """How attention is computed. block: keys of a tile. factor: of each score. acc, total: they are
    rescaled. tail: lanes past the keys are masked. keys: how many are walked over. in_turn: head h reads
    key head h % kv_heads.
    query, score, weight: how scaled queries, scores, and the weights that total sums are rounded."""

    block: int
    factor: float = 1.0
    acc: bool = True
    total: bool = True
    tail: bool = True
    keys: int | None = None
    divides: bool = True
    query: Round = as_it_is
    score: Round = as_it_is
    weight: Round = as_it_is
    seen: Tensor | None = None
    in_turn: bool = False


def rounded(dtype: torch.dtype) -> Round:
    """Rounding as in Triton's interpreter, which cuts bfloat16 off."""
    if dtype == BF16:
        return lambda x: (x.float().view(torch.int32) & -65536).view(torch.float32).double()
    return lambda x: x.to(dtype).double()


def _keys_of(given: Problem, x: Tensor, in_turn: bool) -> Tensor:
    """Keys or values [n, heads, tk, d], one for each query head. in_turn: head h has h % kv_heads."""
    heads, kv_heads = given.q.shape[2], x.shape[2]
    numbers = torch.arange(heads)
    of = numbers % kv_heads if in_turn else numbers // (heads // kv_heads)
    return x.double()[:, :, of].transpose(1, 2)


def answer(given: Problem, way: Way) -> tuple[Tensor, Tensor]:
    """(out, lse) of a walk from tile to tile."""
    tk = given.k.shape[1] if way.keys is None else way.keys
    queries = way.query(given.q.double().transpose(1, 2) * given.scale * math.log2(math.e))
    keys, values = (_keys_of(given, x, way.in_turn)[:, :, :tk] for x in (given.k, given.v))
    scores = way.score(queries @ keys.transpose(2, 3) * math.log(2) * way.factor)
    scores = scores.masked_fill(
        ~(given.seen() if way.seen is None else way.seen)[:, :tk], -math.inf
    )
    if not way.tail:
        padding = -tk % way.block
        scores = torch.cat((scores, torch.zeros(*scores.shape[:3], padding).double()), 3)
        values = torch.cat(
            (values, torch.zeros(*values.shape[:2], padding, values.shape[3]).double()), 2
        )
    peak = torch.full(scores.shape[:3], -math.inf).double()
    total, acc = torch.zeros_like(peak), torch.zeros(*scores.shape[:3], values.shape[3]).double()
    for start in range(0, scores.shape[3], way.block):
        tile = scores[..., start : start + way.block]
        new = torch.maximum(peak, tile.amax(3))
        origin = new.masked_fill(new.isneginf(), 0.0)
        weights, decay = (tile - origin[..., None]).exp(), (peak - origin).exp()
        total = (total * decay if way.total else total) + way.weight(weights).sum(3)
        acc = acc * decay[..., None] if way.acc else acc
        acc = acc + weights @ values[:, :, start : start + way.block]
        peak = new
    divisor = total.masked_fill(total == 0, 1.0) if way.divides else torch.ones_like(total)
    return (acc / divisor[..., None]).transpose(1, 2), peak + total.log()


def forward_siblings(given: Problem, tile: tuple[int, ...], at: int) -> list[Sibling]:
    """at: 0 for out, 1 for lse. tile: (queries, keys)."""
    block = tile[1]
    way = Way(block)
    ways: list[tuple[str, Way]] = [
        (f"{RESCALED} {PEAK} total is, acc is not.", replace(way, acc=False)),
        (f"{RESCALED} {PEAK} acc is, total is not.", replace(way, total=False)),
        (f"{RESCALED} {PEAK} neither is.", replace(way, acc=False, total=False)),
        ("The scale is applied twice.", replace(way, factor=given.scale)),
        ("The scale is not applied.", replace(way, factor=1 / given.scale)),
        ("The weights are powers of 2 of the scores. With exp2, the scale takes a factor log2(e).",
         replace(way, factor=math.log(2))),
        ("The factor log2(e) is there, and the weights are powers of e: it belongs to exp2.",
         replace(way, factor=math.log2(math.e))),
        ("The sum of weighted values is not divided by the sum of weights.",
         replace(way, divides=False)),
        (TAIL,
         replace(way, tail=False)),
        ("The keys after the last whole tile are left out.",
         replace(way, keys=given.k.shape[1] // block * block)),
        *((words, replace(way, seen=seen)) for words, seen in wrong_masks(given, tile)),
    ]  # fmt: skip
    if given.q.shape[2] > given.k.shape[2]:
        words = "Query head h reads key head h % kv_heads here, and must read h // group."
        ways.append((words, replace(way, in_turn=True)))
    if given.dtype != F32:
        cut = rounded(given.dtype)
        ways += [
            (f"total is the sum of weights that were rounded to {given.dtype} before. {HALF}",
             replace(way, weight=cut)),
            (f"Scores are rounded to {given.dtype}: scores stay in float32. {HALF}",
             replace(way, score=cut)),
            (f"Queries that were multiplied by the scale are rounded again, to {given.dtype}. {HALF}",
             replace(way, query=cut)),
        ]  # fmt: skip
    found: list[Sibling] = [(words, partial(_answered, given, one, at)) for words, one in ways]
    return [*found, *_of_lse(given, block)] if at else found


def _answered(given: Problem, way: Way, at: int) -> Tensor:
    return answer(given, way)[at]


def _of_lse(given: Problem, block: int) -> list[Sibling]:
    lse = answer(given, Way(block))[1]
    scores = given.q.double().transpose(1, 2) @ _keys_of(given, given.k, False).transpose(2, 3)
    peak = (scores * given.scale).masked_fill(~given.seen(), -math.inf).amax(3)
    total = lse - peak
    turn = math.log(2)
    return [
        (NO_PEAK, lambda: total),
        ("lse is the peak alone. log(total) is not added.", lambda: peak),
        ("The peak is in powers of 2 and log(total) is a natural logarithm: both must be natural.",
         lambda: peak / turn + total),
        ("log(total) is to base 2 and the peak is a natural one: both must be natural.",
         lambda: peak + total / turn),
    ]  # fmt: skip


def wrong_masks(given: Problem, tile: tuple[int, ...]) -> list[tuple[str, Tensor]]:
    """(words, what is seen [tq, tk]) of masks that are not this problem's: everywhere, or only in tiles
    that are seen in part, where a walk asks for each pair."""
    found = _wrong_masks(given)
    left_out = [(NO_WHOLE, _without_whole(given.seen(), size)) for size in {tile, tile[::-1]}]
    ways = product({tile, tile[::-1]}, (False, True), (False, True))
    return [*found, *left_out] + [
        (words, _in_part(given.seen(), seen, size, cuts))
        for size, *cuts in ways
        for words, seen in found
    ]


def _without_whole(right: Tensor, tile: tuple[int, ...]) -> Tensor:
    """`right` without the tiles that are seen whole."""
    rest = right.clone()
    for row in range(0, len(right) - tile[0] + 1, tile[0]):
        for column in range(0, right.shape[1] - tile[1] + 1, tile[1]):
            place = slice(row, row + tile[0]), slice(column, column + tile[1])
            if bool(right[place].all()):
                rest[place] = False
    return rest


def _in_part(right: Tensor, wrong: Tensor, tile: tuple[int, ...], cuts: Sequence[bool]) -> Tensor:
    """`right`, but `wrong` in the tiles that are seen neither whole nor not at all. cuts: whether a tile
    that the last query, or the last key, cuts off is one of these."""
    mixed = right.clone()
    for row in range(0, len(right), tile[0]):
        for column in range(0, right.shape[1], tile[1]):
            place = slice(row, row + tile[0]), slice(column, column + tile[1])
            is_cut = cuts[0] and row + tile[0] > len(right)
            is_cut = is_cut or (cuts[1] and column + tile[1] > right.shape[1])
            if bool(right[place].any()) and (is_cut or not bool(right[place].all())):
                mixed[place] = wrong[place]
    return mixed


def _wrong_masks(given: Problem) -> list[tuple[str, Tensor]]:
    tq, tk = given.q.shape[1], given.k.shape[1]
    mask = partial(
        visible, tq, tk, causal=given.causal, window=given.window,
        block_mask=given.block_mask, mask_block=given.mask_block,
    )  # fmt: skip
    found: list[tuple[str, Tensor]] = []
    if given.causal:
        place, key = torch.arange(tq)[:, None], torch.arange(tk)[None]
        window = given.window or 2**30
        found += [
            (f"Query j stands at position j here. {LAST_ONES} It sees key i if i <= tk - tq + j.",
             (key <= place) & (key > place - window)),
            ("No key is hidden from any query: query j sees key i if i <= tk - tq + j.",
             torch.ones(tq, tk, dtype=torch.bool)),
            ("The key at a query's own position is hidden from it: i <= tk - tq + j, not <.",
             mask() & (key < place + tk - tq)),
        ]  # fmt: skip
        if given.window is not None:
            found += [
                ("The window is ignored: it ends at i > tk - tq + j - window.", mask(window=None)),
                ("The window is one key too long: i > tk - tq + j - window, not >=.",
                 mask(window=given.window + 1)),
            ]  # fmt: skip
    if given.block_mask is not None:
        rule = "block_mask[query // mask_block, key // mask_block] says which blocks are kept"
        found.append((f"Every block is kept: {rule}.", mask(block_mask=None)))
        if given.block_mask.shape[0] == given.block_mask.shape[1]:
            turned = mask(block_mask=given.block_mask.T)
            found.append((f"Rows and columns of the mask are exchanged: {rule}.", turned))
    return found


def gradients(
    given: Problem,
    grad_out: Tensor,
    seen: Tensor,
    delta: bool = True,
    heads: Tensor | None = None,
    lse_of: Tensor | None = None,
    delta_of: Tensor | None = None,
) -> list[Tensor]:
    """[dq, dk, dv] with the right out and lse, of the keys in `seen`. heads: what the query heads of a
    group count for in dk and dv; 1 each if it is None. lse_of, delta_of: which rows [n, heads] of lse
    and of delta [n * heads, tq] are taken for those of each head."""
    out, lse = given.exact()
    q, grad = (x.double().transpose(1, 2) for x in (given.q, grad_out))
    k, v = (_keys_of(given, x, False) for x in (given.k, given.v))
    # A query that sees nothing has no probabilities, whatever a mask lets through.
    lse = lse.masked_fill(lse.isneginf(), math.inf)[..., None]
    lse = lse if lse_of is None else lse.flatten(0, 1)[lse_of]
    probs = (q @ k.transpose(2, 3) * given.scale - lse).exp().masked_fill(~seen, 0.0)
    rows = (grad * out.double().transpose(1, 2)).sum(3, keepdim=True)
    rows = rows if delta_of is None else rows.flatten(0, 1)[delta_of]
    ds = probs * (grad @ v.transpose(2, 3) - (rows if delta else 0.0))
    kv_heads = given.k.shape[2]
    share = 1.0 if heads is None else heads[:, None, None]
    dk, dv = (
        (x.unflatten(1, (kv_heads, -1)) * share).sum(2).transpose(1, 2)
        for x in (ds.transpose(2, 3) @ q * given.scale, probs.transpose(2, 3) @ grad)
    )
    return [(ds @ k * given.scale).transpose(1, 2), dk, dv]


def why_of_forward(given: Problem, got: Tensor, right: Tensor, done: Products, at: int) -> str:
    """done: the products of the call, which tell the size of a tile."""
    return fitting(got, right, forward_siblings(given, done.dots[0], at)) if done.dots else ""


def _gradient(given: Problem, grad_out: Tensor, seen: Tensor, at: int) -> Tensor:
    return gradients(given, grad_out, seen)[at]


ONE = (
    (
        0,
        "It is what the first query head of each group gives alone: the sum over the others is missing.",
    ),
    (
        -1,
        "It is what the last query head of each group gives alone: the sum over the others is missing.",
    ),
)


def _of_one(given: Problem, grad_out: Tensor, at: int, head: int) -> Tensor:
    """Gradients of keys or values as one query head of each group gives them."""
    group = given.q.shape[2] // given.k.shape[2]
    alone = torch.zeros(group)
    alone[head] = 1.0
    return gradients(given, grad_out, given.seen(), heads=alone)[at]


def _of_rows(given: Problem, grad_out: Tensor, at: int) -> list[Sibling]:
    """Where lse or delta or both are read from the rows of another head or sequence."""
    n, _, heads, _ = given.q.shape
    kv_heads = given.k.shape[2]
    batch, head = torch.arange(n)[:, None], torch.arange(heads)[None]
    key_head = head // (heads // kv_heads)
    right = batch * heads + head
    found: list[Sibling] = []
    for row, told in (
        (head + 0 * batch, "head"),
        (batch * kv_heads + head, "batch * kv_heads + head"),
        (batch * heads + key_head, "batch * heads + key_head"),
        (batch * kv_heads + key_head, "batch * kv_heads + key_head"),
        (head * n + batch, "head * n + batch"),
        (batch * heads + head % (heads // kv_heads), "batch * heads + head % group"),
    ):
        if bool((row == right).all()) or int(row.max()) >= n * heads:
            continue
        wrong, head_of = (row != right).nonzero()[0].tolist()
        for names, lse_of, delta_of in (
            ("lse and delta", row, row),
            ("lse", row, None),
            ("delta", None, row),
        ):
            read, its = int(row[wrong, head_of]), int(right[wrong, head_of])
            words = (
                f"Of {names} [n, heads, tq] the row {told} is read: head {head_of} of sequence {wrong} "
                f"gets row {read}, and its own is row {its}, batch * heads + head."
            )
            found.append((words, partial(_of_row, given, grad_out, at, lse_of, delta_of)))
    return found


def _of_row(
    given: Problem, grad_out: Tensor, at: int, lse_of: Tensor | None, delta_of: Tensor | None
) -> Tensor:
    return gradients(given, grad_out, given.seen(), lse_of=lse_of, delta_of=delta_of)[at]


def why_of_gradient(
    given: Problem, grad_out: Tensor, name: str, got: Tensor, right: Tensor, done: Products
) -> str:
    if not done.dots:
        return ""
    at = ("dq", "dk", "dv").index(name)
    siblings: list[Sibling] = [
        (words, partial(_gradient, given, grad_out, seen, at))
        for words, seen in wrong_masks(given, done.dots[0])
    ]
    words = "delta, the row's sum of dO * O, is not subtracted from dP: dS = P * (dP - delta)."
    if name != "dv":
        siblings.append((words, lambda: gradients(given, grad_out, given.seen(), delta=False)[at]))
        # Of one head on one key head the first is all.
    if name != "dq" and given.q.shape[2] > given.k.shape[2]:
        siblings += [(words, partial(_of_one, given, grad_out, at, head)) for head, words in ONE]
    if given.q.shape[0] * given.q.shape[2] > 1:
        siblings += _of_rows(given, grad_out, at)
    return fitting(got, right, siblings)
