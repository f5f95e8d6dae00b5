"""From logits to tokens: what surrounds the sampler, in the order that `sampling` describes."""

from torch import Tensor

from yaie.core.contracts import Sampler
from yaie.core.step import StepMasks
from yaie.worker.sampling import Rows, apply_biases, apply_masks, hold_tokens


def draw(logits: Tensor, rows: Rows, masks: StepMasks | None, sampler: Sampler) -> Tensor:
    """One token for each row of `logits` [n, vocab] float32, which are overwritten: [n] int64.

    Raises ValueError for a sampler that returns another shape.
    """
    apply_biases(logits, rows)
    hold_tokens(logits, rows)
    if masks is not None:
        apply_masks(logits, rows, masks)
    drawn = sampler.sample(logits, rows.batch)
    if drawn.shape != rows.index.shape:
        shapes = f"{list(drawn.shape)}, not {list(rows.index.shape)}"
        raise ValueError(
            f"the sampler must return one token id for each row: its shape is {shapes}"
        )
    return drawn
