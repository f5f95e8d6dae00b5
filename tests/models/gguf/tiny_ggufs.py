"""Tiny GGUFs, written as llama.cpp's converter writes them: from the checkpoints of `tests.models.tiny`.

What the converter does to weights is done here from its rules, not from the tables that are tested:
rows of queries and keys change places, Gemma's norms have 1 added, GPT-2's products are turned, and
experts are cut into gates and what they open.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Type

from tests.models.gguf.random_blocks import random_bytes
from tests.models.tiny import CHAT_TEMPLATE

ARCHITECTURES = {
    "llama": "llama",
    "mistral": "llama",
    "qwen3_moe": "qwen3moe",
    "gemma3_text": "gemma3",
    "gpt_oss": "gpt-oss",
}
"""Of model types that llama.cpp calls otherwise."""
PERMUTED = ("llama", "granite", "smollm3")
CONTROL, NORMAL, USER_DEFINED = 3, 1, 4
Quantized = Callable[[str, np.ndarray], tuple[np.ndarray, Type | None]]
"""From a tensor's name and numbers to what is written, and its type if those are blocks."""


def plain(name: str, numbers: np.ndarray) -> tuple[np.ndarray, Type | None]:
    return numbers, None


def all_as(kind: Type) -> Quantized:
    """Every matrix in one type, vectors in float32."""

    def quantize(name: str, numbers: np.ndarray) -> tuple[np.ndarray, Type | None]:
        if numbers.ndim == 1:
            return numbers, None
        if kind in (Type.F16, Type.F32):
            return numbers.astype(np.float16 if kind == Type.F16 else np.float32), None
        return gguf.quants.quantize(numbers, kind), kind

    return quantize


