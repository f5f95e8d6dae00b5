"""`TokenText`: what tokens are as text, as bytes, and by their names. The way back of a `Tokenizer`."""

from collections.abc import Sequence
from typing import Any

from yaie.models.token_bytes import TokenBytes, decoder, whole_decoder


class TokenText:
    """Of a tokenizer of transformers. May be used on several threads."""

    def __init__(self, tokenizer: Any) -> None:
        """tokenizer: of transformers."""
        self._tokenizer = tokenizer
        self._bytes = TokenBytes(tokenizer)
        self._decode = decoder(tokenizer, self._bytes.shown)
        self._decode_all = whole_decoder(tokenizer, skips_special=False)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of these tokens, special tokens left out, except for those around calls of tools.

        Bytes that do not yet make a whole character show as U+FFFD. Called once for each token that is
        generated, so it takes the shortest way to the Rust decoder.
        """
        return self._decode(ids)

    def decode_all(self, ids: Sequence[int]) -> str:
        """The text of these tokens, special tokens as they are written."""
        return self._decode_all(ids)

    def token_strings(self, ids: Sequence[int]) -> list[str]:
        """Each token as the vocabulary spells it: bytes of a byte-level one stand as letters."""
        return [token or "" for token in self._tokenizer.convert_ids_to_tokens(list(ids))]

    def token_bytes(self, token_id: int) -> bytes | None:
        """What a token adds to a text, in UTF-8; it may be part of a character. None for a special
        token that `decode` leaves out. The space in front of a SentencePiece token is always there,
        while `decode` drops it at the start of a text.
        """
        return self._bytes.of(token_id)

    @property
    def has_byte_tokens(self) -> bool:
        """Whether `token_bytes` says what a token adds wherever it stands, but for that space."""
        return self._bytes.are_pieces

    @property
    def joins_bytes(self) -> bool:
        """Whether the text of tokens is the UTF-8 of their bytes (`token_bytes`), all in a row."""
        return self._bytes.joins

    def token_name(self, token_id: int) -> str:
        """A token as the vocabulary writes it: what is left to show of a special one."""
        return self._bytes.piece(token_id)

    def special_token_id(self, text: str) -> int | None:
        """The special token that is written so; None if there is none."""
        return self._bytes.special_id(text)
