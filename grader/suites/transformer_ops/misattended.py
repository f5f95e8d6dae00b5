"""What attention gives with one mistake in it: a wrong result that is one of these is told as that."""

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from solutions.transformer_ops import TransformerOps
from yaie.core.batch import AttentionSpec

Told = tuple[str, Callable[[], Tensor]]
MODULO = (
    "This is what reading key head h % kv_heads gives, as `repeat` does and `repeat_interleave` does "
    "not. Head h reads key head h // (heads / kv_heads)."
)
TOO_LATE = (
    "Hidden keys have kept their share of the weight. The mask is added to the scores before the "
    "softmax; afterwards it is too late."
)
ROWS_ON_HEADS = (
    "The mask [n, tq, tk] has no dimension for heads. Where n equals the number of heads, a broadcast "
    "that lacks one gives head 1 the mask of row 1, without any error."
)
HIDES_NOTHING = (
    "softcap * tanh(-inf) is -softcap: a mask added before the softcap hides nothing any more."
)
CAPPED_SINK = "The softcap was applied to the sink too."
NO_SHARE = (
    "This is what comes out without the sinks: the weights of a query sum to 1. A sink keeps its share "
    "of the softmax and gives no value, so the weights of the keys sum to less."
)


class Attention:
    """softmax(q k^T * scale + mask) v in float64, in the steps that mistakes are made in.

    q: [n, tq, heads, d]; k, v: [n, tk, kv_heads, d]. kv_lens: the real keys of each row.
    """

    def __init__(
        self, q: Tensor, k: Tensor, v: Tensor, spec: AttentionSpec, kv_lens: list[int]
    ) -> None:
        self.q, self.k, self.v = (x.double().transpose(1, 2) for x in (q, k, v))
        self.spec, self.heads, self.kv_heads = spec, q.shape[2], k.shape[2]
        lens = torch.tensor(kv_lens)
        self.mask = TransformerOps().causal_mask(
            lens, q.shape[1], k.shape[1], spec.window, torch.float64
        )[:, None]

    def mistaken(self) -> dict[str, Tensor]:
        """What each mistake gives, by what is to say of it."""
        told = [*self._of_any()]
        told += self._of_softcap() if self.spec.softcap is not None else ()
        told += self._of_sinks() if self.spec.sinks is not None else ()
        return {words: compute() for words, compute in told}

    def _of_any(self) -> Iterator[Told]:
        if self.heads > self.kv_heads > 1:
            modulo = torch.arange(self.heads) % self.kv_heads
            yield MODULO, lambda: self.out(key_heads=modulo)
        d = self.q.shape[-1]
        of_the_head = (
            f"This is what a scale of 1 / sqrt({d}) = {d**-0.5:.4g} gives. The scale comes with the "
            f"spec: {self.spec.scale:.4g}."
        )
        for words, scale in (
            (of_the_head, d**-0.5),
            ("The scores here are not scaled: the scale comes with the spec.", 1.0),
            ("The scale that comes with the spec is applied twice here.", self.spec.scale**2),
        ):
            yield words, lambda scale=scale: self.out(scale=scale)  # type: ignore[misc]
        yield TOO_LATE, lambda: self.out(mask=0.0, seen=self.mask == 0)
        yield "Nothing is hidden here: the mask was left out.", lambda: self.out(mask=0.0)
        if len(self.mask) == self.heads > 1:
            yield ROWS_ON_HEADS, lambda: self.out(mask=self.mask.transpose(0, 1))

    def _of_softcap(self) -> Iterator[Told]:
        cap, scale = self.spec.softcap or 1.0, self.spec.scale
        raw = self.scores(cap=None)
        for words, scores in (
            ("The softcap was left out here.", raw),
            ("The softcap acts on the scaled score: here it came before the scale.",
             scale * cap * torch.tanh(raw / scale / cap)),
            ("tanh alone is within 1: it must be multiplied by the softcap again.",
             torch.tanh(raw / cap)),
            ("tanh was taken of the score itself: it is of score / softcap.", cap * torch.tanh(raw)),
        ):  # fmt: skip
            yield words, lambda scores=scores: self.out(scores=scores)  # type: ignore[misc]
        finite = cap * torch.tanh((raw + self.mask) / cap)
        yield HIDES_NOTHING, lambda: self.out(scores=finite, mask=0.0)
        if self.spec.sinks is not None:
            capped = cap * torch.tanh(self.spec.sinks.double() / cap)
            yield CAPPED_SINK, lambda: self.out(sinks=capped)

    def _of_sinks(self) -> Iterator[Told]:
        assert self.spec.sinks is not None
        sinks = self.spec.sinks.double()
        kinds = [
            (NO_SHARE, sinks - math.inf),
            ("The sinks were scaled here: they are scores already.", sinks * self.spec.scale),
            ("Every head has its own sink: here all have the first.", sinks[:1]),
        ]
        if self.heads > self.kv_heads:
            own, others = self._own(), torch.arange(self.heads) % self.kv_heads
            for words, whose in (
                ("here a group shares that of its number", own),
                ("here a group shares that of its first head", own * (self.heads // self.kv_heads)),
                ("here head h has that of h % kv_heads", others),
            ):
                kinds.append((f"There is a sink for each query head: {words}.", sinks[whose]))
        for words, given in kinds:
            yield words, lambda given=given: self.out(sinks=given)  # type: ignore[misc]

    def scores(
        self, scale: float | None = None, key_heads: Tensor | None = None, cap: float | None = 0.0
    ) -> Tensor:
        """[n, heads, tq, tk]. cap: 0 for that of the spec, None for none."""
        keys = self.k[:, self._own() if key_heads is None else key_heads]
        scores = (self.q @ keys.transpose(-1, -2)) * (self.spec.scale if scale is None else scale)
        cap = self.spec.softcap if cap == 0.0 else cap
        return scores if cap is None else cap * torch.tanh(scores / cap)

    def weights(self, scores: Tensor, mask: Tensor | float, sinks: Tensor | None = None) -> Tensor:
        """[n, heads, tq, tk]. sinks: in place of those of the spec."""
        scores = scores + mask
        if sinks is None:
            sinks = self.spec.sinks
        if sinks is None:
            return scores.softmax(dim=-1)
        column = sinks.double()[:, None, None].expand(*scores.shape[:-1], 1)
        return torch.cat((scores, column), dim=-1).softmax(dim=-1)[..., :-1]

    def out(
        self,
        *,
        scores: Tensor | None = None,
        scale: float | None = None,
        key_heads: Tensor | None = None,
        mask: Tensor | float | None = None,
        sinks: Tensor | None = None,
        seen: Tensor | float = 1.0,
    ) -> Tensor:
        """[n, tq, heads, d], with something else in place of what is right. seen: times the weights."""
        if scores is None:
            scores = self.scores(scale, key_heads)
        weights = self.weights(scores, self.mask if mask is None else mask, sinks) * seen
        values = self.v[:, self._own() if key_heads is None else key_heads]
        return (weights @ values).transpose(1, 2)

    def _own(self) -> Tensor:
        return torch.arange(self.heads) // (self.heads // self.kv_heads)
