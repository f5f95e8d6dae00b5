"""Granite 4 (IBM 2025), dense hybrids: Mamba-2 in most layers, attention in the others."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from yaie.core.contracts import Attend, TransformerOps
from yaie.core.contracts.states import StateTensor, StepStates
from yaie.models.adapter import register
from yaie.models.hybrid import (
    HybridAdapter,
    HybridAttention,
    LayerNames,
    Mixer,
)
from yaie.models.layout import Destination, whole
from yaie.models.rope import rope_tables
from yaie.models.stated import Stated

MAMBA, ATTENTION = {"mamba", "linear_attention"}, {"attention", "full_attention"}


class Mamba2:
    """Mamba-2 (Dao and Gu 2024): each head keeps a matrix that decays, by as much as the token says, and
    to which each token adds one of rank 1. What goes into it comes from a short convolution.

    It keeps the last inputs of the convolution, and a matrix [p, n] of each head.
    """

    def __init__(self, adapter: "Granite4Adapter") -> None:
        config, hidden, bias = (
            adapter.config,
            adapter.config.hidden_size,
            adapter.config.mamba_proj_bias,
        )
        self._adapter = adapter
        self.heads, self.groups = config.mamba_n_heads, config.mamba_n_groups
        self.p, self.n = config.mamba_d_head, config.mamba_d_state
        inner, wide = self.heads * self.p, self.groups * self.n
        mixed, width = inner + 2 * wide, config.mamba_d_conv
        matrices = (self.heads, self.p, self.n)
        self.index = adapter.keeps(
            StateTensor((mixed, width - 1), adapter.dtype), StateTensor(matrices, torch.float32)
        )
        self.parts, self.sizes = (inner, mixed, self.heads), (inner, wide, wide)
        self.into = adapter.linear(whole(hidden, sum(self.parts), bias=bias))
        self.weight = adapter.empty(mixed, 1, width)
        self.bias = adapter.empty(mixed) if config.mamba_conv_bias else None
        self.norm = adapter.empty(inner)
        self.output = adapter.summed_linear(whole(inner, hidden, bias=bias))
        self.dt_bias, self.a, self.d = (
            torch.empty(self.heads, dtype=torch.float32, device=adapter.device) for _ in range(3)
        )

    def destinations(self) -> dict[str, Destination]:
        """See Mixer."""
        places = {
            **self.into.destinations("mamba.in_proj"),
            **self.output.destinations("mamba.out_proj"),
            "mamba.conv1d.weight": Destination(self.weight),
            "mamba.norm.weight": Destination(self.norm),
            "mamba.dt_bias": Destination(self.dt_bias),
            "mamba.A_log": Destination(self.a, filled=self._set_a),
            "mamba.D": Destination(self.d),
        }
        if self.bias is not None:
            places["mamba.conv1d.bias"] = Destination(self.bias)
        return places

    def _set_a(self) -> None:
        """From the logarithms of the rates at which states decay."""
        self.a.exp_().neg_()

    def __call__(
        self, hidden: Tensor, positions: Tensor, attend: Attend, states: StepStates
    ) -> Tensor:
        """See Mixer."""
        ops, batch = states.ops, states.batch
        tails, matrices = states.pools[self.index]
        gate, mixed, dt = hidden.split(self.parts, dim=1)
        mixed = ops.short_conv(mixed, self.weight[:, 0], self.bias, tails, batch, silu=True)
        x, b, c = mixed.split(self.sizes, dim=1)
        read = ops.selective_scan(
            x.unflatten(1, (self.heads, self.p)),
            F.softplus(dt.float() + self.dt_bias),
            self.a,
            b.unflatten(1, (self.groups, self.n)),
            c.unflatten(1, (self.groups, self.n)),
            self.d,
            matrices,
            batch,
        )
        in_groups = read.flatten(1).unflatten(1, (self.groups, -1))
        weight = self.norm.view(self.groups, -1)
        return ops.gated_norm(in_groups, gate, weight, self._adapter.eps, gate_first=True)


@register("GraniteMoeHybridForCausalLM")
class Granite4Adapter(HybridAdapter):
    """Models without experts in which some layer is Mamba-2. The generic adapter serves those in which
    all attend."""

    takes_shards = False  # the norm behind Mamba-2 is over the heads of all ranks
    inner_field = "shared_intermediate_size"
    names = LayerNames(
        norm="input_layernorm",
        mlp_norm="post_attention_layernorm",
        gate_up=("shared_mlp.input_linear",),
        down="shared_mlp.output_linear",
        final="norm",
    )

    def __init__(
        self,
        config: Any,
        ops: TransformerOps,
        dtype: torch.dtype,
        device: torch.device,
        max_length: int,
    ) -> None:
        self.tables: tuple[Tensor, Tensor] | None = None
        if config.position_embedding_type == "rope":
            self.tables = rope_tables(config, max_length, device)
        super().__init__(config, ops, dtype, device, max_length)
        self.residual_scale = config.residual_multiplier

    @classmethod
    def handles(cls, config: Any) -> bool:
        kinds = {*config.layer_types}
        return (
            bool(kinds & MAMBA)
            and bool(kinds & ATTENTION)
            and kinds <= MAMBA | ATTENTION
            and not config.num_local_experts
            and config.mamba_d_conv > 1
            and config.hidden_act in ("silu", "swish")
            and (config.time_step_limit is None or config.time_step_limit == (0.0, float("inf")))
        )

    @classmethod
    def inner_features(cls, config: Any) -> int:
        return int(config.shared_intermediate_size)

    @classmethod
    def stated_states(cls, config: Any, layer: str) -> Sequence[Stated]:
        heads, wide = config.mamba_n_heads, config.mamba_n_groups * config.mamba_d_state
        parts = 2 * heads * config.mamba_d_head + 2 * wide + heads
        layer = f"{layer}.mamba"
        return [
            Stated("mamba_d_conv", config.mamba_d_conv, f"{layer}.conv1d.weight", 2),
            Stated("mamba_n_heads", heads, f"{layer}.A_log", 0),
            Stated("the mamba_ sizes", parts, f"{layer}.in_proj.weight", 0),
        ]

    def mixer(self, kind: str) -> Mixer:
        if kind in MAMBA:
            return Mamba2(self)
        scale = self.config.attention_multiplier
        return HybridAttention(self, self.tables, scale)

    def embedded(self, token_ids: Tensor, positions: Tensor) -> Tensor:
        return super().embedded(token_ids, positions) * self.config.embedding_multiplier

    def logits(self, hidden: Tensor) -> Tensor:
        return super().logits(hidden).div_(self.config.logits_scaling)
