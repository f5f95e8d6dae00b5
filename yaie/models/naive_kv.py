"""`ContiguousKV`: the naive sibling of the paged pool, for a model that must be tried on its own.

The generic adapter proves itself on it when it loads, and the tests compare adapters with transformers
on it. It is slow and keeps everything: one tensor of keys and one of values per layer and sequence.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from yaie.core.batch import AttentionSpec, Rotation
from yaie.core.contracts import Attend


class ContiguousKV:
    """Keys and values of several sequences, each in one piece."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int, str], tuple[Tensor, Tensor]] = {}

    def attend(self, batch: Sequence[tuple[str, int]]) -> Attend:
        """The `attend` for one flat batch: (name of a sequence, how many new tokens) in its order."""
        names = [name for name, _ in batch]
        lengths = [length for _, length in batch]

        def attend(
            layer: int,
            q: Tensor,
            k: Tensor,
            v: Tensor,
            spec: AttentionSpec,
            rotation: Rotation | None = None,
        ) -> Tensor:
            if rotation is not None:
                q, k = rotation.apply(q, k)
            rows = zip(names, q.split(lengths), k.split(lengths), v.split(lengths), strict=True)
            return torch.cat(
                [
                    causal_attention(q_new, *self._append(layer, name, k_new, v_new), spec)
                    for name, q_new, k_new, v_new in rows
                ]
            )

        return attend

    # ANCHOR: append
    def _append(self, layer: int, name: str, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        if (layer, name) in self._kept:
            old_k, old_v = self._kept[layer, name]
            k, v = torch.cat([old_k, k]), torch.cat([old_v, v])
        self._kept[layer, name] = k, v
        return k, v

    # ANCHOR_END: append


def causal_attention(q: Tensor, k: Tensor, v: Tensor, spec: AttentionSpec) -> Tensor:
    """One sequence: the last queries q [n, heads, d] over all its k, v [m, kv_heads, d], in float32."""
    group = q.shape[1] // k.shape[1]
    keys = k.float().repeat_interleave(group, dim=1)
    values = v.float().repeat_interleave(group, dim=1)
    scores = torch.einsum("qhd,khd->hqk", q.float(), keys) * spec.scale
    if spec.softcap is not None:
        scores = spec.softcap * torch.tanh(scores / spec.softcap)
    key_positions = torch.arange(k.shape[0], device=q.device)
    query_positions = key_positions[-q.shape[0] :, None]
    visible = key_positions <= query_positions
    if spec.window is not None:
        visible &= key_positions > query_positions - spec.window
    scores = scores.masked_fill(~visible, -torch.inf)
    if spec.sinks is not None:
        sinks = spec.sinks.float()[:, None, None].expand(-1, q.shape[0], 1)
        weights = torch.cat([scores, sinks], dim=-1).softmax(dim=-1)[..., :-1]
    else:
        weights = scores.softmax(dim=-1)
    return torch.einsum("hqk,khd->qhd", weights, values).to(q.dtype)
