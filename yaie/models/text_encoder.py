"""From a text to token ids, beside other threads; and what can be said of a text before that.

Used by `Tokenizer`. A tokenizer in Rust is called by `encode_batch_fast` with a batch of one: this gives
up the GIL while it works, computes no offsets, and gives the ids of transformers' own `encode`.
"""

import json
import threading
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from yaie.models.token_bytes import BYTE_LETTERS

LONG = 1 << 14
"""Characters: some 10 ms of work."""
MAX_BYTES = 1 << 22
"""Of a text, in UTF-8: seconds of work, which nothing interrupts, and a gigabyte of memory."""
MAX_BYTES_IN_PYTHON = 1 << 20
"""The same for tokenizers that are written in Python."""
COMPOSED = 4
"""Characters that NFC makes into one, at most."""
KEEPS_ALL = {"Split", "Digits", "ByteLevel", "Metaspace"}
"""Pre-tokenizers that leave no character out, unless a Split removes what it finds."""


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

    max_bytes: of one prompt. Longer ones are to be refused.
    """

    def __init__(self, tokenizer: Any) -> None:
        """tokenizer: of transformers."""
        self._tokenizer = tokenizer
        self._is_fast: bool = getattr(tokenizer, "is_fast", False)
        self._backend: Any = _backend(tokenizer) if self._is_fast else None
        self._lock = threading.Lock()
        self.max_bytes = MAX_BYTES_IN_PYTHON if self._backend is None else MAX_BYTES

    def __call__(self, text: str, add_special_tokens: bool) -> list[int]:
        """The ids of a text, with or without what the tokenizer puts around it."""
        if self._backend is not None:
            (encoding,) = self._backend.encode_batch_fast(
                [text], add_special_tokens=add_special_tokens
            )
            ids: list[int] = encoding.ids
            return ids
        if self._is_fast:
            return self._by_transformers(text, add_special_tokens)
        with self._lock:  # one that is written in Python is not known to bear two callers
            return self._by_transformers(text, add_special_tokens)

    def fewest(self, text: str) -> int:
        """So many tokens a text has at least: as if each were the longest. 0 where nothing is known.
        Takes no time, but the first time."""
        if self._longest is None:
            return 0
        shrinks = COMPOSED if self._backend.normalizer is not None and not text.isascii() else 1
        return -(-len(text) // (shrinks * self._longest))

    def end(self, text: str, num_tokens: int) -> str:
        """All of a text that has at most `max_bytes`; of a longer one an end with `num_tokens` or more,
        as far as so many bytes go."""
        if len(text) * 4 <= self.max_bytes or num_bytes(text) <= self.max_bytes:
            return text
        if self._longest is not None:
            # Twice: the first tokens behind a cut may be others than in the whole text.
            text = text[-2 * COMPOSED * self._longest * num_tokens :]
        return text.encode()[-self.max_bytes :].decode(errors="ignore")

    def _by_transformers(self, text: str, add_special_tokens: bool) -> list[int]:
        ids: list[int] = self._tokenizer.encode(
            text, add_special_tokens=add_special_tokens, verbose=False
        )
        return ids

    @cached_property
    def _longest(self) -> int | None:
        """Characters that one token stands for, at most: letters of its name, or bytes of an added one.
        None if a token may stand for any number, or characters may be left out."""
        model: Any = None if self._backend is None else self._backend.model
        # WordPiece has one token for any word that it does not know.
        if (
            type(model).__name__ != "BPE"
            or model.continuing_subword_prefix
            or model.end_of_word_suffix
        ):
            return None
        vocabulary = self._backend.get_vocab(with_added_tokens=False)
        normalizer, splits = _state(self._backend.normalizer), _state(self._backend.pre_tokenizer)
        knows_all = (
            BYTE_LETTERS.keys() <= vocabulary.keys()
            if "ByteLevel" in map(_kind, _steps(splits, "pretokenizers"))
            else model.byte_fallback and all(f"<0x{byte:02X}>" in vocabulary for byte in range(256))
        )
        added = self._backend.get_added_tokens_decoder().values()
        takes_spaces = any(token.lstrip or token.rstrip for token in added)
        if not knows_all or takes_spaces or not _keeps_all(normalizer, splits):
            return None
        return max(
            *map(len, vocabulary), *(_room(self._backend, token.content) for token in added), 1
        )


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


def _state(part: Any) -> Any:
    """A normalizer or pre-tokenizer as tokenizer.json has it."""
    return None if part is None else json.loads(part.__getstate__())


def _steps(state: Any, name: str) -> list[Any]:
    """What it does, one after the other."""
    if state is None:
        return []
    if state["type"] == "Sequence":
        return [step for inner in state[name] for step in _steps(inner, name)]
    return [state]


def _kind(step: Any) -> str:
    return str(step["type"])


def _keeps_all(normalizer: Any, splits: Any) -> bool:
    """Whether no character is lost before the merges, but by what NFC composes."""
    for step in _steps(normalizer, "normalizers"):
        is_sign = _kind(step) == "Replace" and len(step["pattern"].get("String", "")) == 1
        if not (_kind(step) in ("NFC", "Prepend") or (is_sign and step["content"])):
            return False
    return all(
        _kind(step) in KEEPS_ALL and step.get("behavior") != "Removed"
        for step in _steps(splits, "pretokenizers")
    )


def _room(backend: Any, content: str) -> int:
    """Bytes of an added token, which is looked for as it is or in normalized text."""
    normalized = (
        content if backend.normalizer is None else backend.normalizer.normalize_str(content)
    )
    return max(num_bytes(content), num_bytes(normalized))
