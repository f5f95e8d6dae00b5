"""Weights lie input by input; the triangle is a triangular solve in float64, of H turned round."""

import torch
from torch import Tensor

from yaie.core.contracts import quantizing as contracts
from yaie.core.quantized import Int4Weight


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
        self.num_inputs += len(inputs)
        new = inputs.t().mm(inputs).mul_(2 / len(inputs))
        self.hessian.lerp_(new, len(inputs) / self.num_inputs)


class Gptq:
    """See `yaie.core.contracts.quantizing.Gptq`. int4: the grid, the codes, and how they are packed."""

    def __init__(self, int4: contracts.Int4) -> None:
        self._int4 = int4

    def factor(self, hessian: Tensor, damping: float = 0.01) -> Tensor:
        """The upper triangular U with U^T U = (damped H)^-1.

        Row i of U is what the algorithm needs at input i: the first row of the inverse Hessian of the
        inputs that are left then, over the root of its first entry.
        """
        diagonal = hessian.diagonal()
        live = diagonal > 0
        added = damping * diagonal[live].mean() if bool(live.any()) else 0.0
        damped = hessian.double() + torch.diag(torch.where(live, added, 1.0).double())
        # H = V V^T with V upper, by a Cholesky of H with its rows and columns in reverse: U = V^-1.
        turned = torch.linalg.cholesky(damped.flip(0, 1)).flip(0, 1)
        unit = torch.eye(len(turned), dtype=torch.float64, device=turned.device)
        upper: Tensor = torch.linalg.solve_triangular(turned, unit, upper=True)
        return upper.float()

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
        upper = self.factor(hessian, damping)
        left = weight.t().float().contiguous()  # [in, out]
        if left.data_ptr() == weight.data_ptr():
            left = left.clone()
        left[hessian.diagonal() == 0] = 0
        codes: list[Tensor] = []
        grids: list[tuple[Tensor, Tensor]] = []
        for begin in range(0, len(left), block):
            mine, triangle = left[begin : begin + block], upper[begin : begin + block]
            errors = torch.zeros_like(mine)
            for at in range(len(mine)):
                if (begin + at) % group_size == 0:
                    group = left[begin + at : begin + at + group_size]
                    if block < group_size:
                        group = group.clone()
                    grids.append(self._int4.grid(group.t(), symmetric=symmetric))
                scales, zeros = grids[-1]
                codes.append(self._int4.codes(mine[at][:, None], scales, zeros)[:, 0])
                rounded = (codes[-1] - zeros) * scales.float()
                errors[at] = (mine[at] - rounded) / triangle[at, begin + at]
                after = triangle[at, begin + at + 1 : begin + len(mine)]
                mine[at + 1 :] -= torch.outer(after, errors[at])
            left[begin + block :] -= triangle[:, begin + block :].t() @ errors
        scales, zeros = (torch.stack(part) for part in zip(*grids, strict=True))
        return self._int4.pack(torch.stack(codes, dim=1), scales, zeros)
