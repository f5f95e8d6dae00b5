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
        # BEGIN SOLUTION 7.1
        self._ids.append(token_id)
        text = self._decode(self._ids[self._start :])
        if not text.startswith(self._shown_text):
            # A byte fallback, and the new byte breaks the run that it is in: continue after the run.
            self._start, self._shown_text = self._shown, ""
            text = self._decode(self._ids[self._start :])
        undecided = _num_undecided(text)
        new = text[len(self._shown_text) : len(text) - undecided]
        if new and undecided == 0:
            self._start, self._shown = self._shown, len(self._ids)
            self._shown_text = self._decode(self._ids[self._start :])
        elif text and not self._decode([token_id]):
            # A special token: many in a row would push out of the window what the next word needs.
            self._ids.pop()
        elif len(self._ids) - self._start > LONGEST_WINDOW:
            # Broken bytes without end: only the last few may still become a character.
            self._start = self._shown = len(self._ids) - SHORTEST_WINDOW
            context = self._decode(self._ids[self._start :])
            self._shown_text = context[: len(context) - undecided]
        else:
            self._shown_text += new
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


def _num_undecided(text: str) -> int:
    """How many characters at the end may be the first bytes of one that is not complete yet."""
    # BEGIN SOLUTION 7.1
    broken = len(text) - len(text.rstrip(INCOMPLETE))
    return min(broken, LONGEST_CHARACTER - 1)
    # END SOLUTION
