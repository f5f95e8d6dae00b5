"""`DraftHead`: one decoder layer that drafts from a model's own states (multi-token prediction).

Its keys and values lie in the model's blocks, as those of one layer more: shared, copied, moved and
freed with them. Those at position i depend on the token behind it, so in a block that two texts share
the last may be another text's. That costs a draft.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable

import torch
from torch import Tensor

from yaie.core.batch import KVLayerSpec
from yaie.core.contracts import Attend
from yaie.models.adapter import ModelAdapter, check_weights
from yaie.models.layout import Destination, Stored


class DraftHead(ABC):
    """kv_layers: the model's, and behind them the head's own."""

    kv_layers: list[KVLayerSpec]

    def __init__(self, target: ModelAdapter) -> None:
        """target: the model, whose embedding and output head it shares."""
        self._model = target

    @abstractmethod
    def destinations(self) -> dict[str, Destination]:
        """Where each of its tensors goes, by name."""

    def load_weights(self, tensors: Iterable[tuple[str, Stored]]) -> None:
        """Take the weights over. Raises ModelError that names what does not fit."""
        places = self.destinations()
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

    @abstractmethod
    def forward(
        self, states: Tensor, token_ids: Tensor, positions: Tensor, attend: Attend
    ) -> Tensor:
        """States [T, hidden] of these positions [T] and the tokens [T] behind them; returns states of
        the next positions, finally normed."""

    def first_choice(self, states: Tensor) -> Tensor:
        """The most likely tokens [m] behind these states [m, hidden]."""
        return self._model.logits(states).argmax(dim=1)
