"""Text out of tokens, as they come."""

from collections.abc import Callable

INCOMPLETE = "\N{REPLACEMENT CHARACTER}"


class Detokenizer:
    """See `yaie.core.contracts.Detokenizer`.

    A token's text depends on its neighbours: a character may span three tokens, and some tokenizers
    drop the space before the first. So a window of the last tokens is decoded with the new one, and
    what the window had before is cut off (the scheme of TGI and vLLM). O(1) a token.

        | shown, out of the window | shown, decoded again for context | not shown yet |
        0                       _start                             _shown        len(_ids)
    """

    def __init__(self, decode: Callable[[list[int]], str]) -> None:
        """decode: text of a list of tokens, special tokens left out."""
        self._decode = decode
        self._ids: list[int] = []
        self._start = 0
        self._shown = 0
        self._shown_text = ""

    # ANCHOR: push
    def push(self, token_id: int) -> str:
        """The text that this token makes final; "" while a character is incomplete."""
        # BEGIN SOLUTION 7.1
        self._ids.append(token_id)
        text = self._decode(self._ids[self._start :])
        if text.endswith(INCOMPLETE):
            return ""
        new = text[len(self._shown_text) :]
        self._start, self._shown = self._shown, len(self._ids)
        self._shown_text = self._decode(self._ids[self._start :])
        return new
        # END SOLUTION

    def flush(self) -> str:
        """The end of the text, with a replacement character where one stayed incomplete."""
        # BEGIN SOLUTION 7.1
        text = self._decode(self._ids[self._start :])
        new = text[len(self._shown_text) :]
        self._start = self._shown = len(self._ids)
        self._shown_text = ""
        return new
        # END SOLUTION

    # ANCHOR_END: push
