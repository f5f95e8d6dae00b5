"""Another right sampler: PyTorch sorts, and one kernel races what it left, one program a row."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from yaie.core.batch import SamplingBatch

from .noise import noise_of
from .penalties import apply_penalties


@triton.jit
def best_kernel(logits, stride, seeds, steps, heats, out, vocab, BLOCK: tl.constexpr):
    """The token with the largest logit + noise; the first of the largest logits where heat is 0."""
    row = tl.program_id(0).to(tl.int64)
    seed, step = tl.load(seeds + row), tl.load(steps + row)
    heat = tl.load(heats + row)
    best = tl.full([BLOCK], float("-inf"), tl.float32)
    winner = tl.zeros([BLOCK], tl.int32)
    for start in range(0, vocab, BLOCK):
        tokens = start + tl.arange(0, BLOCK)
        inside = tokens < vocab
        score = tl.load(logits + row * stride + tokens, mask=inside, other=float("-inf"))
        if heat > 0:
            score += noise_of(tokens, seed, step)
        winner = tl.where(score > best, tokens, winner)
        best = tl.maximum(best, score)
    token = tl.min(tl.where(best == tl.max(best), winner, vocab))
    tl.store(out + row, token.to(tl.int64))


class Sampler:
    def sample(self, logits: Tensor, batch: SamplingBatch) -> Tensor:
        n, vocab = logits.shape
        if n == 0:
            return torch.zeros(0, dtype=torch.int64, device=logits.device)
        valid = logits.amax(dim=1).isfinite()
        if batch.penalties is not None:
            logits = apply_penalties(logits, batch.penalties)
        heat = batch.temperature[:, None]
        scaled = logits - logits.amax(dim=1, keepdim=True)
        scaled = torch.where(heat > 0, scaled / torch.where(heat > 0, heat, 1.0), scaled)
        scaled = torch.where(valid[:, None], scaled, 0.0).contiguous()
        if batch.any_top_k or batch.any_top_p or batch.any_min_p:
            scaled = torch.where(heat > 0, self._filtered(scaled, batch), scaled)
        out = torch.empty(n, dtype=torch.int64, device=logits.device)
        best_kernel[(n,)](
            scaled, vocab, batch.seeds, batch.steps, batch.temperature, out, vocab, BLOCK=512
        )
        return torch.where(valid, out, -1)

    def _filtered(self, scaled: Tensor, batch: SamplingBatch) -> Tensor:
        """-inf below the least logit that each of the three filters keeps."""
        ordered = scaled.sort(dim=1, descending=True).values
        k = torch.where(batch.top_k > 0, batch.top_k, scaled.shape[1]).clamp(max=scaled.shape[1])
        least = ordered.gather(1, (k - 1)[:, None])
        probs = ordered.masked_fill(ordered < least, float("-inf")).softmax(dim=1)
        kept = (probs.cumsum(dim=1) - probs < batch.top_p[:, None]) | (batch.top_p[:, None] >= 1)
        kept[:, 0] = True
        last = kept.sum(dim=1, keepdim=True) - 1
        least = torch.maximum(least, ordered.gather(1, last))
        least = torch.maximum(least, batch.min_p.log()[:, None])
        return scaled.masked_fill(scaled < least, float("-inf"))
