"""Text out of tokens from two lists: tokens that were shown last, and tokens that are not shown yet.

The reference keeps one list and offsets into it, and shows the letters before an incomplete character
at once. Here a token waits as a whole until what it completes is whole (as in TGI).
"""

from collections.abc import Callable

BROKEN = "\N{REPLACEMENT CHARACTER}"
MOST_PENDING = 12  # tokens; three broken characters of up to four bytes
MOST_WAITING = 3  # characters


class Detokenizer:
    """See `yaie.core.contracts.Detokenizer`."""

    def __init__(self, decode: Callable[[list[int]], str]) -> None:
        """decode: text of a list of tokens, special tokens left out."""
        self._decode = decode
        self._context: list[int] = []
        self._pending: list[int] = []
        self._num_shown = 0  # leading characters of the pending text

    def push(self, token_id: int) -> str:
        """The text that this token makes final; "" while a character is incomplete."""
        self._pending.append(token_id)
        text = self._pending_text()
        if text and not text.endswith(BROKEN):
            self._context, self._pending, self._num_shown = self._pending, [], 0
            return text
        if text and not self._decode([token_id]):  # a special token
            self._pending.pop()
            return ""
        return self._give_up(text) if len(self._pending) > MOST_PENDING else ""

    def flush(self) -> str:
        """The end of the text, with a replacement character where one stayed incomplete."""
        text = self._pending_text()
        self._pending, self._num_shown = [], 0
        return text

    def _pending_text(self) -> str:
        """What is not shown yet."""
        seen = self._decode(self._context)
        text = self._decode(self._context + self._pending)
        new = text[len(seen) :] if text.startswith(seen) else self._decode(self._pending)
        return new[self._num_shown :]

    def _give_up(self, text: str) -> str:
        """So many tokens without a whole character: only the last few are worth waiting for."""
        if not text:  # special tokens
            self._pending.clear()
            return ""
        held = min(MOST_WAITING, len(text) - len(text.rstrip(BROKEN)))
        self._context, self._pending = [], self._pending[-MOST_PENDING:]
        self._num_shown = len(self._decode(self._pending)) - held
        return text[: len(text) - held]
