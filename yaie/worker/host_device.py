"""A CPU as lab 17 sees it: a device on which what is called is done at once."""

from typing import Any

import torch
from torch import Tensor

from yaie.core.contracts.graphs import Event, Graph
from yaie.core.errors import ConfigError


class HostDevice:
    """A CPU as a Device: what is called is done at once, so there is nothing to wait for."""

    def __init__(self, where: torch.device) -> None:
        self.where = where

    def pinned(self, *shape: int, dtype: torch.dtype) -> Tensor:
        return torch.empty(shape, dtype=dtype)

    def event(self) -> Event:
        return _NoEvent()

    def graph(self) -> Graph:
        raise ConfigError("CUDA graphs need a GPU", param="graphs")

    def pool(self) -> Any:
        raise ConfigError("CUDA graphs need a GPU", param="graphs")

    def capture(self, graph: Graph, pool: Any) -> Any:
        raise ConfigError("CUDA graphs need a GPU", param="graphs")

    def alias(self, tensor: Tensor) -> Tensor:
        return tensor


class _NoEvent:
    """All before it has happened."""

    def record(self) -> None:
        pass

    def synchronize(self) -> None:
        pass
