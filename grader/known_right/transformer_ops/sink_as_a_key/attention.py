"""Another right attention: the library's call for everything, with a sink as one more key of value 0.

A mask with a dimension for heads holds each head's sink logit in the last column. Capped scores go into
the mask too, and the library multiplies its own by 0.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from yaie.core.batch import AttentionSpec


def causal_mask(
    kv_lens: Tensor, tq: int, tk: int, window: int | None, dtype: torch.dtype
) -> Tensor:
    """From the number of keys that lie between a query and each key."""
    ahead = torch.arange(tk, device=kv_lens.device)[None, :] + torch.arange(
        tq - 1, -1, -1, device=kv_lens.device
    ).unsqueeze(1)
    # Row j, key i: i is seen if i + (tq - 1 - j) < length.
    hidden = ahead >= kv_lens.view(-1, 1, 1)
    if window:
        hidden = hidden | (ahead < (kv_lens - window).view(-1, 1, 1))
    return hidden.new_zeros(hidden.shape, dtype=dtype).masked_fill(hidden, float("-inf"))


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, spec: AttentionSpec) -> Tensor:
    """softmax(q k^T * scale + mask) v for q [n, tq, heads, d] and k, v [n, tk, kv_heads, d]."""
    heads, kv_heads = q.shape[2], k.shape[2]
    queries, keys, values = (part.permute(0, 2, 1, 3) for part in (q, k, v))
    bias, scale = mask.unsqueeze(1), spec.scale
    if spec.softcap is None and spec.sinks is None:
        return _library(queries, keys, values, bias, scale).permute(0, 2, 1, 3)
    dtype = q.dtype
    queries, keys, values = queries.float(), keys.float(), values.float()
    bias = bias.float().expand(-1, heads, -1, -1)
    if spec.softcap is not None:
        shared = keys.repeat_interleave(heads // kv_heads, dim=1)
        scores = torch.matmul(queries, shared.mT).mul_(scale)
        bias = bias + scores.div_(spec.softcap).tanh_().mul_(spec.softcap)
        scale = 0.0  # the scores are in the bias already
    if spec.sinks is not None:
        keys, values = F.pad(keys, (0, 0, 0, 1)), F.pad(values, (0, 0, 0, 1))
        column = spec.sinks.float().view(1, -1, 1, 1).expand(*bias.shape[:3], 1)
        bias = torch.cat((bias, column), dim=-1)
    return _library(queries, keys, values, bias, scale).to(dtype).permute(0, 2, 1, 3)


def _library(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, scale: float) -> Tensor:
    group = q.shape[1] // k.shape[1]
    if group > 1:
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=scale)
