"""`DraftWorker`: a small model on the device, beside the one that it guesses at."""

import numpy as np
import torch
from torch import Tensor

from yaie.core.batch import AttentionBatch
from yaie.core.contracts import BatchAttention, KVPool
from yaie.core.step import DraftStep
from yaie.models.adapter import ModelAdapter
from yaie.worker.layout import attend_through, layout
from yaie.worker.rolling import columns, falling
from yaie.worker.transfer import on_device


class DraftWorker:
    """Carries out draft steps. It knows no requests: what it keeps is the pool."""

    def __init__(
        self,
        adapter: ModelAdapter,
        attention: BatchAttention,
        pool: KVPool,
        device: torch.device,
    ) -> None:
        self._adapter = adapter
        self._attention = attention
        self._pool = pool
        self._device = device

    @torch.inference_mode()
    def draft(self, step: DraftStep) -> list[list[int]]:
        """The drafts of each row of a step, the most likely token each time.

        One forward pass computes what all rows lack and yields their first drafts; each further one
        yields another draft of those that want one.
        """
        tables = on_device(step.tables, self._device)
        batch, _ = layout(self._pool, tables, step.starts, step.num_tokens)
        hidden = self._forward(on_device(step.tokens.astype(np.int64), self._device), batch)
        order = falling(step.num_drafts)
        found: list[list[int]] = [[] for _ in step.num_drafts]
        if not order:
            return found
        ends = np.cumsum(step.num_tokens) - 1
        if len(order) < len(hidden) or order != sorted(order):
            hidden = hidden[on_device(ends[order].astype(np.int64), self._device)]
            tables = tables[on_device(np.array(order, np.int64), self._device)]
        drawn = [self._first_choice(hidden)]
        behind = (step.starts + step.num_tokens)[order].astype(np.int32)
        one = np.ones(len(order), np.int32)
        for turn in range(1, int(step.num_drafts.max())):
            count = int((step.num_drafts > turn).sum())
            at = behind[:count] + turn - 1
            batch, _ = layout(self._pool, tables[:count], at, one[:count])
            drawn.append(self._first_choice(self._forward(drawn[-1][:count], batch)))
        for row, drafts in zip(order, columns(drawn), strict=True):
            found[row] = drafts
        return found

    def _forward(self, tokens: Tensor, batch: AttentionBatch) -> Tensor:
        attend = attend_through(self._attention, self._attention.plan(batch))
        return self._adapter.forward(tokens, batch.positions, attend)

    def _first_choice(self, hidden: Tensor) -> Tensor:
        return self._adapter.logits(hidden).argmax(dim=1)
