"""Experts (Shazeer et al. 2017, section 2): of many feed-forward parts of a layer, a token takes a few.

A router scores the experts for each token. The best ones compute it, and the sum of what they give is
weighted by the scores. The tokens of a step want different experts, so its rows are sorted by expert:
then the rows of one expert lie side by side, and each expert that has some needs one product.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from yaie.models.layout import Cut, Destination

ALIGNED = 16
"""Bytes: where PyTorch's grouped product on a GPU may find a row of a weight begin."""


class Choice(NamedTuple):
    """Of each token: its experts [T, k] int64, and the weight of what each of them gives [T, k]."""

    experts: Tensor
    shares: Tensor


@dataclass(frozen=True, slots=True)
class Groups:
    """Rows sorted by expert. experts: [n] int64, of each row. ends: [experts] int32, where each one's
    rows end."""

    experts: Tensor
    ends: Tensor

    def spans(self) -> Iterator[tuple[int, slice]]:
        """Each expert that has rows, and which they are. The host waits for a GPU here."""
        start = 0
        for expert, end in enumerate(self.ends.tolist()):
            if end > start:
                yield expert, slice(start, end)
            start = end


def best_of(scores: Tensor, count: int) -> Choice:
    """The best experts by scores [T, experts]; their shares are a softmax over the chosen ones."""
    best, experts = scores.topk(count, dim=-1)
    return Choice(experts, best.softmax(dim=-1))


# ANCHOR: mixed
def mixed(
    x: Tensor, choice: Choice, num_experts: int, compute: Callable[[Tensor, Groups], Tensor]
) -> Tensor:
    """What the chosen experts make of x [T, hidden]: their weighted sum [T, hidden].

    compute: from rows sorted by expert [T * k, hidden] to each one's result.
    """
    count = choice.experts.shape[1]
    experts, order = choice.experts.flatten().sort(stable=True)
    numbers = torch.arange(num_experts, device=x.device)
    ends = torch.searchsorted(experts, numbers, right=True, out_int32=True)
    sorted_results = compute(x[order // count], Groups(experts, ends))
    results = torch.empty_like(sorted_results)
    results[order] = sorted_results
    weighted = results.view(len(x), count, -1) * choice.shares[..., None]
    return weighted.sum(dim=1).to(x.dtype)


# ANCHOR_END: mixed


class ExpertProducts(ABC):
    """A product y = x @ weight + bias for each of a layer's experts.

    bias: [experts, out], or None. adds: whether it is added: of ranks whose results are summed, by one.
    """

    adds: bool = True

    def __init__(self, bias: Tensor | None, outputs: Cut | None = None) -> None:
        """outputs: which of the checkpoint's are here; all of them if None."""
        self.bias = bias
        self._outputs_held = outputs

    @abstractmethod
    def destinations(self, name: str) -> dict[str, Destination]:
        """Where the tensors go that a checkpoint calls `name` and so on."""

    def of_bias(self, name: str) -> dict[str, Destination]:
        """The place of the bias of `name`, if there is one."""
        if self.bias is None:
            return {}
        return {f"{name}_bias": Destination(self.bias, cuts=(None, self._outputs_held))}

    @abstractmethod
    def multiply(self, x: Tensor, groups: Groups) -> Tensor:
        """Without the bias: [n, in] to [n, out]."""

    def __call__(self, x: Tensor, groups: Groups) -> Tensor:
        """x: [n, in], rows sorted by expert; returns [n, out]."""
        y = self.multiply(x, groups)
        return y.add_(self.bias[groups.experts]) if self.adds and self.bias is not None else y


class PlainExperts(ExpertProducts):
    """Weights of the model's dtype, as transformers keeps them: [experts, in, out], or with `turned`
    [experts, out, in]."""

    def __init__(
        self,
        weight: Tensor,
        bias: Tensor | None = None,
        *,
        turned: bool = False,
        inputs: Cut | None = None,
        outputs: Cut | None = None,
    ) -> None:
        """inputs, outputs: which of the checkpoint's are here; all of them if None."""
        super().__init__(bias, outputs)
        self._cuts = (None, outputs, inputs) if turned else (None, inputs, outputs)
        self._stored = weight
        self._weight = weight.mT if turned else weight
        widths = weight.shape[1:]
        self._is_aligned = all(width * weight.itemsize % ALIGNED == 0 for width in widths)

    def destinations(self, name: str) -> dict[str, Destination]:
        return {name: Destination(self._stored, cuts=self._cuts), **self.of_bias(name)}

    def multiply(self, x: Tensor, groups: Groups) -> Tensor:
        if x.is_cuda and self._is_aligned:
            return F.grouped_mm(x, self._weight, offs=groups.ends)
        y = x.new_empty(len(x), self._weight.shape[2])
        for expert, rows in groups.spans():
            torch.mm(x[rows], self._weight[expert], out=y[rows])
        return y
