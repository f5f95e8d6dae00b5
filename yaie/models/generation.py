"""What a model's `generation_config.json` says: how its texts end, and how they are best drawn."""

import json
from pathlib import Path
from typing import Any

from yaie.core.errors import InvalidRequestError, ModelError
from yaie.core.params import SamplingParams

_RECOMMENDED = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")


def read_generation_config(folder: Path) -> dict[str, Any]:
    """The file's contents; {} if there is none. Raises ModelError if it is no JSON object."""
    path = folder / "generation_config.json"
    if not path.is_file():
        return {}
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read: {error}. Delete or repair it.") from None
    if not isinstance(values, dict):
        raise ModelError(f"{path} is not a JSON object. Delete or repair it.")
    return values


def eos_token_ids(
    generation: dict[str, Any], config: Any, of_tokenizer: int | None
) -> frozenset[int]:
    """Whatever the generation config, the config or the tokenizer says ends a text."""
    found = [generation.get("eos_token_id"), getattr(config, "eos_token_id", None), of_tokenizer]
    ids: set[int] = set()
    for one in found:
        ids.update(one if isinstance(one, list | tuple) else [one] if one is not None else [])
    return frozenset(ids)


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
