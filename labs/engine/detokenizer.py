# Lab 7, your part: task 7.1. The rest is given.
"""Text out of tokens, as they come."""

from collections.abc import Callable

INCOMPLETE = "\N{REPLACEMENT CHARACTER}"
LONGEST_CHARACTER = 4  # bytes in UTF-8, each of which may be a token
LONGEST_WINDOW = 16  # tokens; more than this without a whole character at the end is no text
SHORTEST_WINDOW = 12  # tokens: three undecided characters of up to four tokens each


class Detokenizer:
    """See `yaie.core.contracts.Detokenizer`.

    A token's text depends on its neighbours: a character may span four tokens, and some tokenizers
    drop the space before the first. So a window of the last tokens is decoded with the new one, and
    what was shown of it before is cut off (the scheme of TGI and vLLM). O(1) a token.

    SentencePiece tokenizers with a byte fallback (Llama 2, Mistral, Gemma) decode a run of bytes whole:
    while its last character is incomplete, every byte of it is U+FFFD, those of shown characters too.

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
        # TODO 7.1: your code here (the reference: 19 lines).
        raise NotImplementedError(
            "engine task 7.1: not implemented yet; see chapter The engine"
        )

    def flush(self) -> str:
        """The end of the text, with a replacement character where one stayed incomplete."""
        # TODO 7.1: your code here (the reference: 5 lines).
        raise NotImplementedError(
            "engine task 7.1: not implemented yet; see chapter The engine"
        )

    # ANCHOR_END: push


def _num_undecided(text: str) -> int:
    """How many characters at the end may be the first bytes of one that is not complete yet."""
    # TODO 7.1: your code here (the reference: 2 lines).
    raise NotImplementedError(
        "engine task 7.1: not implemented yet; see chapter The engine"
    )
