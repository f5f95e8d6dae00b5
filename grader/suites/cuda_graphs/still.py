"""A device on which all is done at once, and what it is given: for calls whose own traces are counted.

The stand-in of `device.py` writes down each call that it gets, so its memory grows with all of them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from yaie.core.batch import StepOutcome, StepPlan
from yaie.core.contracts.graphs import Size


class StillEvent:
    """See `yaie.core.contracts.graphs.Event`; also a graph, of nothing."""

    def record(self) -> None:
        return None

    def synchronize(self) -> None:
        return None

    def replay(self) -> None:
        return None


class StillDevice:
    """See `yaie.core.contracts.graphs.Device`."""

    where = torch.device("cpu")

    def pinned(self, *shape: int, dtype: torch.dtype) -> Tensor:
        return torch.zeros(shape, dtype=dtype)

    def event(self) -> StillEvent:
        return StillEvent()

    def graph(self) -> StillEvent:
        return StillEvent()

    def pool(self) -> None:
        return None

    @contextmanager
    def capture(self, graph: Any, pool: Any) -> Iterator[None]:
        yield

    def alias(self, tensor: Tensor) -> Tensor:
        return tensor


class StillStep:
    """A PaddedStep that computes nothing."""

    def __init__(self, size: Size, num_uploaded: int) -> None:
        self.size = size
        self.inputs = torch.zeros(num_uploaded, dtype=torch.int32)

    def forward(self) -> Tensor:
        return torch.zeros(self.size.rows, 3)

    def draw(self, hidden: Tensor) -> Tensor:
        return torch.zeros(self.size.decodes, dtype=torch.int64)


@dataclass
class StillEngine:
    """Core, scheduler, sender and sent step of a loop: each plan moves a block, and nothing is told."""

    has_work: bool = True

    def schedule(self) -> StepPlan:
        return StepPlan(copies=[(1, 2)])

    def advance(self, plan: StepPlan) -> None:
        return None

    def execute(self, plan: StepPlan) -> "StillEngine":
        return self

    def send_masks(self) -> None:
        return None

    def result(self) -> StepOutcome:
        return StepOutcome()

    def take(self, plan: StepPlan, outcome: StepOutcome) -> list[Any]:
        return []
