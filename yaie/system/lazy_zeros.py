"""Zeros for the KV pool, which is made long before most of it is used."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import Tensor


def zeros(
    shape: Sequence[int], dtype: "torch.dtype", device: "torch.device", *, pinned: bool = False
) -> "Tensor":
    """A tensor of zeros. On a CPU it takes no memory yet: the system maps a page when it is written.

    `torch.zeros` asks for memory and writes every byte of it; numpy asks the system for zeroed memory,
    which new pages are anyway. pinned: host memory that a GPU reads and writes, mapped at once.
    """
    import numpy as np
    import torch

    if device.type != "cpu" or pinned:
        return torch.zeros(*shape, dtype=dtype, device=device, pin_memory=pinned)
    numbers = np.zeros(shape, f"u{dtype.itemsize}")  # of the same size: numpy has no bfloat16
    return torch.from_numpy(numbers).view(dtype)
