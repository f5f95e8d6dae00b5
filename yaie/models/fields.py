"""What the fields of a model's JSON files may hold: checked before anything is made of them.

The tables know what is read of a configuration here, under the names that families give it. Fields that
are not in them are transformers' own, which checks many of them itself.
"""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from yaie.models.json_files import bad_field

Check = Callable[[Any], bool]
Json = dict[str, Any]


def _count(most: int, *, least: int = 1) -> tuple[Check, str]:
    """A whole number, or one for each layer; null is the family's default."""

    def one(value: Any) -> bool:
        return type(value) is int and least <= value <= most

    def check(value: Any) -> bool:
        return value is None or (all(map(one, value)) if isinstance(value, list) else one(value))

    return check, f"a whole number from {least} to {most}"


def _is_positive(value: Any) -> bool:
    if value is None:
        return True
    return type(value) in (int, float) and 0 < value < math.inf and _fits_float(value)


def _is_share(value: Any) -> bool:
    return value is None or (type(value) in (int, float) and 0 <= value <= 1)


def _fits_float(value: float) -> bool:
    try:
        float(value)
    except OverflowError:
        return False
    return True


def _all(kind: type) -> Check:
    return lambda value: (
        value is None or (isinstance(value, list) and all(isinstance(one, kind) for one in value))
    )


def _is(*kinds: type) -> Check:
    return lambda value: value is None or isinstance(value, kinds)


def _not_null(check: Check) -> Check:
    return lambda value: value is not None and check(value)


def _is_token(value: Any) -> bool:
    if isinstance(value, dict):
        return isinstance(value.get("content"), str)
    return value is None or isinstance(value, str)


def _is_length(value: Any) -> bool:
    """Files of tokenizers write 1e30 for "any"."""
    return value is None or (type(value) in (int, float) and value > 0)


def _is_templates(value: Any) -> bool:
    if isinstance(value, list):
        return all(
            isinstance(one, dict) and all(isinstance(one.get(key), str) for key in _NAMED)
            for one in value
        )
    if isinstance(value, dict):
        return all(isinstance(one, str) for one in value.values())
    return value is None or isinstance(value, str)


def _is_tokens(value: Any) -> bool:
    if isinstance(value, dict):
        value = list(value.values())
    return value is None or (
        isinstance(value, list) and all(one is not None and _is_token(one) for one in value)
    )


def _is_added(value: Any) -> bool:
    return isinstance(value, dict) and (
        all(
            key.isascii() and key.isdigit() and len(key) < 10 and isinstance(token, dict)
            and isinstance(token.get("content"), str)
            for key, token in value.items()
        )
    )  # fmt: skip


_NAMED = ("name", "template")
_LAYERS = _count(10_000)
_HEADS = _count(1 << 16)
_WIDTH = _count(1 << 24)
_LENGTH = _count(1 << 31)
_POSITIVE = (_is_positive, "a finite number above 0")
_TRUTH = (_is(bool), "true or false")
_OBJECT = (_is(dict), "an object")
_TEXT = (_is(str), "a text")
_TEXTS = (_all(str), "a list of texts")
# Whoever reads these looks for the field alone, and trips over a null.
_SURE_OBJECT = (_not_null(_is(dict)), "an object")
_SURE_TEXTS = (_not_null(_all(str)), "a list of texts")

Table = Mapping[str, tuple[Check, str]]

