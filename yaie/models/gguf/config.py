"""From a GGUF's metadata to the values of config.json and generation_config.json."""

from pathlib import Path
from typing import Any

from torch import Tensor

from yaie.core.errors import ModelError
from yaie.models.gguf.blocks import KINDS
from yaie.models.gguf.families import FAMILIES, Family, Keys, Values
from yaie.models.gguf.header import TensorInfo
from yaie.models.gguf.parts import Model

FACTORS = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")
"""Tensors that hold what the rotary frequencies are divided by, and are no weights."""
_LOCAL_THETA = 10000.0
"""Of Gemma 3's layers with a window; files of its first year do not say it."""
_ENDS = (
    "<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>",
    "<|end_of_text|>", "<EOT>", "</s>", "<|return|>", "<｜end▁of▁sentence｜>",
)  # fmt: skip
"""Special tokens that end an answer whatever the metadata says, as llama.cpp has it: many files give one
end token and their models use two. Only tokens marked as special count."""
_RETURN, _CALL, _END = "<|return|>", "<|call|>", "<|end|>"
"""Where both of the first are, as in gpt-oss, they end an answer, and `<|end|>` only a message of it."""
_SPECIAL = 3
_DRAWN = {
    "temp": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "penalty_repeat": "repetition_penalty",
}


def family_of(path: Path, metadata: Values) -> tuple[str, Family]:
    """(`general.architecture`, what is known of it). Raises ModelError for one that is not read."""
    name = metadata.get("general.architecture")
    if not isinstance(name, str):
        raise ModelError(f"{path} does not say its general.architecture. Fetch the file again.")
    if name in ("clip", "mmproj"):
        raise ModelError(
            f"{path} holds what encodes images for another model: give the file of the language model."
        )
    family = FAMILIES.get(name)
    if family is None:
        raise ModelError(
            f"{path} is a GGUF of the architecture {name}, which is not read from GGUF (what is: "
            f"{', '.join(FAMILIES)}). Serve the original model with safetensors, which the model card "
            "usually links to."
        )
    if name == "llama" and metadata.get("llama.expert_count"):
        raise ModelError(
            f"{path} is a Mixtral, which is not read from GGUF. Serve the original model with "
            "safetensors."
        )
    return name, family


def config_values(path: Path, model: Model, factors: dict[str, Tensor]) -> Values:
    """What config.json would say. factors: those of FACTORS that the file has, in float32.

    Raises ModelError for an architecture that is not read, and for a key that is missing or makes no
    sense.
    """
    from transformers.integrations import GGUF_CONFIG_DEFAULTS_MAPPING, GGUF_CONFIG_MAPPING
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    name, family = family_of(path, model.metadata)
    keys = Keys(model.metadata, name, frozenset(model.tensors))
    _check_numbers(path, keys)
    table = GGUF_CONFIG_MAPPING[family.table]
    fields = {field: key for key, field in table.items() if field not in (None, -1, "head_dim")}
    values: Values = {
        **GGUF_CONFIG_DEFAULTS_MAPPING.get(family.table, {}),
        **keys.given(**fields),
        **family.more(keys),
        "model_type": family.model_type,
        "architectures": [MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[family.model_type]],
        "vocab_size": _embedding(path, model).shape[0],
        "tie_word_embeddings": "output.weight" not in model.tensors,
        **{
            f"{kind}_token_id": model.metadata.get(f"tokenizer.ggml.{key}_token_id")
            for kind, key in (("bos", "bos"), ("eos", "eos"), ("pad", "padding"))
        },
        "dtype": _dtype(model),
    }
    values.pop("rope_theta", None)
    if name != "gpt2":
        values["rope_parameters"] = _rope(path, keys, factors)
    return values


