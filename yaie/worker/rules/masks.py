"""What grammars allow: it comes with the step (`StepMasks`), once the token before is known."""

import numpy as np
import torch
from torch import Tensor

from yaie.core.step import StepMasks
from yaie.worker.rows import Rows
from yaie.worker.transfer import on_device

NEG_INF = float("-inf")


def apply_masks(logits: Tensor, rows: Rows, masks: StepMasks) -> None:
    """Give `logits` [n, vocab] -inf, in place, where a grammar forbids a token. `masks` has the
    constrained ones of the rows' seats, in their order."""
    constrained = np.flatnonzero(np.isin(rows.seats, masks.seats))
    seats = np.array(rows.seats)[constrained]
    assert np.array_equal(masks.seats, seats), f"masks for {masks.seats.tolist()}, not {seats}"
    if not len(seats):  # their prompts were shed
        return
    bits = np.unpackbits(masks.bits, axis=1, count=logits.shape[1], bitorder="little")
    allowed = on_device(bits, logits.device).bool()
    # Added, not filled in: a row with NaN must stay one.
    forbidden = torch.zeros(allowed.shape, device=logits.device).masked_fill_(~allowed, NEG_INF)
    logits.index_add_(0, on_device(constrained, logits.device), forbidden)
