"""Where states lie: one slot of fixed size a sequence, beside the blocks of keys and values."""

from collections.abc import Sequence
from itertools import chain
from math import prod

import torch
from torch import Tensor

from yaie.core.contracts.states import StateLayerSpec, StateTensor
from yaie.system.lazy_zeros import zeros

ALIGNED = 16
"""Numbers: each tensor's length is rounded up to a multiple, and the next one begins there."""


# ANCHOR: pool
class StatePool:
    """See `yaie.core.contracts.states.StatePool`. What a slot holds in one dtype lies in one piece, over
    all layers: a slot is copied by one call for each dtype.

    `zeros` costs nothing on a CPU: the system maps pages when they are first written.
    """

    def __init__(
        self, layers: Sequence[StateLayerSpec], num_slots: int, device: torch.device
    ) -> None:
        # BEGIN SOLUTION 22.4
        sizes: dict[torch.dtype, int] = {}
        begins = []  # of each tensor, in its dtype's piece
        for one in chain(*layers):
            begins.append(sizes.get(one.dtype, 0))
            sizes[one.dtype] = begins[-1] + -(-prod(one.shape) // ALIGNED) * ALIGNED
        self._pieces = {
            dtype: zeros((num_slots, size), dtype, device) for dtype, size in sizes.items()
        }
        at = iter(begins)
        self.layers = [[self._tensor(one, next(at)) for one in layer] for layer in layers]

    def _tensor(self, one: StateTensor, begin: int) -> Tensor:
        piece = self._pieces[one.dtype][:, begin : begin + prod(one.shape)]
        return piece.unflatten(1, one.shape)
        # END SOLUTION

    def copy(self, sources: Tensor, targets: Tensor) -> None:
        """Slots [n] to other slots [n]."""
        # BEGIN SOLUTION 22.4
        for piece in self._pieces.values():
            piece.index_copy_(0, targets, piece.index_select(0, sources))
        # END SOLUTION


# ANCHOR_END: pool


# ANCHOR: read_states
def read_states(tensor: Tensor, slots: Tensor, is_fresh: Tensor, dtype: torch.dtype) -> Tensor:
    """See `yaie.core.contracts.states.ReadStates`."""
    # BEGIN SOLUTION 22.4
    states = tensor[slots].to(torch.promote_types(torch.float32, dtype))
    return states.masked_fill_(is_fresh.view(-1, *[1] * (states.dim() - 1)), 0.0)
    # END SOLUTION


def write_states(tensor: Tensor, slots: Tensor, states: Tensor) -> None:
    """See `yaie.core.contracts.states.WriteStates`."""
    # BEGIN SOLUTION 22.4
    tensor[slots] = states.to(tensor.dtype)
    # END SOLUTION


# ANCHOR_END: read_states
