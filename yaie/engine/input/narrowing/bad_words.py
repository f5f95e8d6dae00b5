"""`bad_words`: texts that an output may not have.

By tokens, as in vLLM: what is spelled in another way, or is part of a longer word with a token of its
own, is not found.
"""

from collections.abc import Sequence

from yaie.engine.input.grammars.matchers import Bits, leave_out
from yaie.engine.input.narrowing.base import is_tail
from yaie.models.tokenizer import Tokenizer


class BadWords:
    """See `Narrowing`."""

    def __init__(self, words: Sequence[str], tokenizer: Tokenizer) -> None:
        self._words = [ids for word in words for ids in spellings(word, tokenizer)]
        self._longest = max(map(len, self._words), default=1)
        self._tail: list[int] = []

    def follow(self, tokens: Sequence[int]) -> None:
        """See Narrowing."""
        self._tail = [*self._tail, *tokens][-self._longest :]

    def narrow(self, bits: Bits, drafts: Sequence[int]) -> None:
        """See Narrowing."""
        forbidden = {
            last for *before, last in self._words if is_tail(before, self._tail, drafts)
        }  # fmt: skip
        leave_out(bits, forbidden)


def spellings(word: str, tokenizer: Tokenizer) -> list[list[int]]:
    """The tokens of a word, and those of the word behind a space if they are not these behind others."""
    plain = tokenizer.encode(word, add_special_tokens=False)
    spaced = tokenizer.encode(f" {word.lstrip()}", add_special_tokens=False)
    found = [plain] if plain else []
    if spaced and spaced[-len(plain) :] != plain:
        found.append(spaced)
    return found
