"""The head that drafts from a model's own states: multi-token prediction (DeepSeek-V3 2024).

One decoder layer of the model's width, with the model's embedding, last norm and output head. What it
computes is `book.tutor.mtp_head`, where it is trained. Its keys and values lie in the model's blocks,
as those of one layer more: shared, copied, moved and freed with them. Those at position i depend on the
token behind it, so in a block that two texts share the last may be another text's. That costs a draft.
"""

from collections.abc import Iterable
from copy import copy
from typing import Any

import torch
from torch import Tensor

from yaie.core.batch import Rotation
from yaie.core.contracts import Attend
from yaie.core.errors import ModelError
from yaie.models.adapter import check_weights
from yaie.models.layout import Destination, whole
from yaie.models.llama import LlamaAdapter


class MtpHead:
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
        hidden = target.config.hidden_size
        self._target = target
        self.layer = len(target.kv_layers)
        self.kv_layers = [*target.kv_layers, target.kv_layers[0]]
        self._state_norm, self._token_norm = target.empty(hidden), target.empty(hidden)
        self._project = target.linear(whole(2 * hidden, hidden))
        unpacked = copy(target)  # the head's weights are plain, whatever the model's are
        unpacked.packing = None
        self._layer = unpacked.decoder_layer(0)

    def load_weights(self, tensors: Iterable[tuple[str, Tensor]]) -> None:
        """Take the weights over. Raises ModelError that names what does not fit."""
        places = {
            "hnorm.weight": Destination(self._state_norm),
            "enorm.weight": Destination(self._token_norm),
            **self._project.destinations("eh_proj"),
        }
        for name, place in self._layer.destinations().items():
            places[f"layer.{name}"] = place
        unexpected, misshapen = [], []
        with torch.inference_mode():
            for name, tensor in tensors:
                destination = places.pop(name, None)
                if destination is None:
                    unexpected.append(name)
                    continue
                try:
                    destination.fill(tensor)
                except ValueError as error:
                    misshapen.append(f"{name} {error}")
        check_weights(places, unexpected, misshapen)

    def forward(
        self, states: Tensor, token_ids: Tensor, positions: Tensor, attend: Attend
    ) -> Tensor:
        """States [T, hidden] of these positions [T] and the tokens [T] behind them; returns states of
        the next positions, finally normed."""
        target, layer = self._target, self._layer
        ops, eps = target.ops, target.eps
        embedded = torch.nn.functional.embedding(token_ids, target.embedding)
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
        hidden = layer.output(attend(self.layer, q, k, v, layer.attention, rotation).flatten(1))
        hidden, residual = ops.fused_add_rms_norm(hidden, residual, layer.mlp_norm, eps)
        hidden = layer.down(ops.silu_mul(layer.gate_up(hidden)))
        hidden, _ = ops.fused_add_rms_norm(hidden, residual, target.norm, eps)
        return hidden

    def first_choice(self, states: Tensor) -> Tensor:
        """The most likely tokens [m] behind these states [m, hidden]."""
        return self._target.logits(states).argmax(dim=1)
