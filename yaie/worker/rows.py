"""`Rows`: those that draw in a step, and what they ask for."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from yaie.core.batch import SamplingBatch
from yaie.worker.transfer import on_device

if TYPE_CHECKING:
    from yaie.worker.drafts import DraftRows
    from yaie.worker.rules.base import LogitsRule


@dataclass(slots=True)
class Rows:
    """n rows of logits, drawn for these seats.

    index: the seats on the device, [n] int64. batch: what the sampler gets. rules: those that some row
    asks for, in the order of `RULES`. kept: what a rule has worked out for these rows, by its name.
    drafts: of a step whose seats have some; a seat with k drafts then has k + 1 rows.
    """

    seats: list[int]
    index: Tensor
    batch: SamplingBatch
    rules: "list[LogitsRule]"
    kept: dict[str, Any] = field(default_factory=dict)
    drafts: "DraftRows | None" = None

    @property
    def takes_the_best(self) -> bool:
        """Whether every row draws the token with the highest logit as the model gives it."""
        return self.batch.all_greedy and not self.rules

    @property
    def is_plain(self) -> bool:
        """Whether temperature and seed are all that every row asks for."""
        batch = self.batch
        is_filtered = batch.any_top_k or batch.any_top_p or batch.any_min_p
        return not is_filtered and not self.rules


def joined(
    found: list[tuple[int, NDArray[Any], NDArray[Any]]], device: torch.device
) -> tuple[Tensor, Tensor, Tensor]:
    """(row, tokens, values) of several rows as three flat tensors on the device."""
    rows = np.concatenate([np.full(len(tokens), row) for row, tokens, _ in found])
    tokens = np.concatenate([tokens for _, tokens, _ in found])
    values = np.concatenate([values for _, _, values in found])
    rows_, tokens_, values_ = (on_device(array, device) for array in (rows, tokens, values))
    return rows_, tokens_, values_
