"""Ids of special tokens in a model's files: each must be a token that the model can draw."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from yaie.models.json_files import bad_field
from yaie.models.tokenizer import Tokenizer

_NONE = -1
"""How older Llama configurations write that there is no such token; no use for an end token."""


def check_token_ids(path: Path, values: dict[str, Any], vocab_size: int) -> None:
    """Raise ModelError for an id in this file that no logit stands for. What a family's configuration
    assumes where the file says nothing is not checked.

    values: what the file holds. vocab_size: width of the logits.
    """
    wanted = f"null or a token id from 0 to {vocab_size - 1}, which this model has logits for"
    for field in ("eos_token_id", "bos_token_id", "pad_token_id"):
        value = values.get(field)
        for token in _ids(value):
            is_id = type(token) is int and 0 <= token < vocab_size
            is_none = token == _NONE and type(token) is int and field != "eos_token_id"
            if not (is_id or is_none):
                raise bad_field(path, field, value, wanted)


def check_end_token(folder: Path, tokenizer: Tokenizer, vocab_size: int) -> None:
    """Raise ModelError if the tokenizer's end token is none of the model's."""
    token_id = tokenizer.eos_token_id
    if token_id is not None and not 0 <= token_id < vocab_size:
        raise bad_field(
            folder / "tokenizer_config.json",
            "eos_token",
            tokenizer.describe()["eos_token"],
            f"one of the {vocab_size} tokens of this model (it has the id {token_id})",
        )


def _ids(value: Any) -> Iterator[Any]:
    """A list of ends may be given; whatever else is in it is no id."""
    if isinstance(value, list):
        yield from value
    elif value is not None:
        yield value
