"""What can be said of a text before it is tokenized: how many tokens it has at least, and which end of
it has so many. Used by `Tokenizer`, for prompts that take long.
"""

import json
from functools import cached_property
from typing import Any

from yaie.models.token_bytes import BYTE_LETTERS

MAX_BYTES = 1 << 22
"""Of a text, in UTF-8: seconds of work, which nothing interrupts, and a gigabyte of memory."""
MAX_BYTES_IN_PYTHON = 1 << 20
"""The same for tokenizers that are written in Python."""
COMPOSED = 4
"""Characters that NFC makes into one, at most."""
KEEPS_ALL = {"Split", "Digits", "ByteLevel", "Metaspace"}
"""Pre-tokenizers that leave no character out, unless a Split removes what it finds."""


def num_bytes(text: str) -> int:
    """In UTF-8. Without a copy, for which all threads would wait, where it has ASCII alone."""
    return len(text) if text.isascii() else len(text.encode())


class TextBounds:
    """Of one tokenizer. May be used on several threads.

    max_bytes: of one prompt. Longer ones are to be refused.
    """

    def __init__(self, backend: Any) -> None:
        """backend: the tokenizer in Rust, if that is what encodes (`in_rust`)."""
        self._backend = backend
        self.max_bytes = MAX_BYTES_IN_PYTHON if backend is None else MAX_BYTES

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
