"""The experts of Gemma 4, beside a layer's dense feed-forward part (Gemma Team 2026)."""

from typing import Any

import torch
from torch import Tensor

from yaie.core.contracts import TransformerOps
from yaie.models.adapter import ModelAdapter
from yaie.models.experts import Choice, Groups, PlainExperts, mixed
from yaie.models.gemma import gelu_mul
from yaie.models.layout import Destination, whole


class GemmaExperts:
    """norm(experts(norm(x))) of what enters the feed-forward part, to be added to norm(y) of what the
    dense part gives."""

    def __init__(self, adapter: ModelAdapter, config: Any) -> None:
        hidden, inner, self.count = (
            config.hidden_size,
            config.moe_intermediate_size,
            config.num_experts,
        )
        self._ops: TransformerOps = adapter.ops
        self._eps = config.rms_norm_eps
        self._chosen = config.top_k_experts
        self._root = hidden**-0.5
        self._unscaled = torch.ones(hidden, dtype=adapter.dtype, device=adapter.device)
        self._behind_dense, self._before, self._behind = (adapter.empty(hidden) for _ in range(3))
        self._router = adapter.linear(whole(hidden, self.count))
        self._scale, self._shares = adapter.empty(hidden), adapter.empty(self.count)
        self._gate_up = PlainExperts(adapter.empty(self.count, 2 * inner, hidden), turned=True)
        self._down = PlainExperts(adapter.empty(self.count, hidden, inner), turned=True)

    def destinations(self) -> dict[str, Destination]:
        """By name within the layer."""
        return {
            "post_feedforward_layernorm_1.weight": Destination(self._behind_dense),
            "pre_feedforward_layernorm_2.weight": Destination(self._before),
            "post_feedforward_layernorm_2.weight": Destination(self._behind),
            "router.scale": Destination(self._scale),
            "router.per_expert_scale": Destination(self._shares),
            **self._router.destinations("router.proj"),
            **self._gate_up.destinations("experts.gate_up_proj"),
            **self._down.destinations("experts.down_proj"),
        }

    def __call__(self, dense: Tensor, entered: Tensor) -> Tensor:
        """dense: what the dense part gives. entered: what it was given, not normed. Both [T, hidden]."""
        norm, eps = self._ops.rms_norm, self._eps
        hidden = norm(entered, self._before, eps)
        hidden = mixed(hidden, self._choice(entered), self.count, self._compute)
        return norm(dense, self._behind_dense, eps) + norm(hidden, self._behind, eps)

    def _choice(self, entered: Tensor) -> Choice:
        """The best by a softmax over all; their shares add up to 1 before each is scaled."""
        hidden = self._ops.rms_norm(entered, self._unscaled, self._eps) * self._scale * self._root
        likely = self._router(hidden).softmax(dim=-1, dtype=torch.float32)
        best, experts = likely.topk(self._chosen, dim=-1)
        return Choice(experts, best / best.sum(dim=-1, keepdim=True) * self._shares[experts])

    def _compute(self, x: Tensor, groups: Groups) -> Tensor:
        return self._down(gelu_mul(self._gate_up(x, groups)), groups)
