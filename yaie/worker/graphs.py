"""What `torch.cuda` gives to padded steps: pinned memory, events and graphs. Lab 17 records with it.

A step of a small model is a few hundred kernels of some microseconds each. Launched one by one from
Python they take longer than they run. A graph holds all of them with their arguments, so that a step is
an upload, a launch and a download.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from yaie.core.contracts.graphs import Device, Event, Graph
from yaie.worker.transfer import HostDevice


def device_for(where: torch.device) -> Device:
    """What lab 17 calls on a device."""
    return CudaDevice(where) if where.type == "cuda" else HostDevice(where)


class CudaDevice:
    """See `yaie.core.contracts.graphs.Device`: `torch.cuda` on the current stream."""

    def __init__(self, where: torch.device) -> None:
        self.where = where

    def pinned(self, *shape: int, dtype: torch.dtype) -> Tensor:
        """PyTorch gives its memory out again once the copies from it have been made."""
        return torch.empty(shape, dtype=dtype, pin_memory=True)

    def event(self) -> Event:
        return torch.cuda.Event()

    def graph(self) -> Graph:
        return torch.cuda.CUDAGraph()

    def pool(self) -> Any:
        return torch.cuda.graph_pool_handle()

    @contextmanager
    def capture(self, graph: Any, pool: Any) -> Iterator[None]:
        """See the contract. Raises what the body raises, not what the recording has to say of that."""
        failures: list[Exception] = []
        try:
            with torch.cuda.graph(graph, pool=pool):
                try:
                    yield
                except Exception as error:
                    failures.append(error)
                    raise
        except Exception as error:  # noqa: BLE001, it is raised
            raise (failures or [error])[0] from None

    def alias(self, tensor: Tensor) -> Tensor:
        """See the contract; of a contiguous tensor."""
        return _same_memory(tensor)


class _Memory:
    """An address as PyTorch takes it from other libraries."""

    def __init__(self, tensor: Tensor) -> None:
        self.__cuda_array_interface__ = {
            "data": (tensor.data_ptr(), False),
            "shape": tuple(tensor.shape),
            "strides": None,
            "typestr": f"<i{tensor.itemsize}",
            "version": 3,
        }


def _same_memory(tensor: Tensor) -> Tensor:
    """A tensor over the memory of a contiguous one, which it does not keep alive."""
    if not tensor.is_contiguous():
        raise ValueError("what is replayed must lie in one piece")
    as_integers = tensor.view({2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.itemsize])
    there: Tensor = torch.as_tensor(_Memory(as_integers), device=tensor.device)
    return there.view(tensor.dtype)
