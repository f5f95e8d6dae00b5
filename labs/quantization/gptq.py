# Lab 19, your part (edition 2): tasks 19.4, 19.5. The rest is given.
"""GPTQ (Frantar et al. 2022): each input's rounding error moves into the inputs that are still to come.

GPTQ keeps the error of the product small, not that of the weights: E[((w - q) x)^2], which is
(w - q) H (w - q)^T / 2 for H = 2 E[x x^T]. `solutions/quantization/naive.py` does it as the paper
derives it, one input at a time, inverting again what is left of the matrix: the oracle.
"""

import torch
from torch import Tensor

from yaie.core.contracts import quantizing as contracts
from yaie.core.quantized import Int4Weight


# ANCHOR: hessian
class Hessian:
    """See `yaie.core.contracts.quantizing.Hessian`."""

    def __init__(self, in_features: int, device: torch.device | None = None) -> None:
        self.hessian = torch.zeros(in_features, in_features, device=device)
        self.num_inputs = 0

    def add(self, x: Tensor) -> None:
        """Inputs of the product [..., in]. The mean of all so far moves by what is new."""
        inputs = x.reshape(-1, x.shape[-1]).float()
        if not len(inputs):
            return
        # TODO 19.4: your code here (the reference: 4 lines).
        raise NotImplementedError(
            "quantization task 19.4: not implemented yet; see chapter Quantization"
        )


# ANCHOR_END: hessian


class Gptq:
    """See `yaie.core.contracts.quantizing.Gptq`. int4: the grid, the codes, and how they are packed."""

    def __init__(self, int4: contracts.Int4) -> None:
        self._int4 = int4

    # ANCHOR: factor
    def factor(self, hessian: Tensor, damping: float = 0.01) -> Tensor:
        """The upper triangular U with U^T U = (damped H)^-1.

        Row i of U is what the algorithm needs at input i: the first row of the inverse Hessian of the
        inputs that are left then, over the root of its first entry.
        """
        # TODO 19.4: your code here (the reference: 7 lines).
        raise NotImplementedError(
            "quantization task 19.4: not implemented yet; see chapter Quantization"
        )

    # ANCHOR_END: factor

    # ANCHOR: gptq
    def quantize(
        self,
        weight: Tensor,
        hessian: Tensor,
        group_size: int,
        *,
        symmetric: bool = True,
        damping: float = 0.01,
        block: int = 128,
    ) -> Int4Weight:
        """Round a weight [out, in] block by block of inputs."""
        left = weight.float().clone()
        codes = torch.empty_like(left, dtype=torch.int32)
        grids: list[tuple[Tensor, Tensor]] = []
        upper = self.factor(hessian, damping)
        # TODO 19.5: your code here (the reference: 5 lines).
        raise NotImplementedError(
            "quantization task 19.5: not implemented yet; see chapter Quantization"
        )
        scales, zeros = (torch.stack(part) for part in zip(*grids, strict=True))
        return self._int4.pack(codes, scales, zeros)

    def _block(
        self,
        left: Tensor,
        codes: Tensor,
        grids: list[tuple[Tensor, Tensor]],
        upper: Tensor,
        begin: int,
        end: int,
        group_size: int,
        symmetric: bool,
    ) -> Tensor:
        """Round inputs `begin` to `end`, correcting the rest of the block at each.

        left: the weights [out, in] with all errors so far. codes: filled. grids: (scales, zeros) of each
        group that has begun. Returns the errors [out, end - begin], each over U's diagonal entry.
        """
        # TODO 19.5: your code here (the reference: 13 lines).
        raise NotImplementedError(
            "quantization task 19.5: not implemented yet; see chapter Quantization"
        )

    # ANCHOR_END: gptq
