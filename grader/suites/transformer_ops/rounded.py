"""Results in half precision that are the exact ones rounded once, and where they were rounded if not."""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from grader.kit import Mismatch
from yaie.core.batch import AttentionSpec

LEAST = 0.98
"""Of the values must be the exact ones rounded: the order of a sum may move one to the next number."""
MEANS = "So numbers were rounded on the way, and not at the end alone."
Told = tuple[str, Tensor]


def expect_rounded_once(
    got: Tensor, exact: Tensor, what: str, why: str, gives: Mapping[str, Tensor]
) -> None:
    """Nearly all values are the exact ones rounded to the dtype of `got`. gives: what comes of rounding
    earlier, by what is said of it."""
    right = exact.to(got.dtype)
    share = float((got == right).double().mean())
    if share > LEAST:
        return
    index = tuple((got != right).nonzero()[0].tolist())
    named = [told for told, value in gives.items() if torch.equal(got, value.to(got.dtype))]
    raise Mismatch(
        f"only {share:.0%} of the values of {what} are the exact ones rounded to "
        f"{str(got.dtype).removeprefix('torch.')}, the first that is not at {list(index)}",
        f"{float(right[index]):.6g}, {float(exact[index]):.6g} rounded",
        f"{float(got[index]):.6g}",
        f"{named[0]} {why}" if len(named) == 1 else f"{MEANS} {why}",
    )


def rounded_norms(x: Tensor, weight: Tensor, eps: float) -> dict[str, Tensor]:
    """What rms_norm gives if it rounds on the way to x's dtype."""
    wide = x.float()
    mean, low = wide.square().mean(dim=-1, keepdim=True), x.dtype
    root = torch.rsqrt(mean + eps)
    own = x.square().mean(dim=-1, keepdim=True)
    gives = {
        "Exactly these values come of a root that is rounded before the product.": wide
        * root.to(low).float(),
        "Exactly these values come of a mean that is rounded.": wide
        * torch.rsqrt(mean.to(low).float() + eps),
        "Exactly these values come of squares and a mean in the input's dtype.": wide
        * torch.rsqrt(own.float() + eps),
        "Exactly these values come of all the math in the input's dtype.": x
        * torch.rsqrt(own + eps),
    }
    return {told: value.to(low) * weight for told, value in gives.items()}


def rounded_rotations(x: Tensor, cos: Tensor, sin: Tensor) -> dict[str, Tensor]:
    """What rope gives if it rounds on the way to x's dtype. x: [T, heads, d], all of d turned. cos, sin:
    [T, d / 2]."""
    low = x.dtype

    def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        first, second = x.chunk(2, dim=-1)
        cos, sin = cos[:, None], sin[:, None]
        return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)

    return {
        "Exactly these values come of cos and sin that are rounded, and math in the input's "
        "dtype.": turned(x, cos.to(low), sin.to(low)),
        "Exactly these values come of cos and sin that are rounded first.":
        turned(x.float(), cos.to(low).float(), sin.to(low).float()),
    }  # fmt: skip


def told_of_scores(
    got: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor, spec: AttentionSpec, exact: Tensor
) -> str:
    """Which rounding gives what attention gave, if it is one of these; "" if not."""
    near = {told: value.double() for told, value in _roundings(q, k, v, mask, spec)}
    off = {told: float((got.double() - value).norm()) for told, value in near.items()}
    told, least = min(off.items(), key=lambda item: item[1])
    return told if least < 0.2 * float((got.double() - exact).norm()) else ""


def _roundings(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor, spec: AttentionSpec
) -> Iterator[Told]:
    """What comes of each; q [n, tq, heads, d], k and v [n, tk, kv_heads, d]."""
    low, group = q.dtype, q.shape[2] // k.shape[2]
    queries = q.transpose(1, 2)
    keys, values = (x.transpose(1, 2).repeat_interleave(group, dim=1) for x in (k, v))
    raw = queries.float() @ keys.float().transpose(-1, -2)

    def out(scores: Tensor, dtype: torch.dtype, weights: torch.dtype) -> Tensor:
        if spec.softcap is not None:
            scores = spec.softcap * torch.tanh(scores / spec.softcap)
        scores = scores.to(dtype) + mask[:, None].to(dtype)
        if spec.sinks is not None:
            sinks = spec.sinks.to(dtype)[:, None, None].expand(*scores.shape[:-1], 1)
            probs = torch.cat((scores, sinks), dim=-1).softmax(dim=-1)[..., :-1]
        else:
            probs = scores.softmax(dim=-1)
        made = probs.to(weights).float() @ values.float()
        return made.to(low).transpose(1, 2)

    f32 = torch.float32
    at = f"Scores here go up to {float((raw * spec.scale).abs().max()):.0f}"
    yield (
        f"{at}, and these are the values that come of rounding them to the input's dtype.",
        out((raw.to(low) * spec.scale).float(), f32, f32),
    )
    yield (
        f"{at}, and these are the values that come of scores, softmax and weights in the input's dtype.",
        out(raw.to(low) * spec.scale, low, low),
    )
