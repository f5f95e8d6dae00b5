"""Qwen3.5's head for drafts, which a checkpoint has beside the model, in tensors `mtp.<...>`.

    x[i] = fc([pre_fc_norm_embedding(embedding of token i + 1); pre_fc_norm_hidden(state[i])])
    state[i + 1] = norm(layer(x)[i])

The states are the model's behind its last norm. The layer is one with gated attention, and its norms
multiply by 1 + weight, as the model's do. Embedding and output head are the model's.
"""

from collections.abc import Callable, Iterable
from copy import copy

import torch
from torch import Tensor

from yaie.core.contracts import Attend
from yaie.core.errors import ConfigError, ModelError
from yaie.models.draft_head import DraftHead
from yaie.models.hybrid import HybridAttention
from yaie.models.layout import Destination, whole
from yaie.models.qwen3_5 import HEAD, Qwen35Adapter

Gate = Callable[[Tensor, Tensor], Tensor]


class Qwen35Head(DraftHead):
    """See DraftHead. Its layer's index in the pool is behind the model's own."""

    def __init__(self, target: Qwen35Adapter, gate: Gate) -> None:
        """gate: `StateOps.sigmoid_gate`."""
        super().__init__(target)
        hidden = target.config.hidden_size
        self._target = target
        self._gate = gate
        self._state_norm, self._token_norm, self._norm = (target.empty(hidden) for _ in range(3))
        self._project = target.linear(whole(2 * hidden, hidden))
        longer = copy(target)  # by a layer
        longer.kv_layers = [*target.kv_layers]
        self._layer = longer.make_layer("full_attention")
        self.kv_layers = longer.kv_layers

    def destinations(self) -> dict[str, Destination]:
        """See DraftHead."""
        target = self._target
        norms = {
            "pre_fc_norm_hidden": self._state_norm,
            "pre_fc_norm_embedding": self._token_norm,
            "norm": self._norm,
        }
        return {
            **{f"{HEAD}{name}.weight": target.norm_place(norm) for name, norm in norms.items()},
            **self._project.destinations(f"{HEAD}fc"),
            **target.layer_places(self._layer, f"{HEAD}layers.0"),
        }

    def forward(
        self, states: Tensor, token_ids: Tensor, positions: Tensor, attend: Attend
    ) -> Tensor:
        """See DraftHead."""
        target, layer, attention = self._target, self._layer, self._layer.mixer
        ops, eps = target.ops, target.eps
        assert isinstance(attention, HybridAttention)
        normed = (
            ops.rms_norm(target.embedded(token_ids, positions), self._token_norm, eps),
            ops.rms_norm(states.contiguous(), self._state_norm, eps),
        )
        residual = self._project(torch.cat(normed, dim=1))
        hidden = ops.rms_norm(residual, layer.norm, eps)
        attended, gate = attention.attended(attention.into(hidden), positions, attend)
        assert gate is not None
        hidden = attention.output(self._gate(attended, gate))
        hidden, residual = ops.fused_add_rms_norm(hidden, residual, layer.mlp_norm, eps)
        hidden = layer.down(ops.silu_mul(layer.gate_up(hidden)))
        hidden, _ = ops.fused_add_rms_norm(hidden, residual, self._norm, eps)
        return hidden


def check_names(model: str, names: Iterable[str]) -> None:
    """Raise ConfigError where a checkpoint has no head, ModelError for one of several layers.

    model: its name. names: of all tensors.
    """
    found = [name.removeprefix(HEAD).split(".") for name in names if name.startswith(HEAD)]
    if not found:
        raise ConfigError(
            f"speculate 'mtp' needs a head, and the checkpoint of {model} has none (its tensors would "
            f"be called {HEAD}<...>): take 'ngram', or 'draft' with a smaller model of its family",
            param="speculate",
        )
    layers = {parts[1] for parts in found if parts[0] == "layers" and len(parts) > 1}
    if len(layers) > 1:
        raise ModelError(
            f"the head for drafts of {model} has {len(layers)} layers, and only one of a single layer "
            "is read: take speculate 'ngram', or 'draft' with a smaller model of its family"
        )