CONFIG: Table = {
    "model_type": _TEXT,
    "architectures": _TEXTS,
    "dtype": (_is(str, dict), "a text"),
    "torch_dtype": (_is(str, dict), "a text"),
    "auto_map": _SURE_OBJECT,
    "text_config": _OBJECT,
    "quantization_config": _OBJECT,
    "layer_types": _TEXTS,
    "hidden_act": _TEXT,
    "activation_function": _TEXT,
    **dict.fromkeys(("tie_word_embeddings", "output_hidden_states", "output_attentions"), _TRUTH),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "num_layers", "n_layers"), _LAYERS),
    **dict.fromkeys(
        ("num_attention_heads", "n_head", "n_heads", "num_key_value_heads", "num_heads"), _HEADS
    ),
    **dict.fromkeys(
        ("head_dim", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "global_head_dim"),
        _count(1 << 16),
    ),
    **dict.fromkeys(
        (
            "vocab_size", "hidden_size", "n_embd", "d_model", "intermediate_size", "ffn_dim", "n_inner",
            "d_ff", "moe_intermediate_size", "word_embed_proj_dim",
        ),
        _WIDTH,
    ),
    **dict.fromkeys(
        (
            "max_position_embeddings", "n_positions", "n_ctx", "max_sequence_length", "max_seq_len",
            "seq_length", "original_max_position_embeddings",
        ),
        _LENGTH,
    ),
    "sliding_window": _count(1 << 31, least=0),  # transformers writes 0 where there is none
    **dict.fromkeys(("num_local_experts", "num_experts", "n_routed_experts"), _count(1 << 16, least=0)),
    **dict.fromkeys(
        (
            "attention_dropout", "resid_pdrop", "embd_pdrop", "attn_pdrop", "hidden_dropout", "dropout",
            "activation_dropout",
        ),
        (_is_share, "a number from 0 to 1"),
    ),
    **dict.fromkeys(
        ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_eps", "rope_theta"), _POSITIVE
    ),
}  # fmt: skip
"""Of config.json, and of the `text_config` in it."""

TOKENIZER: Table = {
    "tokenizer_class": _TEXT,
    "auto_map": _SURE_OBJECT,
    "added_tokens_decoder": (_is_added, 'an object: from ids to {"content": "...", ...}'),
    "additional_special_tokens": (_is_tokens, "a list of tokens"),
    "extra_special_tokens": (_is_tokens, "a list of tokens, or an object with them"),
    "chat_template": (_is_templates, 'a text, or a list of {"name": "...", "template": "..."}'),
    "fast_tokenizer_files": _SURE_TEXTS,
    "model_input_names": _SURE_TEXTS,
    "model_max_length": (_is_length, "a number above 0"),
    "padding_side": (lambda value: value in ("left", "right"), '"left" or "right"'),
    "truncation_side": (lambda value: value in ("left", "right"), '"left" or "right"'),
    **dict.fromkeys(
        (
            "bos_token", "eos_token", "pad_token", "unk_token", "sep_token", "cls_token", "mask_token",
        ),
        (_is_token, "a token"),
    ),
}  # fmt: skip
"""Of tokenizer_config.json."""


def check_fields(path: Path, values: Json, table: Table, within: str = "") -> None:
    """Raise ModelError for the first field whose value is none of its kind. within: "text_config." for
    the fields of that."""
    for field, (check, wanted) in table.items():
        if field in values and not check(values[field]):
            raise bad_field(path, within + field, values[field], wanted)


def check_config(path: Path, values: Json) -> None:
    """Raise ModelError for a field of config.json that no model can have."""
    check_fields(path, values, CONFIG)
    _check_rope(path, values)
    inner = values.get("text_config")
    if inner:
        check_fields(path, inner, CONFIG, "text_config.")
        _check_rope(path, inner, "text_config.")


_ROPE: Table = {
    "rope_type": _TEXT,
    "type": _TEXT,
    "rope_theta": _POSITIVE,
    "factor": _POSITIVE,
    "original_max_position_embeddings": _POSITIVE,
    "partial_rotary_factor": _POSITIVE,
}


def _check_rope(path: Path, values: Json, within: str = "") -> None:
    """Its parameters are one object, or one for each kind of layer."""
    for name in ("rope_parameters", "rope_scaling"):
        rope = values.get(name)
        if rope is None:
            continue
        if not isinstance(rope, dict):
            raise bad_field(path, within + name, rope, "an object")
        check_fields(path, rope, _ROPE, f"{within}{name}.")
        for kind, inner in rope.items():
            if isinstance(inner, dict):
                check_fields(path, inner, _ROPE, f"{within}{name}.{kind}.")
