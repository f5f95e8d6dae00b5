"""Random inputs that are the same each time, and how far two results are apart."""

import torch
from torch import Tensor


def generator() -> torch.Generator:
    """Of the same numbers each time."""
    return torch.Generator().manual_seed(0)


def difference(one: Tensor, other: Tensor) -> float:
    """The largest between two results of one shape."""
    return float((one.double() - other.double()).abs().max())
