"""What each token stands for, in bytes, and the decoder of whole texts. Used by `Tokenizer`."""

import json
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

TOOL_MARKERS = (
    "<tool_call>",
    "</tool_call>",
    "<|python_tag|>",
    "[TOOL_CALLS]",
    "[CALL_ID]",
    "[ARGS]",
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁calls▁end｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁sep｜>",
    "<think>",
    "</think>",
    "[THINK]",
    "[/THINK]",
)
"""What models write around calls of tools and reasoning. Some tokenizers count them as special tokens,
which a text leaves out; these stay in it, so that calls and answers can be told apart."""

SPACE = "\N{LOWER ONE EIGHTH BLOCK}"  # SentencePiece's sign for it


class TokenBytes:
    """The bytes of one token: those of all tokens of a text, joined, are the text in UTF-8.

    Pieces of a vocabulary are written in one of three ways: byte-level BPE has a letter for each byte
    (GPT-2, Llama 3, Qwen), SentencePiece a sign for the space and names like <0xE6> for bytes (Llama 2,
    Mistral, Gemma), and others have plain text, which is decoded.
    """

    def __init__(self, tokenizer: Any) -> None:
        """tokenizer: of transformers."""
        self._tokenizer = tokenizer
        self._added = {
            id: (token.content, token.special)
            for id, token in tokenizer.added_tokens_decoder.items()
        }

    @cached_property
    def shown(self) -> dict[int, str]:
        """Special tokens that stay in a text nevertheless."""
        return {
            id: content
            for id, (content, special) in self._added.items()
            if special and content in TOOL_MARKERS
        }

    def special_id(self, text: str) -> int | None:
        """The special token that is written so; None if there is none."""
        return next((id for id, token in self._added.items() if token == (text, True)), None)

    def of(self, token_id: int) -> bytes | None:
        """None for a special token that a text leaves out."""
        if token_id in self._added:
            content, special = self._added[token_id]
            return None if special and token_id not in self.shown else content.encode()
        piece = self.piece(token_id)
        if self._kind == "byte level":
            return bytes(BYTE_LETTERS[letter] for letter in piece if letter in BYTE_LETTERS)
        if self._kind == "sentence piece":
            if len(piece) == 6 and piece.startswith("<0x"):
                return bytes([int(piece[3:5], 16)])
            return piece.replace(SPACE, " ").encode()
        return whole_decoder(self._tokenizer, skips_special=True)([token_id]).encode()

    def piece(self, token_id: int) -> str:
        """A token as the vocabulary writes it; "" if it has none (a padded vocabulary)."""
        try:
            return self._tokenizer.convert_ids_to_tokens(token_id) or ""
        except (IndexError, OverflowError):
            return ""

    @cached_property
    def joins(self) -> bool:
        """Whether the decoder does nothing but join the bytes of tokens and read them as UTF-8."""
        backend = getattr(self._tokenizer, "backend_tokenizer", None)
        decoder = getattr(backend, "decoder", None)
        return decoder is not None and json.loads(decoder.__getstate__())["type"] == "ByteLevel"

    @property
    def are_pieces(self) -> bool:
        """Whether pieces are written in one of the first two ways."""
        return self._kind != "plain"

    @cached_property
    def _kind(self) -> str:
        backend = getattr(self._tokenizer, "backend_tokenizer", None)
        decoder = getattr(backend, "decoder", None)
        steps = "" if decoder is None else json.dumps(json.loads(decoder.__getstate__()))
        if '"ByteLevel"' in steps:
            return "byte level"
        vocabulary = self._tokenizer.get_vocab()
        if '"Metaspace"' in steps or "<0x0A>" in vocabulary:
            return "sentence piece"
        return "plain"


def decoder(tokenizer: Any, shown: dict[int, str]) -> Callable[[Sequence[int]], str]:
    """The fastest function that decodes ids without special tokens, those in `shown` excepted."""
    plain = whole_decoder(tokenizer, skips_special=True)
    if not shown:
        return plain

    def decode(ids: Sequence[int]) -> str:
        if shown.keys().isdisjoint(ids):
            return plain(ids)
        parts: list[str] = []
        run: list[int] = []
        for id in ids:
            if id in shown:
                parts += [plain(run), shown[id]] if run else [shown[id]]
                run = []
            else:
                run.append(id)
        return "".join([*parts, plain(run)] if run else parts)

    return decode


def whole_decoder(tokenizer: Any, *, skips_special: bool) -> Callable[[Sequence[int]], str]:
    """A function that gives the text of ids as they are. The Rust decoder gives up the GIL while it
    decodes a batch; `decode` keeps it, and so does what transformers does around it."""
    if getattr(tokenizer, "is_fast", False):
        decode = tokenizer.backend_tokenizer.decode_batch
        return lambda ids: decode([list(ids)], skip_special_tokens=skips_special)[0]
    return lambda ids: tokenizer.decode(
        list(ids), skip_special_tokens=skips_special, clean_up_tokenization_spaces=False
    )


def _byte_letters() -> dict[str, int]:
    """GPT-2's letters for bytes: printable ones stand for themselves, the others for what comes next."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {chr(byte): byte for byte in printable}
    return letters | {chr(256 + index): byte for index, byte in enumerate(others)}


BYTE_LETTERS = _byte_letters()
"""The byte for each letter of byte-level BPE."""
