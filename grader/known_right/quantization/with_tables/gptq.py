"""The sum of outer products grows in place and is divided when it is asked for; the loop takes the
columns of a block into a tensor of its own."""

import torch
from torch import Tensor

from yaie.core.contracts import quantizing as contracts
from yaie.core.quantized import Int4Weight


class Hessian:
    def __init__(self, in_features: int, device: torch.device | None = None) -> None:
        self._sum = torch.zeros(in_features, in_features, dtype=torch.float64, device=device)
        self._mean: Tensor | None = None
        self.num_inputs = 0

    @property
    def hessian(self) -> Tensor:
        if self._mean is None:
            self._mean = (self._sum * (2 / max(self.num_inputs, 1))).float()
        return self._mean

    def add(self, x: Tensor) -> None:
        for one in x.reshape(-1, x.shape[-1]).double().split(64):
            self._sum.addmm_(one.t(), one)
            self.num_inputs += len(one)
        self._mean = None


class Gptq:
    def __init__(self, int4: contracts.Int4) -> None:
        self._int4 = int4

    def factor(self, hessian: Tensor, damping: float = 0.01) -> Tensor:
        wide = hessian.double()
        live = wide.diagonal() > 0
        added = torch.ones(len(wide), dtype=torch.float64, device=wide.device)
        if live.any():
            added[live] = damping * wide.diagonal()[live].mean()
        inverse = torch.linalg.inv(wide + added.diag())
        return torch.linalg.cholesky((inverse + inverse.t()) / 2).t().contiguous().float()

    def quantize(
        self, weight: Tensor, hessian: Tensor, group_size: int, *, symmetric: bool = True,
        damping: float = 0.01, block: int = 128,
    ) -> Int4Weight:  # fmt: skip
        upper = self.factor(hessian, damping)
        live = (hessian.diagonal() != 0).float()
        left = weight.float() * live
        codes: list[Tensor] = []
        scales: list[Tensor] = []
        zeros: list[Tensor] = []
        for begin in range(0, left.shape[1], block):
            end = min(begin + block, left.shape[1])
            errors: list[Tensor] = []
            for i in range(begin, end):
                if i % group_size == 0:
                    scale, zero = self._int4.grid(left[:, i : i + group_size], symmetric=symmetric)
                    scales.append(scale)
                    zeros.append(zero)
                code = self._int4.codes(left[:, i : i + 1], scales[-1], zeros[-1])[:, 0]
                codes.append(code)
                error = left[:, i] - (code - zeros[-1]) * scales[-1].float()
                errors.append(error / upper[i, i])
                left[:, i + 1 : end] -= torch.outer(errors[-1], upper[i, i + 1 : end])
            if end < left.shape[1]:
                left[:, end:] -= torch.stack(errors, dim=1) @ upper[begin:end, end:]
        return self._int4.pack(torch.stack(codes, dim=1), torch.stack(scales), torch.stack(zeros))
