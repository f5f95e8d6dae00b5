"""What usual mistakes in attention and its gradients would give: for `expect_near(kinds=...)`."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from grader.kit.kernels import attention, seen
from grader.kit.recomputed import Kinds
from yaie.core.batch import AttentionSpec

KEYS = 64
"""Of a tile in the forward pass."""
FAR_BELOW = -50.0
"""A score beside which one of 0 has all of the weight."""


def forward_kinds(q: Tensor, k: Tensor, v: Tensor, scale: float, rules: dict[str, Any]) -> Kinds:
    """Mistakes in the output of attention. rules: causal, window, block_mask and mask_block."""
    group, tk = q.shape[2] // k.shape[2], k.shape[1]

    def out(
        q: Tensor = q, k: Tensor = k, v: Tensor = v, scale: float = scale, **more: Any
    ) -> Tensor:
        wanted = {**rules, **more}
        spec = AttentionSpec(scale, window=wanted.pop("window", None))
        return attention(q, k, v, spec, **wanted)[0]

    def first(x: Tensor) -> Tensor:
        return x[:1].expand(x.shape)

    def head_0(x: Tensor) -> Tensor:
        return x[:, :, :1].expand(x.shape)

    def filled(size: int) -> Callable[[], Tensor]:
        """With keys of zero up to a multiple of `size`, whose values are zero."""
        room = torch.zeros(len(k), -tk % size, *k.shape[2:], dtype=k.dtype)

        def compute() -> Tensor:
            if float(scores_of(q, k, scale).max()) < FAR_BELOW:
                raise ValueError("any number in place of -infinity gives the same")
            return out(k=torch.cat((k, room), dim=1), v=torch.cat((v, room), dim=1))

        return compute

    kinds: dict[str, Callable[[], Tensor]] = {}
    if len(q) > 1:
        kinds |= {
            "What came out has the keys of sequence 0 for every sequence. Keys and values are those of "
            "the block's own sequence.": lambda: out(k=first(k)),
            "What came out has the values of sequence 0 for every sequence. Keys and values are those "
            "of the block's own sequence.": lambda: out(v=first(v)),
            "What came out has keys and values of sequence 0 for every sequence: they are those of the "
            "block's own sequence.": lambda: out(k=first(k), v=first(v)),
            "What came out has the queries of sequence 0 for every sequence.": lambda: out(
                q=first(q)
            ),
        }
    if k.shape[2] > 1:
        kinds |= {
            "What came out has the keys of key head 0 for every head.": lambda: out(k=head_0(k)),
            "What came out has the values of key head 0 for every head.": lambda: out(v=head_0(v)),
            "What came out has keys and values of key head 0 for every head.": lambda: out(
                k=head_0(k), v=head_0(v)
            ),
        }
    if group > 1 and k.shape[2] > 1:
        order = torch.arange(q.shape[2]).view(group, k.shape[2]).T.flatten()
        told = (
            "Head h was given key head h % kv_heads. Neighbours share one: head h reads key head "
            "h // (heads / kv_heads)."
        )
        kinds[told] = lambda: out(q=q[:, :, order])[:, :, order.argsort()]
    kinds |= {
        "Scores were not multiplied by the scale. They are, once.": lambda: out(scale=1.0),
        "Scores were multiplied by the scale twice. They are once.": lambda: out(
            scale=scale * scale
        ),
        "What values were multiplied by are the scores. It is the weights that update leaves in their "
        "place.": lambda: by_scores(q, k, v, scale),
        "The weighted sums were not divided by the sum of the weights; share is 1 / sum.": lambda: (
            undivided(q, k, v, scale, rules)
        ),
        "Keys were taken for values.": lambda: out(v=k),
        "Values were taken for keys.": lambda: out(k=v),
    }
    if scale != q.shape[-1] ** -0.5:
        d = q.shape[-1]
        told = (
            f"Scores were multiplied by 1 / sqrt({d}) = {d**-0.5:.4g}. It is the argument that counts, "
            f"{scale:g}, whatever the head size is."
        )
        kinds[told] = lambda: out(scale=d**-0.5)
    if tk > KEYS:
        last = (tk - 1) // KEYS * KEYS
        kinds |= {
            "What came out is attention over the first tile of keys alone.": lambda: out(
                k=k[:, :KEYS], v=v[:, :KEYS]
            ),
            "What came out is attention over the last tile of keys alone.": lambda: out(
                k=k[:, last:], v=v[:, last:]
            ),
        }
    if tk % KEYS and not rules.get("causal", True):
        told = (
            "Keys past the last one were counted with a score of 0. They are no keys: their score is "
            "-infinity. Compare the number of the key with tk."
        )
        kinds[told] = filled(KEYS)
    if rules.get("causal", True):
        kinds |= {
            "Keys after the query's position were counted: the mask was not applied.": lambda: out(
                causal=False, window=None
            ),
            "The first query was taken to stand at position 0. The triangle is aligned to the last "
            "key.": lambda: upper_left(q, k, v, scale),
        }
    if rules.get("window"):
        kinds["Keys before the window were counted."] = lambda: out(window=None)
    if rules.get("block_mask") is not None:
        told = "Keys of False blocks were counted. A block mask is a rule without causality, too."
        kinds[told] = lambda: out(block_mask=None)
    return kinds


def scores_of(q: Tensor, k: Tensor, scale: float) -> Tensor:
    keys = k.double().repeat_interleave(q.shape[2] // k.shape[2], dim=2)
    return torch.einsum("nqhd,nkhd->nhqk", q.double(), keys) * scale


def times_values(weights: Tensor, v: Tensor) -> Tensor:
    values = v.double().repeat_interleave(weights.shape[1] // v.shape[2], dim=2)
    return torch.einsum("nhqk,nkhd->nqhd", weights, values)


def by_scores(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """Scores in place of weights, divided by the sum of the weights."""
    scores = scores_of(q, k, scale)
    weights = (scores - scores.amax(dim=-1, keepdim=True)).exp()
    return times_values(scores / weights.sum(dim=-1, keepdim=True), v)


def undivided(q: Tensor, k: Tensor, v: Tensor, scale: float, rules: dict[str, Any]) -> Tensor:
    """Weights relative to the largest score, not divided by their sum."""
    visible = mask_of(q, k, rules)
    scores = scores_of(q, k, scale).masked_fill(~visible, -math.inf)
    return times_values((scores - scores.amax(dim=-1, keepdim=True)).exp(), v)


def upper_left(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """A causal mask whose first query stands at position 0."""
    visible = torch.arange(k.shape[1])[None] <= torch.arange(q.shape[1])[:, None]
    return times_values(scores_of(q, k, scale).masked_fill(~visible, -math.inf).softmax(dim=-1), v)


def mask_of(q: Tensor, k: Tensor, rules: dict[str, Any]) -> Tensor:
    return seen(q.shape[1], k.shape[1], **rules)


def gradient_kinds(
    which: str,
    grad_out: Tensor,
    qkv: tuple[Tensor, Tensor, Tensor],
    scale: float,
    rules: dict[str, Any],
) -> Kinds:
    """Mistakes in "dq", "dk" or "dv"."""
    q, k, v = (x.double() for x in qkv)
    heads, group = q.shape[2], q.shape[2] // k.shape[2]
    wide = grad_out.double()
    keys, values = (x.repeat_interleave(group, dim=2) for x in (k, v))
    scores, visible = scores_of(q, k, scale), mask_of(q, k, rules)
    lse = scores.masked_fill(~visible, -math.inf).logsumexp(dim=-1, keepdim=True)
    products = torch.einsum("nqhd,nkhd->nhqk", wide, values)

    def result(shown: Tensor, pairs: Tensor, times: Tensor, by: float) -> Tensor:
        """pairs [n, heads, tq, tk] where shown, times rows of queries or of keys."""
        pairs = pairs.masked_fill(~shown, 0.0) * by
        if which == "dq":
            return torch.einsum("nhqk,nkhd->nqhd", pairs, times)
        rows = torch.einsum("nhqk,nqhd->nkhd", pairs, times)
        return rows.unflatten(2, (heads // group, group)).sum(dim=3)

    weights = (scores - lse).exp()
    delta = (weights.masked_fill(~visible, 0.0) * products).sum(dim=-1, keepdim=True)
    gradients = weights * (products - delta)

    def of_others(index: Callable[[Tensor], Tensor]) -> Callable[[], Tensor]:
        """With lse and delta of other queries."""

        def compute() -> Tensor:
            known = (scores - index(lse)).exp()
            wrong = known if which == "dv" else known * (products - index(delta))
            return result(visible, wrong, times, by)

        return compute

    everything = torch.ones_like(visible)
    right = {
        "dq": (gradients, keys, scale),
        "dk": (gradients, q, scale),
        "dv": (weights, wide, 1.0),
    }
    pairs, times, by = right[which]
    terms = {"dq": "gradient * k", "dk": "gradient * q", "dv": "weight * grad_out"}
    said = f"{which} sums {terms[which]}"
    kinds: dict[str, Callable[[], Tensor]] = {}
    if which == "dv":
        kinds |= {
            f"What came out sums gradients of scores in place of weights: {said}.": lambda: result(
                visible, gradients, times, 1.0
            ),
            f"What came out sums weight * q: {said}.": lambda: result(visible, weights, q, 1.0),
            f"What came out was multiplied by the scale. {said}, without one.": lambda: result(
                visible, pairs, times, scale
            ),
        }
    else:
        other, name = (values, "v") if which == "dq" else (wide, "grad_out")
        kinds |= {
            "Every value is the right one times the scale. The scale of dq and dk counts once, when the "
            "sums are stored.": lambda: result(visible, pairs, times, scale * scale),
            "Every value is the right one without the scale. The scale of dq and dk counts once, when "
            "the sums are stored.": lambda: result(visible, pairs, times, 1.0),
            "delta is missing: the score's gradient is weight * (grad_out . v - delta).": lambda: (
                result(visible, weights * products, times, by)
            ),
            "delta was added: the score's gradient is weight * (grad_out . v - delta).": lambda: (
                result(visible, weights * (products + delta), times, by)
            ),
            "The weight is missing: the score's gradient is weight * (grad_out . v - delta).": lambda: (
                result(visible, products - delta, times, by)
            ),
            f"What came out sums weights in place of gradients of scores: {said}.": lambda: result(
                visible, weights, times, by
            ),
            f"What came out sums gradient * {name}: {said}.": lambda: result(
                visible, pairs, other, by
            ),
        }
    place = "lse and delta are [n, heads, tq], of query heads."
    if len(q) > 1:
        kinds[f"lse and delta of sequence 0 were taken for every sequence. {place}"] = of_others(
            lambda known: known[:1].expand(known.shape)
        )
    if group > 1:
        kv_heads = torch.arange(heads) // group
        kinds[f"lse and delta were taken from the head of the key head's number. {place}"] = (
            of_others(lambda known: known[:, kv_heads])
        )
    if not bool(visible.all()):
        told = "Hidden pairs were counted: what a query does not see has no weight and no gradient."
        if rules.get("block_mask") is not None:
            told += " A block mask is a rule without causality, too."
        kinds[told] = lambda: result(everything, pairs, times, by)
    if group > 1 and which != "dq":
        for index, name in ((0, "first"), (group - 1, "last")):
            told = (
                f"What came out is the part of each group's {name} query head: sum over the group."
            )
            kinds[told] = lambda index=index: of_one_head(pairs, times, by, visible, group, index)  # type: ignore[misc]
    return kinds


def of_one_head(
    pairs: Tensor, times: Tensor, by: float, visible: Tensor, group: int, index: int
) -> Tensor:
    chosen = pairs.masked_fill(~visible, 0.0)[:, index::group] * by
    return torch.einsum("nhqk,nqhd->nkhd", chosen, times[:, :, index::group])


def rounded_kinds(q: Tensor, k: Tensor, v: Tensor, scale: float) -> dict[str, Tensor]:
    """What comes of rounding to bfloat16 within the loop, for one head without a mask."""

    def over_tiles(acc_rounded: bool, weights_rounded: bool) -> Tensor:
        scores = scores_of(q, k, scale).float()
        maximum = torch.full((*scores.shape[:3], 1), -1e30)
        total, acc = torch.zeros_like(maximum), torch.zeros(*scores.shape[:3], v.shape[-1])
        values = v.float().transpose(1, 2)
        for first in range(0, k.shape[1], KEYS):
            tile = scores[..., first : first + KEYS]
            largest = torch.maximum(maximum, tile.amax(dim=-1, keepdim=True))
            rescale, weights = (maximum - largest).exp(), (tile - largest).exp()
            total, maximum = total * rescale + weights.sum(dim=-1, keepdim=True), largest
            weights = weights.bfloat16().float() if weights_rounded else weights
            acc = acc * rescale + weights @ values[:, :, first : first + KEYS]
            acc = acc.bfloat16().float() if acc_rounded else acc
        return (acc / total).transpose(1, 2).to(q.dtype)

    return {
        "acc was rounded to bfloat16 after each tile: this is what came out. It stays float32 from tile "
        "to tile; in half precision each tile adds its own rounding.": over_tiles(True, False),
        "Weights were rounded to bfloat16 before values were multiplied by them: this is what came out. "
        "Only out is rounded.": over_tiles(False, True),
    }


def rounded_gradient_kinds(
    which: str, grad_out: Tensor, qkv: tuple[Tensor, Tensor, Tensor], scale: float
) -> Kinds:
    """What comes of rounding to 16 bits within the loops of "dq", "dk" or "dv", for one head without a
    mask."""
    q, k, v = (x.double() for x in qkv)
    dtype, name = qkv[0].dtype, str(qkv[0].dtype).removeprefix("torch.")
    weights = scores_of(q, k, scale).softmax(dim=-1)
    products = torch.einsum("nqhd,nkhd->nhqk", grad_out.double(), v)
    delta = (weights * products).sum(dim=-1, keepdim=True)
    gradients = weights * (products - delta)
    half, times, by = {
        "dq": (gradients, k, scale),
        "dk": (gradients.transpose(2, 3), q, scale),
        "dv": (weights.transpose(2, 3), grad_out.double(), 1.0),
    }[which]

    def rounded(x: Tensor) -> Tensor:
        return x.to(dtype).double()

    def result(pairs: Tensor, rows: int = 0) -> Tensor:
        count = pairs.shape[-1]
        rows, total = rows or count, torch.zeros(*pairs.shape[:3], times.shape[-1]).double()
        for first in range(0, count, rows):
            some = pairs[..., first : first + rows]
            total = total + some @ times[:, first : first + rows].transpose(1, 2)
            total = rounded(total) if rows < count else total
        return total.transpose(1, 2) * by

    pairs = "weights" if which == "dv" else "gradients of scores"
    tiles = (
        f"The sums of {which} were rounded to {name} after each tile. They stay float32 to the end."
    )
    kinds: dict[str, Callable[[], Tensor]] = {
        f"The {pairs} were rounded to {name} before {which} was summed. They stay float32.": lambda: (
            result(rounded(half))
        ),
    }
    if which != "dv":
        kinds |= {
            f"The weights were rounded to {name} before the gradients of scores were computed. They "
            "stay float32.": lambda: result(_of_weights(rounded(weights), products, delta, which)),
            f"delta was rounded to {name}. It stays float32.": lambda: result(
                _of_weights(weights, products, rounded(delta), which)
            ),
        }
    return kinds | {tiles: lambda: result(half, 32)}


def _of_weights(weights: Tensor, products: Tensor, delta: Tensor, which: str) -> Tensor:
    gradients = weights * (products - delta)
    return gradients if which == "dq" else gradients.transpose(2, 3)


def softmax_kinds(scores: Tensor) -> tuple[Kinds, Kinds]:
    """(mistakes in share, mistakes in acc) of rows after tiles of scores [tiles, rows, columns]."""
    tops = scores.double().amax(dim=2).cummax(dim=0).values  # the running maximum
    own = (scores.double() - tops[..., None]).exp()
    sums: dict[str, Callable[[], Tensor]] = {
        "sum is that of the last tile alone: it goes on from tile to tile.": lambda: (
            1 / own[-1].sum(dim=1)
        ),
        "The weights are right. sum was added up as it was, and is relative to an old maximum: "
        "it is multiplied by exp(old - new).": lambda: 1 / own.sum(dim=(0, 2)),
        "What came out is the sum, and share is 1 / sum.": lambda: (
            (scores.double() - tops[-1][:, None]).exp().sum(dim=(0, 2))
        ),
    }
    accs: dict[str, Callable[[], Tensor]] = {
        "sum is right. acc was added up as it was, and is relative to an old maximum: it is multiplied "
        "by exp(old - new).": lambda: own[:, :, 0].sum(dim=0),
        "acc is that of the last tile alone: it goes on from tile to tile.": lambda: own[-1, :, 0],
    }
    if len(scores) == 1:
        total = own[0].sum(dim=1)
        other = total[torch.arange(len(total)) ^ 1]
        whole_warp = (
            "The weights are right. The sum of a row holds that of row r ^ 1 too, which the other 16 "
            "lanes of the warp have: it went over 32 lanes, and a row has 16. The largest distance is 8."
        )
        return {whole_warp: lambda: 1 / (total + other)}, {}
    return sums, accs


def lse_kinds(total: Tensor, lse: Tensor) -> Kinds:
    """Mistakes in lse of rows whose share and weights are right, from their sum and exact lse."""
    top = lse - total.log()
    formula = "lse is maximum + log(sum), the natural logarithm, to the base e."
    return {
        f"What came out is maximum + log2(sum). {formula}": lambda: top + total.log2(),
        f"What came out is log2 of the denominator. {formula}": lambda: lse / math.log(2),
        f"What came out is log(sum), which is relative to the maximum. {formula}": total.log,
        f"What came out is the maximum alone. {formula}": lambda: top,
        f"What came out is maximum - log(sum). {formula}": lambda: top - total.log(),
        f"What came out is log(sum) - maximum. {formula}": lambda: total.log() - top,
        f"What came out is maximum + sum. {formula}": lambda: top + total,
        f"What came out is the denominator, without the logarithm. {formula}": lse.exp,
    }


def rounded_columns(got: Tensor, right: Tensor) -> str:
    """Which columns of a float32 tile were rounded to 16 bits, and to which type, if it was."""
    wrong = (got != right).any(dim=0).nonzero().flatten().tolist()
    for dtype in (torch.bfloat16, torch.float16):
        half = right.to(dtype).float()
        if not wrong or not torch.equal(got[:, wrong], half[:, wrong]):
            continue
        name = str(dtype).removeprefix("torch.")
        steps = {b - a for a, b in itertools.pairwise(wrong)}
        if len(wrong) == got.shape[1]:
            return f"All numbers were rounded to {name}. They stay float32."
        if len(wrong) > 2 and steps == {4}:
            return (
                f"Columns {wrong[0]}, {wrong[1]}, {wrong[2]}, ..., one of each four, were rounded to "
                f"{name}, and the others are right. All stay float32."
            )
        first, last = min(wrong), max(wrong)
        few = f"{len(wrong)} columns, from {first} to {last}"
        return f"{few}, were rounded to {name}. All stay float32."
    return ""


def lanes_that_know(share: Tensor, right: Tensor) -> str:
    """Which lanes have a row's sum, if it is some alone: row r's share is told by lane r % 16."""
    close = torch.isclose(share.double(), right, rtol=1e-4)
    lanes = sorted({row % 16 for row in close.nonzero().flatten().tolist()})
    wrong = {row % 16 for row in (~close).nonzero().flatten().tolist()}
    if not lanes or not wrong or wrong & set(lanes) or len(lanes) > 8:
        return ""
    return (
        f"Of the 16 lanes of a row lane {', '.join(map(str, lanes))} has the right sum, and the others "
        "have not: here the share of row r comes from lane r % 16. Every lane needs the maximum and the "
        "sum over the lanes of its row. "
    )
