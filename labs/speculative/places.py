# Lab 18, your part: task 18.5. The rest is given.
"""A draft model's place in each text, in a paged cache of its own."""

from collections.abc import Sequence

from yaie.core.contracts import BlockManager


# ANCHOR: places
class DraftPlaces:
    """See `yaie.core.contracts.drafting.DraftPlaces`.

    For each text the tokens written since it was last compared are kept. Before them are `_num_held`
    tokens that were found equal to the text.

        | equal to the text, as was seen before | written since: maybe equal |
        0                        _num_held[key]      + len(_written[key])
    """

    def __init__(self, blocks: BlockManager) -> None:
        self._blocks = blocks
        self._num_held: dict[str, int] = {}
        self._written: dict[str, list[int]] = {}

    def begin(self, key: str, text: Sequence[int], num_drafts: int) -> int | None:
        """Make the table fit; returns how many leading tokens need no computing, or None."""
        # TODO 18.5: your code here (the reference: 12 lines).
        raise NotImplementedError(
            "speculative task 18.5: not implemented yet; see chapter Speculative decoding"
        )

    def _fit(self, key: str, wanted: int) -> bool:
        """Make the table so many blocks long, with those that it has in their places; False, and nothing
        changes, if there are too few free ones."""
        # TODO 18.5: your code here (the reference: 12 lines).
        raise NotImplementedError(
            "speculative task 18.5: not implemented yet; see chapter Speculative decoding"
        )

    def wrote(self, key: str, tokens: Sequence[int]) -> None:
        """The K and V of the next tokens in line have been written."""
        # TODO 18.5: your code here (the reference: 1 line).
        raise NotImplementedError(
            "speculative task 18.5: not implemented yet; see chapter Speculative decoding"
        )

    def table(self, key: str) -> Sequence[int]:
        """The blocks of a text."""
        return self._blocks.get_physical_blocks(key)

    def end(self, key: str) -> None:
        """Forget a text and free its blocks."""
        # TODO 18.5: your code here (the reference: 3 lines).
        raise NotImplementedError(
            "speculative task 18.5: not implemented yet; see chapter Speculative decoding"
        )


# ANCHOR_END: places
