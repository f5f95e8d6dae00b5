"""What a body holds, looked through before it is parsed."""

from yaie.server.json_limits import MAX_TOKEN_IDS, MAX_VALUES, refusal

TAKE_TOKEN_IDS = frozenset({"/v1/completions", "/v1/embeddings", "/detokenize", "/web/next_token"})
"""Paths whose prompts may be lists of numbers."""


def looked_through(chunks: list[bytes], path: str) -> str | None:
    """Why a body is refused; None if it is not. `chunks` are joined: one is left, of all."""
    chunks[:] = [b"".join(chunks)]
    return refusal(chunks[0], MAX_TOKEN_IDS if path in TAKE_TOKEN_IDS else MAX_VALUES)
