"""Products that a backend may offer an adapter: of few rows with the operations around them, and on
weights that are stored in few bits."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from yaie.core.quantized import Fp8Weight, Int4Weight, Int8Weight


class PlainWeight(NamedTuple):
    """Of y = x @ weight.T + bias. weight: [out, in], or a packed one that `PackedGemm.fuses`; bias:
    [out] or None."""

    weight: "Any"
    bias: "Tensor | None"


class FusedGemm(Protocol):
    """The field `fused` of a `TransformerOps` that has them. Rows are tokens, of one dtype and device.

    Results are those of the separate operations, rounded where those round, but for the order of sums.
    """

    def takes(self, hidden: "Tensor", product: PlainWeight) -> bool:
        """Whether a step whose residual is `hidden` [T, hidden] is to be computed so. product: one of
        the model's, stored as most are."""
        ...

    def after_norm(self, x: "Tensor", gain: "Tensor", eps: float, product: PlainWeight) -> "Tensor":
        """product(rms_norm(x, gain, eps)). x: [T, in]; returns [T, out]."""
        ...

    def gated(self, x: "Tensor", gain: "Tensor", eps: float, product: PlainWeight) -> "Tensor":
        """silu(g) * u for [g | u] = `after_norm`. Returns [T, out / 2]."""
        ...

    def product(self, x: "Tensor", product: PlainWeight) -> "Tensor":
        """product(x), as `onto` multiplies."""
        ...

    def onto(self, x: "Tensor", product: PlainWeight, residual: "Tensor") -> "Tensor":
        """residual + product(x); may be written over residual [T, out]."""
        ...


class InvariantGemm(FusedGemm, Protocol):
    """Products in which a row comes out the same to the last bit among any number of others."""

    def in_float32(self, x: "Tensor", product: PlainWeight) -> "Tensor":
        """product(x), never rounded: [T, out] float32."""
        ...

    def use_one_tile(self) -> None:
        """From now on compute few rows as many, where the two were found to differ."""
        ...


class BlockGemm(Protocol):
    """Products with weights that stay in the blocks of a GGUF or, on their own, in those of MXFP4.

    kinds: ggml's numbers of the types of blocks that it takes.
    """

    kinds: "frozenset[int]"

    def arranged(self, rows: "Tensor", kind: int, in_features: int) -> "BlockWeight":
        """A weight of one kind in the order in which kernels read it. rows: [out features, bytes of a
        row] uint8, as a file has them; they are needed no longer."""
        ...

    def stacked(self, weights: "Sequence[Any]") -> "BlockWeight":
        """Weights of as many inputs as one, whose outputs lie side by side. They are not copied."""
        ...

    def product(
        self, x: "Tensor", weight: "Any", out: "Tensor", bias: "Tensor | None" = None
    ) -> None:
        """out = x by the weight, plus bias [out features]. x: [rows, in]. weight: what `arranged` or
        `stacked` gave. out: [rows, out features] of the dtype of x, whose columns lie side by side; it
        is filled.

        The blocks' numbers are float32 (with many rows of x, of its dtype where that is multiplied
        faster), and so are sums.
        """
        ...

    def rows(self, weight: "Any", which: "Tensor", out: "Tensor") -> None:
        """The numbers of some rows of a weight that `arranged` gave. which: [n] int64. out: [n, in
        features] float32 or bfloat16, is filled."""
        ...


class BlockWeight(Protocol):
    """A weight in blocks, in some kernel's order."""

    @property
    def nbytes(self) -> int: ...


class PackedGemm(NamedTuple):
    """Lab 19's products: x [rows, in] with a packed weight gives [rows, out] in the dtype of x.

    int8, int4 (for a group size that is a multiple of 8): of what `arranged_int8` and `arranged` make of
    a weight. These are called once for each weight, with the dtype of what it will be multiplied by; the
    order in which kernels read it, most often as it is.
    """

    int8: "Callable[[Tensor, Any], Tensor]"
    int4: "Callable[[Tensor, Any], Tensor]"
    arranged: "Callable[[Int4Weight, torch.dtype], Any]" = lambda weight, dtype: weight
    fp8: "Callable[[Tensor, Fp8Weight], Tensor] | None" = None
    takes_fp8: "Callable[[int, int, torch.dtype], bool]" = lambda outputs, inputs, dtype: False
    fuses: "Callable[[Any], bool]" = lambda weight: False
    arranged_int8: "Callable[[Int8Weight, torch.dtype], Any]" = lambda weight, dtype: weight
