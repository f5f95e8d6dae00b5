"""`Linear`: the one matrix product of every hand-written adapter, and `Slot`: where a weight goes.

On a CPU, oneDNN multiplies a few rows by a large matrix up to three times faster when the matrix lies
in memory in the order in which its kernel reads it, so a weight is packed once it is complete. On a
GPU, and where packing does not help, it is `F.linear`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

# Below this many elements the call into oneDNN (about 18 us against 3) costs more than it saves.
MIN_PACKED_SIZE = 1 << 17

# oneDNN compiles a kernel (0.6 to 2 ms) for each new number of rows and keeps about a thousand. Above
# this many rows they are rounded up, so that a workload of mixed prompt lengths comes to an end of it.
EXACT_ROWS = 64
ROW_STEP = 16


@dataclass(slots=True)
class Slot:
    """Where one tensor of a checkpoint goes: a view of a weight, filled in place.

    transpose: the checkpoint has it as [in, out] (GPT-2's Conv1D), the target is [out, in].
    filled: called afterwards.
    """

    target: Tensor
    transpose: bool = False
    filled: Callable[[], None] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape that the checkpoint's tensor must have."""
        shape = tuple(self.target.shape)
        return shape[::-1] if self.transpose else shape

    def fill(self, tensor: Tensor) -> None:
        """Copy `tensor` in, converting dtype and device. Raises ValueError on another shape."""
        if tuple(tensor.shape) != self.shape:
            raise ValueError(f"has shape {list(tensor.shape)} instead of {list(self.shape)}")
        self.target.copy_(tensor.t() if self.transpose else tensor)
        if self.filled is not None:
            self.filled()


class Linear:
    """y = x @ weight.T + bias.

    The weight [sum(sizes), in_features] stacks one checkpoint tensor for each entry of `sizes` (query,
    key and value; gate and up), so that one product computes them all.
    """

    def __init__(
        self,
        in_features: int,
        sizes: int | Sequence[int],
        dtype: torch.dtype,
        device: torch.device,
        *,
        bias: bool = False,
        transpose: bool = False,
    ) -> None:
        self.sizes = [sizes] if isinstance(sizes, int) else list(sizes)
        rows = sum(self.sizes)
        self.weight = torch.empty(rows, in_features, dtype=dtype, device=device)
        self.bias = torch.empty(rows, dtype=dtype, device=device) if bias else None
        self._transpose = transpose
        self._unfilled = len(self.sizes)
        self._packed: Tensor | None = None

    def slots(self, *names: str) -> dict[str, Slot]:
        """The slots `name.weight` (and `name.bias`) of the stacked tensors, in the order of `sizes`."""
        slots = {}
        parts = self.weight.split(self.sizes)
        for name, part in zip(names, parts, strict=True):
            slots[f"{name}.weight"] = Slot(part, self._transpose, self._part_filled)
        if self.bias is not None:
            for name, bias in zip(names, self.bias.split(self.sizes), strict=True):
                slots[f"{name}.bias"] = Slot(bias)
        return slots

    def _part_filled(self) -> None:
        self._unfilled -= 1
        if self._unfilled == 0:
            self.pack()

    def pack(self) -> None:
        """Reorder the weight for oneDNN where that helps. The plain weight is dropped."""
        if not can_pack(self.weight):
            return
        with torch.inference_mode():
            self._packed = torch.ops.mkldnn._reorder_linear_weight(self.weight, None)
        self.weight = self.weight.new_empty(0)

    @property
    def is_packed(self) -> bool:
        return self._packed is not None

    def __call__(self, x: Tensor) -> Tensor:
        """x: [rows, in_features]; returns [rows, out_features]."""
        if self._packed is None:
            return F.linear(x, self.weight, self.bias)
        rows = x.shape[0]
        padding = -rows % ROW_STEP if rows > EXACT_ROWS else 0
        if padding:
            x = F.pad(x, (0, 0, 0, padding))
        y = torch.ops.mkldnn._linear_pointwise(x, self._packed, self.bias, "none", [], "")
        return y[:rows] if padding else y


def tied_linear(table: Tensor) -> Linear:
    """The output head that shares the embedding table [vocab, hidden].

    If it is packed (`is_packed`) that is a second copy of the table; looking up needs the plain one.
    """
    head = Linear(table.shape[1], 0, table.dtype, table.device)
    head.weight = table
    head.pack()
    return head


def can_pack(weight: Tensor) -> bool:
    """Whether oneDNN takes this weight and is faster with it."""
    if weight.device.type != "cpu" or weight.numel() < MIN_PACKED_SIZE:
        return False
    if not torch.backends.mkldnn.is_available():
        return False
    if weight.dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return weight.dtype == torch.float32
