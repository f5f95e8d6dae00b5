"""Lab 19: weights in eight and in four bits, and keys and values in eight."""

from typing import TYPE_CHECKING, Protocol

from .memory import KVPool

if TYPE_CHECKING:
    from torch import Tensor

    from yaie.core.quantized import Int4Weight, Int8Weight


# ANCHOR: int8
class Int8(Protocol):
    """Lab 19. A scale for each output: the rows of a weight [out, in], floating-point of any dtype."""

    def quantize(self, weight: "Tensor", *, symmetric: bool = True) -> "Int8Weight":
        """Round a weight to the nearest code of its row; ties to even.

        symmetric: the scale is the largest |w| / 127, there is no zero, codes are -127 to 127.
        Otherwise codes are -128 to 127: the row's range is extended to include 0 and spread over all
        256: scale = (high - low) / 255, and zero is the code of 0.0, -128 - low / scale, rounded to
        the nearest from -128 to 127. Scales are rounded to float16 before anything is divided by them;
        one that is 0 then becomes 1. Under 6e-5 float16 has few digits left: with the rounded scale the
        largest weight of a row may be more than 127 steps, and its code still ends at 127.
        """
        ...

    def dequantize(self, weight: "Int8Weight") -> "Tensor":
        """What the codes stand for: [out, in] float32."""
        ...

    def product(self, x: "Tensor", weight: "Int8Weight") -> "Tensor":
        """x @ dequantize(weight).T, for x [rows, in]: [rows, out] in the dtype of x.

        Summed in float32. At no time more than 64 outputs of the weight are there in floating point.
        """
        ...


# ANCHOR_END: int8


# ANCHOR: int4
class Int4(Protocol):
    """Lab 19. A scale and a zero for each output of a group of inputs.

    The group size divides `in`, and it and `out` are multiples of 8.
    """

    def grid(self, group: "Tensor", *, symmetric: bool = True) -> "tuple[Tensor, Tensor]":
        """(scales [out] float16, zeros [out] int32) for one group of inputs, weights [out, group_size].

        symmetric: scale = the largest |w| / 7.5, and zero is 8. Otherwise the range of each row is
        extended to include 0 and spread over the codes 0 to 15: scale = (high - low) / 15, and zero is
        the code of 0.0, -low / scale, rounded to the nearest from 0 to 15. Scales are rounded to float16
        first; one that is 0 becomes 1.
        """
        ...

    def codes(self, weight: "Tensor", scales: "Tensor", zeros: "Tensor") -> "Tensor":
        """The nearest codes, 0 to 15, of weights [out, n] on the grid of each output: [out, n] int32."""
        ...

    def pack(self, codes: "Tensor", scales: "Tensor", zeros: "Tensor") -> "Int4Weight":
        """codes [out, in], scales and zeros [groups, out], each zero 0 to 15, as they are stored.

        The tensors of an `Int4Weight` are contiguous: kernels count on it.
        """
        ...

    def unpack(self, weight: "Int4Weight") -> "tuple[Tensor, Tensor]":
        """(codes [out, in] int32, zeros [groups, out] int32), as they went into `pack`."""
        ...

    def quantize(
        self, weight: "Tensor", group_size: int, *, symmetric: bool = True
    ) -> "Int4Weight":
        """Round a weight [out, in] to the nearest codes, group by group.

        Raises ValueError for a group size that does not divide `in`.
        """
        ...

    def dequantize(self, weight: "Int4Weight") -> "Tensor":
        """What the codes stand for: [out, in] float32."""
        ...

    def product(self, x: "Tensor", weight: "Int4Weight") -> "Tensor":
        """x @ dequantize(weight).T, for x [rows, in]: [rows, out] in the dtype of x.

        Summed in float32. At no time more of the weight than one group of inputs is there in floating
        point, or unpacked.
        """
        ...


class FusedInt4(Protocol):
    """Lab 19. `Int4.product` as one kernel in Triton: words are unpacked in registers."""

    def product(self, x: "Tensor", weight: "Int4Weight") -> "Tensor":
        """As `Int4.product`, for a group size that is a multiple of 16. x: [rows, in], float16, bfloat16
        or float32; its rows may have gaps. float32 is multiplied as float32, not as TF32."""
        ...


# ANCHOR_END: int4


# ANCHOR: gptq
class Hessian(Protocol):
    """Lab 19. H = 2 / n * sum of x x^T over n calibration inputs x [in], float32, batch by batch.

    hessian: [in, in], zeros before the first batch. num_inputs: n. A batch is one product: there is no
    loop over its inputs, and their outer products are never there at once.
    """

    @property
    def hessian(self) -> "Tensor": ...

    @property
    def num_inputs(self) -> int: ...

    def add(self, x: "Tensor") -> None:
        """Inputs of the product [..., in], of any dtype. No inputs change nothing."""
        ...


class Gptq(Protocol):
    """Lab 19. Rounds a weight to INT4 so that its product changes little (Frantar et al. 2022)."""

    def factor(self, hessian: "Tensor", damping: float = 0.01) -> "Tensor":
        """The upper triangular U with U^T U = (damped H)^-1: [in, in] float32.

        An input that was 0 throughout calibration is dead: its diagonal entry of H is 0. `damping` times
        the mean diagonal entry of those that are not dead is added to each of theirs; a dead one's
        becomes 1. `hessian` stays as it is.
        """
        ...

    def quantize(
        self,
        weight: "Tensor",
        hessian: "Tensor",
        group_size: int,
        *,
        symmetric: bool = True,
        damping: float = 0.01,
        block: int = 128,
    ) -> "Int4Weight":
        """Round a weight [out, in] input by input; the error of each moves into those that are left.

        Weights of dead inputs become 0. A group's grid is taken when its first input's turn comes, from
        weights that hold all errors so far. Of `block` and `group_size`, one divides the other; the
        result does not depend on `block`: inputs behind a block are corrected once, by one product,
        when it ends. `weight` and `hessian` stay as they are.
        """
        ...


# ANCHOR_END: gptq


# ANCHOR: kv_pool
class Int8KVPool(KVPool, Protocol):
    """Lab 19. A `KVPool` that keeps one byte of each number, and a scale for each token and head.

    blocks(layer): the codes, [num_blocks, block_size, kv_heads, head_dim] int8 for K and for V.
    scales(layer): [num_blocks, block_size, kv_heads] bfloat16 for K and for V.

    `write` rounds each head of each token on its own: scale = the largest |number| / 127, rounded to
    bfloat16 before it is divided by; one that is 0 becomes 1. `gather` gives numbers in the dtype of the
    model. Blocks move with their scales. A slot that was never written gives 0.
    """

    def scales(self, layer: int) -> "tuple[Tensor, Tensor]":
        """Those of a layer's K and of its V, as they lie in memory."""
        ...


# ANCHOR_END: kv_pool
