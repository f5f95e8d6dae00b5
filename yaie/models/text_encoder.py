"""From a text to token ids, beside other threads.

Used by `Tokenizer`. A tokenizer in Rust is called by `encode_batch_fast` with a batch of one: this gives
up the GIL while it works, computes no offsets, and gives the ids of transformers' own `encode`.
"""

import threading
from dataclasses import dataclass
from typing import Any

LONG = 1 << 14
"""Characters: some 10 ms of work."""


@dataclass(slots=True)
class PromptText:
    """A prompt before it is tokenized: texts, each tokenized by itself, and tokens between them.

    add_special_tokens: what the tokenizer puts around a text, such as a BOS.
    """

    parts: list[str | list[int]]
    add_special_tokens: bool = True

    @property
    def texts(self) -> list[str]:
        """The parts that are not tokens yet."""
        return [part for part in self.parts if isinstance(part, str)]

    @property
    def num_chars(self) -> int:
        """Of all texts."""
        return sum(map(len, self.texts))

    @property
    def is_long(self) -> bool:
        """Whether tokenizing it takes so long that others should not wait for it."""
        return self.num_chars > LONG

    @property
    def num_bytes(self) -> int:
        """Of all texts in UTF-8."""
        return sum(map(num_bytes, self.texts))


def num_bytes(text: str) -> int:
    """In UTF-8. Without a copy, for which all threads would wait, where it has ASCII alone."""
    return len(text) if text.isascii() else len(text.encode())


class TextEncoder:
    """One tokenizer's way from text to ids. May be used on several threads.

    backend: the tokenizer in Rust, if that does all the work.
    """

    def __init__(self, tokenizer: Any) -> None:
        """tokenizer: of transformers."""
        self._tokenizer = tokenizer
        self._is_fast: bool = getattr(tokenizer, "is_fast", False)
        self.backend: Any = _backend(tokenizer) if self._is_fast else None
        self._lock = threading.Lock()

    def __call__(self, text: str, add_special_tokens: bool) -> list[int]:
        """The ids of a text, with or without what the tokenizer puts around it."""
        if self.backend is not None:
            (encoding,) = self.backend.encode_batch_fast(
                [text], add_special_tokens=add_special_tokens
            )
            ids: list[int] = encoding.ids
            return ids
        if self._is_fast:
            return self._by_transformers(text, add_special_tokens)
        with self._lock:  # one that is written in Python is not known to bear two callers
            return self._by_transformers(text, add_special_tokens)

    def _by_transformers(self, text: str, add_special_tokens: bool) -> list[int]:
        ids: list[int] = self._tokenizer.encode(
            text, add_special_tokens=add_special_tokens, verbose=False
        )
        return ids


def _backend(tokenizer: Any) -> Any:
    """The tokenizer in Rust, if nothing is done to a text before it comes there. It is set to neither
    cut nor pad: changing that is what it refuses while another thread uses it."""
    from transformers import PreTrainedTokenizerFast as Fast

    kind = type(tokenizer)
    if kind._encode_plus is not Fast._encode_plus or kind.encode is not Fast.encode:
        return None
    backend = tokenizer.backend_tokenizer
    backend.no_truncation()
    backend.no_padding()
    backend.encode_special_tokens = tokenizer.split_special_tokens
    return backend
