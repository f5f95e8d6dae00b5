"""Weights in floating point: as they are, by `F.linear`, which a GPU needs no help with, or packed for a
CPU.

oneDNN multiplies a few rows by a large matrix up to three times faster when the matrix lies in memory in
the order in which its kernel reads it, so a large weight is packed there once it is complete.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from yaie.core.gemm import PlainWeight
from yaie.models.layout import Destination, Layout
from yaie.models.schemes.base import Scheme, register_scheme

# Below this many elements the call into oneDNN (about 18 us against 3) costs more than it saves.
MIN_PACKED_SIZE = 1 << 17

# oneDNN compiles a kernel (0.6 to 2 ms) for each new number of rows and keeps about a thousand. Above
# this many rows they are rounded up, so that a workload of mixed prompt lengths comes to an end of it.
EXACT_ROWS = 64
ROW_STEP = 16


@register_scheme("onednn_packed")
class PackedScheme(Scheme):
    """See `Scheme`. The plain weight is dropped as soon as it is packed."""

    @classmethod
    def suits(
        cls, out_features: int, in_features: int, dtype: torch.dtype, device: torch.device
    ) -> bool:
        if device.type != "cpu" or out_features * in_features < MIN_PACKED_SIZE:
            return False
        if not torch.backends.mkldnn.is_available():
            return False
        if dtype == torch.bfloat16:
            return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
        return dtype == torch.float32

    def __init__(
        self,
        layout: Layout,
        dtype: torch.dtype,
        device: torch.device,
        shared: Tensor | None = None,
    ) -> None:
        self.layout = layout
        self._unfilled = len(layout.sizes)
        if shared is None:
            self._weight, self._bias = layout.empty(dtype, device)
        else:
            self._weight, self._bias = shared, None
            self.extra_bytes = shared.nbytes
            self._pack()

    def destinations(self, *names: str) -> dict[str, Destination]:
        return self.layout.destinations(names, self._weight, self._bias, self._part_filled)

    def _part_filled(self) -> None:
        self._unfilled -= 1
        if self._unfilled == 0:
            self._pack()

    def _pack(self) -> None:
        with torch.inference_mode():
            self._weight = torch.ops.mkldnn._reorder_linear_weight(self._weight, None)

    def __call__(self, x: Tensor) -> Tensor:
        rows = x.shape[0]
        padding = -rows % ROW_STEP if rows > EXACT_ROWS else 0
        if padding:
            x = F.pad(x, (0, 0, 0, padding))
        y: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._weight, self._bias, "none", [], "")
        return y[:rows] if padding else y

    def in_float32(self, x: Tensor) -> Tensor:
        return self(x).float()


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
