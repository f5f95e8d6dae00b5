"""What a model's `generation_config.json` says: how its texts end, and how they are best drawn."""

from pathlib import Path
from typing import Any

from yaie.core.errors import InvalidRequestError
from yaie.core.params import SamplingParams
from yaie.models.json_files import read_json

_RECOMMENDED = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")


def read_generation_config(folder: Path) -> dict[str, Any]:
    """The file's contents; {} if there is none. Raises ModelError if it is no JSON object."""
    path = folder / "generation_config.json"
    return read_json(path) if path.is_file() else {}


def eos_token_ids(
    generation: dict[str, Any], config: Any, of_tokenizer: int | None, vocab_size: int
) -> frozenset[int]:
    """Whatever the generation config, the config or the tokenizer says ends a text, among the tokens of
    the model. What files say has been checked (`token_ids`); what a family's configuration assumes may
    be no token of a small vocabulary."""
    found = [generation.get("eos_token_id"), getattr(config, "eos_token_id", None), of_tokenizer]
    ids: set[int] = set()
    for one in found:
        ids.update(one if isinstance(one, list | tuple) else [one] if one is not None else [])
    return frozenset(token for token in ids if 0 <= token < vocab_size)


def sampling_defaults(generation: dict[str, Any]) -> dict[str, Any]:
    """Fields of SamplingParams for requests that do not say: what the authors recommend.

    `do_sample: false` means greedy. A value that we could not honour is left out, since nobody who
    sends a request could do anything about it.
    """
    if generation.get("do_sample") is False:
        return {"temperature": 0.0}
    defaults = {}
    for name in _RECOMMENDED:
        value = generation.get(name)
        try:
            SamplingParams(**{name: value} if value is not None else {})
        except InvalidRequestError:
            continue
        if value is not None:
            defaults[name] = value
    return defaults
