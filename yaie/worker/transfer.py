"""Between host and device: few copies, from pinned memory, that wait for nothing. Lab 17 copies back, on
a CPU through `HostDevice`."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from yaie.core.contracts.graphs import Event, Graph
from yaie.core.errors import ConfigError
from yaie.core.step import Ints

ALIGNED = 4
"""int32s in 16 bytes."""


def to_device(
    narrow: Sequence[Ints], wide: Sequence[Ints], device: torch.device
) -> tuple[list[Tensor], list[Tensor]]:
    """Arrays of int32 as tensors on the device, the first of int32 and the others of int64, by one copy
    for all of them."""
    if device.type == "cpu":
        same = [torch.from_numpy(array) for array in narrow]
        return same, [torch.from_numpy(array.astype(np.int64)) for array in wide]
    arrays = [*narrow, *wide]
    # Each begins at a multiple of 16 bytes, for which kernels are compiled.
    starts = np.cumsum([0] + [-(-len(array) // ALIGNED) * ALIGNED for array in arrays]).tolist()
    # A fresh buffer each time: PyTorch gives its memory out again once the copy has been made.
    packed = torch.empty(starts[-1], dtype=torch.int32, pin_memory=True)
    host = packed.numpy()
    for start, array in zip(starts, arrays, strict=False):
        host[start : start + len(array)] = array
    there = packed.to(device, non_blocking=True)
    border = starts[len(narrow)]
    longs = there[border:].long()
    return (
        [there[at : at + len(x)] for at, x in zip(starts, narrow, strict=False)],
        [longs[at - border : at - border + len(x)]
         for at, x in zip(starts[len(narrow) :], wide, strict=False)],
    )  # fmt: skip


def on_device(array: NDArray[Any], device: torch.device) -> Tensor:
    """A copy of an array there. The host goes on at once."""
    tensor = torch.from_numpy(array)
    if device.type == "cpu":
        return tensor.clone()
    return tensor.pin_memory().to(device, non_blocking=True)


class HostDevice:
    """A CPU as a Device, and as its Event: what is called is done at once, so nothing waits for it."""

    def __init__(self, where: torch.device) -> None:
        self.where = where

    def pinned(self, *shape: int, dtype: torch.dtype) -> Tensor:
        return torch.empty(shape, dtype=dtype)

    def event(self) -> Event:
        return self

    def record(self) -> None:
        pass

    def synchronize(self) -> None:
        pass

    def alias(self, tensor: Tensor) -> Tensor:
        return tensor

    def graph(self) -> Graph:
        raise ConfigError("CUDA graphs need a GPU", param="graphs")

    def pool(self) -> Any:
        raise ConfigError("CUDA graphs need a GPU", param="graphs")

    def capture(self, graph: Graph, pool: Any) -> Any:
        raise ConfigError("CUDA graphs need a GPU", param="graphs")
