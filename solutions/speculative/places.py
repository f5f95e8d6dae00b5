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
        # BEGIN SOLUTION 18.5
        size = self._blocks.block_size
        wanted = -(-(len(text) + num_drafts - 1) // size)
        if not self._fit(key, wanted):
            return None
        held = self._num_held.get(key, 0)
        for token in self._written.get(key, ()):
            if held == len(text) or text[held] != token:
                break
            held += 1
        self._num_held[key] = min(held, len(text) - 1)
        self._written[key] = []
        return self._num_held[key]
        # END SOLUTION

    def _fit(self, key: str, wanted: int) -> bool:
        """Make the table so many blocks long, with those that it has in their places; False, and nothing
        changes, if there are too few free ones."""
        # BEGIN SOLUTION 18.5
        table = self._blocks.get_physical_blocks(key)
        if wanted >= len(table):
            if wanted - len(table) > self._blocks.num_free:
                return False
            self._blocks.allocate(key, wanted - len(table))
            return True
        # A block manager frees whole tables: what stays is held meanwhile.
        kept = table[:wanted]
        self._blocks.hold(kept)
        self._blocks.free(key)
        self._blocks.share(key, kept)
        self._blocks.release(kept)
        return True
        # END SOLUTION

    def wrote(self, key: str, tokens: Sequence[int]) -> None:
        """The K and V of the next tokens in line have been written."""
        # BEGIN SOLUTION 18.5
        self._written[key] += tokens
        # END SOLUTION

    def table(self, key: str) -> Sequence[int]:
        """The blocks of a text."""
        return self._blocks.get_physical_blocks(key)

    def end(self, key: str) -> None:
        """Forget a text and free its blocks."""
        # BEGIN SOLUTION 18.5
        if self._num_held.pop(key, None) is not None:
            del self._written[key]
            self._blocks.free(key)
        # END SOLUTION


# ANCHOR_END: places
