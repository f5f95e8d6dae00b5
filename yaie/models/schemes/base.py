"""`Scheme`: how the weight of a product is stored and multiplied. The register of those there are."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, TypeVar

import torch
from torch import Tensor

from yaie.core.gemm import PlainWeight
from yaie.models.layout import Destination, Layout


class Scheme(ABC):
    """Storage of one weight, and y = x @ weight.T + bias on it.

    layout: which tensors of a checkpoint make up the weight.
    extra_bytes: memory that it takes beside a weight that it was given to share.
    """

    name: ClassVar[str]
    layout: Layout
    extra_bytes: int = 0

    @classmethod
    @abstractmethod
    def suits(
        cls, out_features: int, in_features: int, dtype: torch.dtype, device: torch.device
    ) -> bool:
        """Whether it takes a weight [out, in] of this kind, and is worth it."""

    @abstractmethod
    def __init__(
        self,
        layout: Layout,
        dtype: torch.dtype,
        device: torch.device,
        shared: Tensor | None = None,
    ) -> None:
        """shared: a weight [out, in] that is complete and belongs to another (an embedding table); it is
        read and not changed. Without one there is memory to fill, see `destinations`."""

    @abstractmethod
    def destinations(self, *names: str) -> dict[str, Destination]:
        """Where the checkpoint's tensors of the stacked products `names` go, by their full names, in the
        order of the layout's sizes."""

    @abstractmethod
    def __call__(self, x: Tensor) -> Tensor:
        """x: [rows, in_features]; returns [rows, out_features]. Every destination has been filled."""

    @property
    def plain(self) -> PlainWeight | None:
        """For kernels that multiply by themselves; None if it is stored in another way."""
        return None

    @abstractmethod
    def in_float32(self, x: Tensor) -> Tensor:
        """The product in float32 and, where the scheme can, never rounded to the dtype of x."""


_REGISTRY: dict[str, type[Scheme]] = {}

Kind = TypeVar("Kind", bound=type[Scheme])


def register_scheme(name: str) -> Callable[[Kind], Kind]:
    """Class decorator: a scheme is found under this name."""

    def add(kind: Kind) -> Kind:
        kind.name = name
        _REGISTRY[name] = kind
        return kind

    return add


PREFERRED = ("onednn_packed", "plain")
"""The fastest first; the last one takes any weight."""


def choose_scheme(
    out_features: int, in_features: int, dtype: torch.dtype, device: torch.device
) -> type[Scheme]:
    """The fastest scheme for a weight [out, in] of floating-point numbers."""
    schemes = (_REGISTRY[name] for name in PREFERRED)
    return next(kind for kind in schemes if kind.suits(out_features, in_features, dtype, device))
