"""A slot is a row of bytes, whatever the dtypes in it: one copy moves it."""

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor

from yaie.core.contracts.states import StateLayerSpec

LINE = 64
"""Bytes: each tensor of a slot begins at a multiple."""


class StatePool:
    """See `yaie.core.contracts.states.StatePool`."""

    def __init__(
        self, layers: Sequence[StateLayerSpec], num_slots: int, device: torch.device
    ) -> None:
        size, begins = 0, []
        for layer in layers:
            for one in layer:
                begins.append(size)
                size += -(-one.num_bytes // LINE) * LINE
        self._bytes = torch.zeros(num_slots, size, dtype=torch.uint8, device=device)
        at = iter(begins)
        self.layers = []
        for layer in layers:
            views = []
            for one in layer:
                begin = next(at)
                flat = self._bytes[:, begin : begin + one.num_bytes].view(one.dtype)
                views.append(flat.view(num_slots, *one.shape) if prod(one.shape) else flat)
            self.layers.append(tuple(views))

    def copy(self, sources: Tensor, targets: Tensor) -> None:
        """Slots [n] to other slots [n]."""
        self._bytes[targets] = self._bytes[sources]


def read_states(tensor: Tensor, slots: Tensor, is_fresh: Tensor, dtype: torch.dtype) -> Tensor:
    """See `yaie.core.contracts.states.ReadStates`."""
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    old = tensor.index_select(0, slots).to(torch.promote_types(wide, tensor.dtype))
    shape = (len(slots), *[1] * (tensor.dim() - 1))
    return torch.where(is_fresh.reshape(shape), torch.zeros((), dtype=old.dtype), old)


def write_states(tensor: Tensor, slots: Tensor, states: Tensor) -> None:
    """See `yaie.core.contracts.states.WriteStates`."""
    tensor.index_copy_(0, slots, states.to(tensor.dtype))
