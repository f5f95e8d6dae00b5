"""Each input fetches the errors that it owes; the factor takes one Cholesky, of H turned around."""

import torch
from torch import Tensor

from yaie.core.contracts import quantizing as contracts
from yaie.core.quantized import Int4Weight


class Hessian:
    """Sums in float64; the mean is taken when it is asked for."""

    def __init__(self, in_features: int, device: torch.device | None = None) -> None:
        self._sum = torch.zeros(in_features, in_features, dtype=torch.float64, device=device)
        self.num_inputs = 0

    @property
    def hessian(self) -> Tensor:
        return (2 * self._sum / max(1, self.num_inputs)).float()

    def add(self, x: Tensor) -> None:
        inputs = x.double().flatten(0, -2)
        self._sum += inputs.t() @ inputs
        self.num_inputs += len(inputs)


class Gptq:
    def __init__(self, int4: contracts.Int4) -> None:
        self._int4 = int4

    def factor(self, hessian: Tensor, damping: float = 0.01) -> Tensor:
        damped = hessian.double().clone()
        diagonal = damped.diagonal()
        dead = diagonal == 0
        if not bool(dead.all()):
            diagonal[~dead] += damping * diagonal[~dead].mean()
        diagonal[dead] = 1
        # flip(H) = L L^T, so H = R R^T with R = flip(L) upper, and U = R^-1.
        upper = torch.linalg.cholesky(damped.flip(0, 1)).flip(0, 1)
        eye = torch.eye(len(upper), dtype=torch.float64, device=upper.device)
        return torch.linalg.solve_triangular(upper, eye, upper=True).float()

    def quantize(
        self, weight: Tensor, hessian: Tensor, group_size: int, *, symmetric: bool = True,
        damping: float = 0.01, block: int = 128,
    ) -> Int4Weight:  # fmt: skip
        upper = self.factor(hessian, damping)
        left = torch.where(hessian.diagonal() == 0, 0.0, weight.float())
        errors, codes = torch.zeros_like(left), torch.zeros_like(left, dtype=torch.int32)
        scales, zeros = [], []
        for begin in range(0, left.shape[1], block):
            end = min(begin + block, left.shape[1])
            left[:, begin:end] -= errors[:, :begin] @ upper[:begin, begin:end]
            for i in range(begin, end):
                if i % group_size == 0:
                    # A group is as long as its block or shorter; else its first block has all errors.
                    group = left[:, i : i + group_size].clone()
                    if i + group_size > end:
                        later = slice(end, i + group_size)
                        group[:, end - i :] -= errors[:, :begin] @ upper[:begin, later]
                    else:
                        group -= errors[:, begin:i] @ upper[begin:i, i : i + group_size]
                    scale, zero = self._int4.grid(group, symmetric=symmetric)
                    scales.append(scale)
                    zeros.append(zero)
                now = left[:, i] - errors[:, begin:i] @ upper[begin:i, i]
                codes[:, i] = self._int4.codes(now[:, None], scales[-1], zeros[-1])[:, 0]
                back = (codes[:, i] - zeros[-1]) * scales[-1].float()
                errors[:, i] = (now - back) / upper[i, i]
        return self._int4.pack(codes, torch.stack(scales), torch.stack(zeros))
