"""What is known of a text is a tuple that each call replaces."""

from collections.abc import Sequence
from itertools import takewhile
from operator import eq

from yaie.core.contracts import BlockManager


class DraftPlaces:
    """See `yaie.core.contracts.drafting.DraftPlaces`.

    By text: (how many tokens were found equal, those written since).
    """

    def __init__(self, blocks: BlockManager) -> None:
        self._blocks = blocks
        self._known: dict[str, tuple[int, tuple[int, ...]]] = {}

    def begin(self, key: str, text: Sequence[int], num_drafts: int) -> int | None:
        """Make the table fit; returns how many leading tokens need no computing, or None."""
        size = self._blocks.block_size
        table = tuple(self._blocks.get_physical_blocks(key))
        lacking = (len(text) + num_drafts - 2) // size + 1 - len(table)
        if lacking > self._blocks.num_free:
            return None
        if lacking >= 0:
            self._blocks.allocate(key, lacking)
        else:
            self._cut(key, list(table[:lacking]))
        held, written = self._known.get(key, (0, ()))
        now = text[held : held + len(written)]
        held += sum(takewhile(bool, map(eq, written, now)))
        held = min(held, len(text) - 1)
        self._known[key] = (held, ())
        return held

    def _cut(self, key: str, kept: list[int]) -> None:
        self._blocks.hold(kept)
        try:
            self._blocks.free(key)
            self._blocks.share(key, kept)
        finally:
            self._blocks.release(kept)

    def wrote(self, key: str, tokens: Sequence[int]) -> None:
        """The K and V of the next tokens in line have been written."""
        held, written = self._known[key]
        self._known[key] = (held, (*written, *tokens))

    def table(self, key: str) -> Sequence[int]:
        """The blocks of a text."""
        return self._blocks.get_physical_blocks(key)

    def end(self, key: str) -> None:
        """Forget a text and free its blocks."""
        try:
            del self._known[key]
        except KeyError:
            return
        self._blocks.free(key)
