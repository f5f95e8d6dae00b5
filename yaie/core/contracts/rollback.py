"""Drafts that were wrong, in layers that keep a state: what is known of a step, and the way back."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor


# ANCHOR: rollback
@dataclass(slots=True)
class Verified:
    """Of n sequences of a step, once it is known which of its tokens count: arrays [n] on the host.

    lens: int64, how many rows each has in what was kept, one sequence after the other. Rows after the
        last one's are padding.
    num_drafts: int64, how many of its tokens, the last ones, are drafts. If none is, the step itself has
        moved its state on.
    num_gained: int64, how many tokens it has got: the accepted drafts, and one more, which has not been
        computed yet. 0 if the step has failed for it.
    slots, is_fresh: int64 and bool, as in StateBatch.
    """

    lens: "NDArray[np.int64]"
    num_drafts: "NDArray[np.int64]"
    num_gained: "NDArray[np.int64]"
    slots: "NDArray[np.int64]"
    is_fresh: "NDArray[np.bool_]"


class Kept(NamedTuple):
    """Of one tensor of states: what the tokens of a step bring into it, and what computes with that.

    tokens: tensors with a row for each token. compute: called as `compute(*rows, batch)`, it moves the
    states in the slots of a StateBatch on by such rows.
    """

    compute: "Callable[..., Tensor]"
    tokens: "Sequence[Tensor]"


class Rollback(Protocol):
    """Lab 22. `run_ahead` and `settle`: the states of sequences with drafts move on when it is known
    which tokens count."""

    def run_ahead(
        self, compute: "Callable[[], Tensor]", pool: "Tensor", slots: "Tensor", back: "Tensor"
    ) -> "Tensor":
        """Call compute, once, which moves states of the pool on; return what it returns. Afterwards slot
        back[i] holds what slot slots[i] held before the call, to the bit.

        pool: [num_slots, ...]. slots, back: [m] int64. back[i] is slots[i] for a sequence with drafts.
        For another one it is the slot of padding, which may be there more than once: what that holds
        does not matter. What other slots hold is neither copied nor written. Nothing is read back from
        the device, and the number of operations does not depend on m.
        """
        ...

    def settle(
        self,
        kept: "Sequence[Kept]",
        verified: Verified,
        upload: "Callable[[NDArray[Any]], Tensor]",
    ) -> None:
        """Move the states of sequences with drafts on, by their tokens that count: those before the
        drafts, and the accepted drafts. A sequence that has gained nothing stays where it is.

        Each `compute` of kept is called once, with the rows of these tokens and a StateBatch of these
        sequences, whose `lens` say how many rows each has; not at all if there are none. No other slot
        is in the batch. upload: copies an array to the device. How many uploads and operations there
        are depends on kept alone, and nothing is read back. What is kept stays as it is, since a
        recorded step fills the same tensors again; no reference to it is held.
        """
        ...


# ANCHOR_END: rollback