def generation_values(metadata: Values) -> Values:
    """What generation_config.json would say: how texts end, and what llama.cpp's files recommend."""
    ends = {metadata.get(f"tokenizer.ggml.{kind}_token_id") for kind in ("eos", "eot", "eom")}
    kinds = metadata.get("tokenizer.ggml.token_type") or ()
    tokens = metadata.get("tokenizer.ggml.tokens") or ()
    special = {
        token: index
        for index, (token, kind) in enumerate(zip(tokens, kinds, strict=False))
        if kind == _SPECIAL and token in (*_ENDS, _CALL)
    }
    ends |= {index for token, index in special.items() if token != _CALL}
    if {_RETURN, _CALL} <= special.keys():
        ends = (ends | {special[_CALL]}) - {special.get(_END)}
    drawn = {
        ours: metadata[f"general.sampling.{key}"]
        for key, ours in _DRAWN.items()
        if f"general.sampling.{key}" in metadata
    }
    return {"eos_token_id": sorted(ends - {None}), **drawn}


def _check_numbers(path: Path, keys: Keys) -> None:
    """The numbers that everything else is computed with."""
    wanted = ["block_count", "embedding_length", "attention.head_count", "context_length"]
    for key in (*wanted, "attention.head_count_kv", "feed_forward_length"):
        value = keys.get(key)
        if value is None and key not in wanted:
            continue
        if not isinstance(value, int) or value < 1:
            told = "a number for each layer" if isinstance(value, list) else repr(value)
            raise ModelError(
                f"{path}: {keys.architecture}.{key} is {told}, and must be one positive number to be "
                "served. Fetch the file again, or serve the original model."
            )


def _embedding(path: Path, model: Model) -> TensorInfo:
    if "token_embd.weight" not in model.tensors:
        raise ModelError(
            f"{path} has no tensor token_embd.weight, so it is no whole language model (a draft head or "
            "an adapter?). Give the file of the model itself."
        )
    return model.tensors["token_embd.weight"][1]


def _dtype(model: Model) -> str:
    """What the numbers are kept in: bfloat16 where they are rounded much further anyway."""
    kinds = {KINDS[info.kind].name for _, info in model.tensors.values() if len(info.shape) > 1}
    if kinds <= {"F32"}:
        return "float32"
    return "float16" if kinds <= {"F32", "F16"} else "bfloat16"


def _rope(path: Path, keys: Keys, factors: dict[str, Tensor]) -> Values:
    """rope_parameters, as `yaie.models.rope` reads them.

    A file has Llama 3's scaling as a divisor for each frequency, which is what longrope has for short
    and for long texts; longrope's factor on cos and sin is then 1.
    """
    found: Values = {"rope_type": "default", "rope_theta": keys.get("rope.freq_base", 10000.0)}
    if keys.rotary_share != 1.0:
        if keys.architecture not in ("phi3", "stablelm"):
            raise ModelError(
                f"{path}: {keys.architecture}.rope.dimension_count is no whole head "
                f"({keys.head_dim}), which is not served. Serve the original model."
            )
        found["partial_rotary_factor"] = keys.rotary_share
    trained = keys.get("rope.scaling.original_context_length", keys.get("context_length"))
    kind = keys.get("rope.scaling.type") or "none"
    factor = keys.get("rope.scaling.factor", keys.get("rope.scale_linear"))
    if factors:
        plain = next(iter(factors.values()))  # where they are the same for any length
        found |= {
            "rope_type": "longrope",
            "short_factor": factors.get("rope_factors_short.weight", plain).tolist(),
            "long_factor": factors.get("rope_factors_long.weight", plain).tolist(),
            "attention_factor": keys.get("rope.scaling.attn_factor", 1.0),
            "original_max_position_embeddings": trained,
        }
    elif kind in ("linear", "yarn") and factor:
        found |= {"rope_type": kind, "factor": factor}
        if kind == "yarn":
            found["original_max_position_embeddings"] = trained
            found |= keys.given(
                beta_fast="rope.scaling.yarn_beta_fast", beta_slow="rope.scaling.yarn_beta_slow"
            )
            if keys.architecture == "gpt-oss":  # published so; a file has no key for it
                found["truncate"] = False
    elif kind not in ("none", "linear"):
        raise ModelError(
            f"{path}: {keys.architecture}.rope.scaling.type is {kind!r}, which is not read from GGUF. "
            "Serve the original model."
        )
    if keys.architecture != "gemma3":
        return found
    local = keys.get("rope.freq_base_swa", _LOCAL_THETA)
    windowed: dict[str, Any] = {"rope_type": "default", "rope_theta": local}
    return {"full_attention": found, "sliding_attention": windowed}
