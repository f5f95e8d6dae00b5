"""The head that drafts from a Llama's own states: multi-token prediction (DeepSeek-V3 2024).

One decoder layer of the model's width, with the model's embedding, last norm and output head. What it
computes is `book.tutor.mtp_head`, where it is trained.
"""

from copy import copy
from typing import Any

import torch
from torch import Tensor

from yaie.core.batch import Rotation
from yaie.core.contracts import Attend
from yaie.core.errors import ModelError
from yaie.models.draft_head import DraftHead
from yaie.models.layout import Destination, whole
from yaie.models.llama import LlamaAdapter


class MtpHead(DraftHead):
    """The layer. layer: its index in the pool, behind the model's own."""

    def __init__(self, target: LlamaAdapter, described: dict[str, Any]) -> None:
        """described: its config.json. Raises ModelError if that is not of this target."""
        for name in (
            "hidden_size",
            "num_attention_heads",
            "num_key_value_heads",
            "intermediate_size",
        ):
            mine, theirs = described.get(name), getattr(target.config, name)
            if mine != theirs:
                raise ModelError(
                    f"the head was made for a model with {name} {mine}, and this one has {theirs}"
                )
        super().__init__(target)
        hidden = target.config.hidden_size
        self._target = target
        self.layer = len(target.kv_layers)
        self.kv_layers = [*target.kv_layers, target.kv_layers[0]]
        self._state_norm, self._token_norm = target.empty(hidden), target.empty(hidden)
        self._project = target.linear(whole(2 * hidden, hidden))
        unpacked = copy(target)  # the head's weights are plain, whatever the model's are
        unpacked.packing = None
        self._layer = unpacked.decoder_layer(0)

    def destinations(self) -> dict[str, Destination]:
        """See DraftHead."""
        places = {
            "hnorm.weight": Destination(self._state_norm),
            "enorm.weight": Destination(self._token_norm),
            **self._project.destinations("eh_proj"),
        }
        for name, place in self._layer.destinations().items():
            places[f"layer.{name}"] = place
        return places

    def forward(
        self, states: Tensor, token_ids: Tensor, positions: Tensor, attend: Attend
    ) -> Tensor:
        """See DraftHead."""
        target, layer = self._target, self._layer
        ops, eps = target.ops, target.eps
        embedded = target.embed(token_ids)
        normed = (
            ops.rms_norm(states.contiguous(), self._state_norm, eps),
            ops.rms_norm(embedded, self._token_norm, eps),
        )
        residual = self._project(torch.cat(normed, dim=1))
        hidden = ops.rms_norm(residual, layer.attention_norm, eps)
        q, k, v = (
            part.unflatten(1, (-1, target.head_dim))
            for part in layer.qkv(hidden).split(layer.qkv.layout.sizes, dim=1)
        )
        rotation = Rotation(ops.rope, positions, *layer.tables)
        hidden = layer.output(
            attend(self.layer, q, k, v, layer.attention, rotation=rotation).flatten(1)
        )
        hidden, residual = ops.fused_add_rms_norm(hidden, residual, layer.mlp_norm, eps)
        hidden = layer.down(ops.silu_mul(layer.gate_up(hidden)))
        hidden, _ = ops.fused_add_rms_norm(hidden, residual, target.norm, eps)
        return hidden