def random_blocks(kind: Type) -> Quantized:
    """Every matrix as blocks of a type that the gguf package does not write: random ones of it."""
    generator = np.random.default_rng(5)
    values, size = gguf.GGML_QUANT_SIZES[kind]

    def quantize(name: str, numbers: np.ndarray) -> tuple[np.ndarray, Type | None]:
        if numbers.ndim == 1:
            return numbers, None
        rows, columns = numbers.shape
        data = random_bytes(generator, kind, rows * columns // values, 2e-4)
        return data.reshape(rows, columns // values * size), kind

    return quantize


def write_gguf(
    model: Path,
    path: Path,
    quantize: Quantized = plain,
    *,
    split: int = 0,
    metadata: Mapping[str, Any] | None = None,
) -> Path:
    """Write the checkpoint in `model` as `path`; returns it, or the first part.

    split: tensors in a part; 0 writes one file. metadata: keys of text, numbers or lists that are added,
    or changed; None leaves one out.
    """
    from transformers import AutoModelForCausalLM

    network = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    config = network.config
    name = ARCHITECTURES.get(config.model_type, config.model_type)
    writer = gguf.GGUFWriter(None, name, split_max_tensors=split)
    for key, value in (_metadata(config, name, model) | dict(metadata or {})).items():
        _add(writer, key, value)
    kind = next(one for one, called in gguf.MODEL_ARCH_NAMES.items() if called == name)
    table = gguf.get_tensor_name_map(kind, config.num_hidden_layers)
    for theirs, tensor in network.state_dict().items():
        if theirs == "lm_head.weight" and config.tie_word_embeddings:
            continue
        for ours, numbers in _converted(table, name, config, theirs, tensor.numpy()):
            data, type = quantize(ours, np.ascontiguousarray(numbers))
            writer.add_tensor(ours, data, raw_dtype=type)
    for ours, numbers in _factors(config):
        writer.add_tensor(ours, numbers)
    writer.write_header_to_file(path)
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    first = sorted(path.parent.glob(f"{path.stem}-00001-of-*.gguf"))
    return first[0] if split else path


def _converted(
    table: Any, name: str, config: Any, theirs: str, numbers: np.ndarray
) -> list[tuple[str, np.ndarray]]:
    if name == "gpt-oss" and ".mlp.experts." in theirs:
        return _gpt_oss_experts(theirs, numbers)
    if theirs.endswith("mlp.experts.gate_up_proj"):
        layer = theirs.split(".")[2]
        gate, up = np.split(numbers, 2, axis=1)
        return [
            (f"blk.{layer}.ffn_gate_exps.weight", gate),
            (f"blk.{layer}.ffn_up_exps.weight", up),
        ]
    if theirs.endswith("mlp.experts.down_proj"):
        return [(f"blk.{theirs.split('.')[2]}.ffn_down_exps.weight", numbers)]
    if theirs.endswith("self_attn.sinks"):
        theirs = f"{theirs}.weight"
    ours = table.get_name(theirs, try_suffixes=(".weight", ".bias"))
    assert ours is not None, theirs
    if name in PERMUTED and ".attn_q." in ours:
        numbers = _permuted(numbers, config.num_attention_heads)
    if name in PERMUTED and ".attn_k." in ours:
        numbers = _permuted(numbers, config.num_key_value_heads)
    if name.startswith("gemma") and ours.endswith("norm.weight"):
        numbers = numbers + 1
    if name == "gpt2" and numbers.ndim == 2 and ".h." in theirs:
        numbers = numbers.T
    return [(ours, numbers)]


def _gpt_oss_experts(theirs: str, numbers: np.ndarray) -> list[tuple[str, np.ndarray]]:
    """Gates are the even ones of a product's outputs, and stand in a tensor of their own."""
    suffix = "bias" if theirs.endswith("_bias") else "weight"
    rows = numbers if suffix == "bias" else numbers.swapaxes(1, 2)
    layer = f"blk.{theirs.split('.')[2]}"
    if "down_proj" in theirs:
        return [(f"{layer}.ffn_down_exps.{suffix}", rows)]
    return [
        (f"{layer}.ffn_gate_exps.{suffix}", rows[:, 0::2]),
        (f"{layer}.ffn_up_exps.{suffix}", rows[:, 1::2]),
    ]


def _permuted(numbers: np.ndarray, heads: int) -> np.ndarray:
    """From halves of a head to neighbours."""
    halves = numbers.reshape(heads, 2, numbers.shape[0] // heads // 2, *numbers.shape[1:])
    return halves.swapaxes(1, 2).reshape(numbers.shape)


def _factors(config: Any) -> list[tuple[str, np.ndarray]]:
    """What the converter writes of Llama 3's and Phi 3's scaling."""
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") == "longrope":
        return [
            (f"rope_factors_{length}.weight", np.array(rope[f"{length}_factor"], np.float32))
            for length in ("long", "short")
        ]
    if rope.get("rope_type") != "llama3":
        return []
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config, None)
    dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    plain = 1.0 / rope["rope_theta"] ** (torch.arange(0, dim, 2).float() / dim)
    return [("rope_freqs.weight", (plain / scaled).numpy())]


def _metadata(config: Any, name: str, model: Path) -> dict[str, Any]:
    """Of the model (keys with its architecture) and of its tokenizer."""
    own = {
        "context_length": config.max_position_embeddings,
        "block_count": config.num_hidden_layers,
        "embedding_length": config.hidden_size,
        "feed_forward_length": getattr(config, "intermediate_size", 4 * config.hidden_size),
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": getattr(config, "num_key_value_heads", None),
        "attention.layer_norm_rms_epsilon": getattr(config, "rms_norm_eps", None),
        "attention.layer_norm_epsilon": next(
            (
                float(getattr(config, field))
                for field in ("layer_norm_epsilon", "layer_norm_eps", "norm_epsilon")
                if hasattr(config, field)
            ),
            None,
        ),
        "attention.sliding_window": getattr(config, "sliding_window", None),
        "attn_logit_softcapping": getattr(config, "attn_logit_softcapping", None),
        "final_logit_softcapping": getattr(config, "final_logit_softcapping", None),
        "expert_count": getattr(config, "num_experts", None),
        "expert_used_count": getattr(config, "num_experts_per_tok", None),
        "expert_feed_forward_length": getattr(config, "moe_intermediate_size", None)
        or (config.intermediate_size if name == "gpt-oss" else None),
        **_rope(config, name),
    }
    if name == "granite":
        own |= {
            "embedding_scale": config.embedding_multiplier,
            "residual_scale": config.residual_multiplier,
            "attention.scale": config.attention_multiplier,
            "logit_scale": config.logits_scaling,
        }
    if head_dim := getattr(config, "head_dim", None):
        own |= {"attention.key_length": head_dim, "attention.value_length": head_dim}
    values = {f"{name}.{key}": value for key, value in own.items()}
    return {"general.name": "tiny", **values, **vocabulary(model)}


def _rope(config: Any, name: str) -> dict[str, Any]:
    rope = getattr(config, "rope_parameters", None)
    if not rope:
        return {}
    rope = rope.get("full_attention", rope)
    heads = config.hidden_size // config.num_attention_heads
    head_dim = getattr(config, "head_dim", None) or heads
    kind = rope["rope_type"]
    trained = rope.get("original_max_position_embeddings") or getattr(
        config, "original_max_position_embeddings", None
    )
    return {
        "rope.freq_base": float(rope["rope_theta"]),
        "rope.dimension_count": int(head_dim * rope.get("partial_rotary_factor", 1.0)),
        "rope.scaling.type": kind if kind in ("linear", "yarn", "longrope") else None,
        "rope.scaling.factor": rope.get("factor") if kind in ("linear", "yarn") else None,
        "rope.scaling.attn_factor": _longrope_factor(config, trained)
        if kind == "longrope"
        else None,
        "rope.scaling.original_context_length": trained,
    }


def _longrope_factor(config: Any, trained: int) -> float:
    """As the converter computes it of a Phi 3, whose config does not say it."""
    return float(np.sqrt(1 + np.log(config.max_position_embeddings / trained) / np.log(trained)))


def vocabulary(model: Path) -> dict[str, Any]:
    """The metadata of the byte-level tokenizer in a model's folder."""
    stored = json.loads((model / "tokenizer.json").read_text("utf-8"))
    special = {token["content"] for token in stored["added_tokens"]}
    by_id = {index: token for token, index in stored["model"]["vocab"].items()}
    tokens = [by_id[index] for index in range(len(by_id))]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [CONTROL if one in special else NORMAL for one in tokens],
        "tokenizer.ggml.merges": [" ".join(pair) for pair in stored["model"]["merges"]],
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 1,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": CHAT_TEMPLATE,
    }


def _add(writer: Any, key: str, value: Any) -> None:
    if value is None:
        return
    if isinstance(value, str):
        writer.add_string(key, value)
    elif isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    else:
        writer.add_array(key, value)
