"""Weights as they are: `F.linear`, which a GPU needs no help with."""

import torch
import torch.nn.functional as F
from torch import Tensor

from yaie.core.gemm import PlainWeight
from yaie.models.layout import Destination, Layout
from yaie.models.schemes.base import Scheme, register_scheme


@register_scheme("plain")
class PlainScheme(Scheme):
    """See `Scheme`. It takes any weight."""

    @classmethod
    def suits(
        cls, out_features: int, in_features: int, dtype: torch.dtype, device: torch.device
    ) -> bool:
        return True

    def __init__(
        self,
        layout: Layout,
        dtype: torch.dtype,
        device: torch.device,
        shared: Tensor | None = None,
    ) -> None:
        self.layout = layout
        if shared is None:
            self._weight, self._bias = layout.empty(dtype, device)
        else:
            self._weight, self._bias = shared, None

    def destinations(self, *names: str) -> dict[str, Destination]:
        return self.layout.destinations(names, self._weight, self._bias)

    @property
    def plain(self) -> PlainWeight:
        return PlainWeight(self._weight, self._bias)

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self._weight, self._bias)

    def in_float32(self, x: Tensor) -> Tensor:
        if not x.is_cuda or x.dtype == torch.float32:
            return self(x).float()
        # The product is summed in float32: written as it is, no second kernel has to widen it.
        y = torch.mm(x, self._weight.t(), out_dtype=torch.float32)
        return y if self._bias is None else y + self._bias
