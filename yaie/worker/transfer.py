"""Between host and device: few copies, from and to pinned memory, that wait for nothing."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from yaie.core.step import Ints


def to_device(
    narrow: Sequence[Ints], wide: Sequence[Ints], device: torch.device
) -> tuple[list[Tensor], list[Tensor]]:
    """Arrays of int32 as tensors on the device, the first of int32 and the others of int64, by one copy
    for all of them."""
    if device.type == "cpu":
        same = [torch.from_numpy(array) for array in narrow]
        return same, [torch.from_numpy(array.astype(np.int64)) for array in wide]
    arrays = [*narrow, *wide]
    sizes = [len(array) for array in arrays]
    # A fresh buffer each time: PyTorch gives its memory out again once the copy has been made.
    packed = torch.empty(sum(sizes), dtype=torch.int32, pin_memory=True)
    np.concatenate(arrays, out=packed.numpy())
    there = packed.to(device, non_blocking=True)
    border = sum(sizes[: len(narrow)])
    longs = there[border:].long()
    return (
        list(there[:border].split(sizes[: len(narrow)])),
        list(longs.split(sizes[len(narrow) :])),
    )


class ToHost:
    """A tensor on its way to the host. Steps that are queued behind it on the device do not delay it."""

    def __init__(self, tensor: Tensor) -> None:
        self._event: torch.cuda.Event | None = None
        if tensor.device.type == "cpu":
            self._tensor = tensor
            return
        self._tensor = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        self._tensor.copy_(tensor, non_blocking=True)
        self._event = torch.cuda.Event()
        self._event.record()

    def get(self) -> Tensor:
        """The tensor, once it has arrived."""
        if self._event is not None:
            self._event.synchronize()
        return self._tensor
