"""Tokenizes long texts: a lower bound first, then in pieces from the end, as many as are wanted.

Used by `Tokenizer`. Of a prompt that is longer than the context only its end can matter
(`truncate_prompt_tokens`), and the rest need not be tokenized.
"""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from yaie.models.token_bytes import BYTE_LETTERS
from yaie.models.tokenizer_splits import LONGEST_PIECE, PIECE, SPACE, UncutError, cuts_of

Encode = Callable[[str, bool], list[int]]

MOST_SHRINKING = 3
"""Composing characters (NFC) leaves at least a third of a text's bytes: three jamo make one syllable."""


@dataclass(slots=True)
class PromptText:
    """A prompt before it is tokenized: texts, each tokenized by itself, and tokens between them.

    add_special_tokens: what the tokenizer puts around a text, such as a BOS.
    """

    parts: list[str | list[int]]
    add_special_tokens: bool = True

    @property
    def num_chars(self) -> int:
        """Of all texts."""
        return sum(len(part) for part in self.parts if isinstance(part, str))

    @property
    def is_long(self) -> bool:
        """Whether tokenizing it takes so long that others should not wait for it."""
        return self.num_chars > PIECE


class LastTokens(list[int]):
    """The last tokens of a prompt that has too many; how many come before is not known."""


class LongTexts:
    """How one tokenizer deals with texts of any length. May be used on several threads."""

    def __init__(self, tokenizer: Any, encode: Encode) -> None:
        """tokenizer: of transformers. encode: a whole text, with or without what goes around it."""
        self._encode = encode
        self._backend = _backend(tokenizer)

    def from_end(self, text: str, add_special_tokens: bool = True) -> Iterator[list[int]]:
        """The tokens of a text in pieces, the last one first: joined, those of `encode`. Raises
        UncutError when it comes to a stretch of LONGEST_PIECE characters that cannot be cut."""
        if self._cuts is None or self._around is None:
            if len(text) > LONGEST_PIECE:
                raise UncutError
            yield self._encode(text, add_special_tokens)
            return
        before, after = self._around
        if add_special_tokens:
            yield after
        for piece in self._cuts.from_end(text):
            # `encode` of the same library holds the GIL, and keeps what is of no use here.
            (encoding,) = self._backend.encode_batch_fast([piece], add_special_tokens=False)
            yield encoding.ids
        if add_special_tokens:
            yield before

    def fewest(self, text: str) -> int:
        """So many tokens a text has at least; 0 where nothing is known. Takes no time."""
        if self._longest is None:
            return 0
        if text.isascii():
            num_bytes = len(text)  # without a copy, for which all other threads would wait
        else:
            num_bytes = len(text.encode())
            if self._backend.normalizer is not None:
                num_bytes //= MOST_SHRINKING
        return -(-num_bytes // self._longest)

    @cached_property
    def _cuts(self) -> Any:
        return None if self._backend is None else cuts_of(self._backend)

    @cached_property
    def _around(self) -> tuple[list[int], list[int]] | None:
        """What goes before and behind a text."""
        with_them, without = (self._encode("a", flag) for flag in (True, False))
        for at in range(len(with_them) - len(without) + 1):
            if with_them[at : at + len(without)] == without:
                return with_them[:at], with_them[at + len(without) :]
        return None

    @cached_property
    def _longest(self) -> int | None:
        """Bytes of the longest token; None if there are characters that no token stands for."""
        if self._cuts is None:
            return None
        added = self._backend.get_added_tokens_decoder().values()
        vocabulary = self._backend.get_vocab(with_added_tokens=False)
        # A token that takes the spaces around it is as long as they are; unknown characters may be one.
        takes_spaces = any(token.lstrip or token.rstrip for token in added)
        if self._backend.model.byte_fallback:
            is_complete = all(f"<0x{byte:02X}>" in vocabulary for byte in range(256))
            lengths = [len(token.replace(SPACE, " ").encode()) for token in vocabulary]
        else:
            is_complete = BYTE_LETTERS.keys() <= vocabulary.keys()
            lengths = [len(token) for token in vocabulary]  # a letter for each byte
        if takes_spaces or not is_complete:
            return None
        return max(*lengths, *(len(token.content.encode()) for token in added), 1)


class OneAtATime:
    """Tokenizers that are written in Python are not known to bear two callers."""

    def __init__(self, encode: Encode) -> None:
        self._encode = encode
        self._lock = threading.Lock()

    def __call__(self, text: str, add_special_tokens: bool) -> list[int]:
        with self._lock:
            return self._encode(text, add_special_tokens)


def _backend(tokenizer: Any) -> Any:
    """The tokenizer in Rust, if nothing is done to a text before it comes there. It is set to neither
    cut nor pad: changing that is what it refuses while another thread uses it."""
    from transformers import PreTrainedTokenizerFast as Fast

    kind = type(tokenizer)
    if not getattr(tokenizer, "is_fast", False):
        return None
    backend = tokenizer.backend_tokenizer
    backend.no_truncation()
    backend.no_padding()
    if kind._encode_plus is not Fast._encode_plus or kind.encode is not Fast.encode:
        return None
    return backend
