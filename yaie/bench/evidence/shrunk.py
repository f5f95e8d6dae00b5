"""Configurations of transformers' families, made small: what they are by default, with few numbers."""

from typing import Any

LAYERS, HIDDEN, HEADS, KV_HEADS, HEAD, VOCAB, CONTEXT = 4, 64, 4, 2, 16, 384, 1024

_SIZES: dict[str, int] = {
    **dict.fromkeys(
        ("hidden_size", "n_embd", "d_model", "embed_dim", "width", "hidden_dim"), HIDDEN
    ),
    **dict.fromkeys(("out_hidden_size", "projection_dim", "word_embed_proj_dim"), HIDDEN),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "n_inner", "d_ff", "mlp_dim"), 96),
    **dict.fromkeys(("shared_intermediate_size", "ffn_hidden_size", "intermediate_size_mlp"), 96),
    **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 96),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size"), 32),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "num_layers", "n_layers"), LAYERS),
    **dict.fromkeys(("depth", "encoder_layers", "decoder_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads"), HEADS),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), HEADS),
    **dict.fromkeys(("num_key_value_heads", "num_kv_heads"), KV_HEADS),
    **dict.fromkeys(("head_dim", "swa_head_dim", "attention_head_dim", "kv_channels"), HEAD),
    **dict.fromkeys(("vocab_size", "vocab_size_per_layer_input"), VOCAB),
    **dict.fromkeys(("max_position_embeddings", "n_positions"), CONTEXT),
    **dict.fromkeys(("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"), 4),
    **dict.fromkeys(("num_experts_per_tok", "top_k_experts", "moe_k", "moe_topk"), 2),
    **dict.fromkeys(("kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "v_head_dim"), 16),
    **dict.fromkeys(("n_group", "topk_group", "first_k_dense_replace"), 1),
    "qk_rope_head_dim": 8,
    "sliding_window": 24,
    "hidden_size_per_layer_input": 16,
    "laurel_rank": 8,
    "num_kv_shared_layers": 0,
    "image_size": 28,
    "patch_size": 14,
}
_TOKENS = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}
_BY_LAYER = (
    "layer_types",
    "mlp_layer_types",
    "layers_block_type",
    "no_rope_layers",
    "moe_layers",
    "attention_layers",
    "num_attention_heads_per_layer",
    "intermediate_size",
    "activation_sparsity_pattern",
)
_CHOSEN = ("deepstack_visual_indexes", "fullatt_block_indexes")
_PLACES = ("image", "video", "audio", "vision", "boi", "eoi", "boa", "eoa")
_DROPPED = ("per_layer_config", "transformers_version", "architectures")
_KEPT = ("rope_parameters", "rope_scaling", "quantization_config", "id2label", "label2id")

_TOWER = {
    "hidden_size": HIDDEN,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD,
}
_ROPE = {"rope_type": "default", "rope_theta": 10000.0}
_FULL, _CONV = "full_attention", "conv"
_OWN: dict[str, dict[str, Any]] = {
    "gpt_neo": {"attention_types": [[["global", "local"], 2]]},
    "deepseek_v2": {"num_experts_per_tok": 2},
    "nemotron": {"num_key_value_heads": KV_HEADS},
    "lfm2": {"layer_types": [_CONV, _FULL, _CONV, _FULL]},
    "lfm2_moe": {"layer_types": [_CONV, _FULL, _CONV, _FULL]},
    "lfm2_vl": {"text_config.layer_types": [_CONV, _FULL, _CONV, _FULL]},
    "gemma4": {"vision_config": _TOWER},
    "gemma4_unified": {"vision_config": _TOWER},
    "granitemoehybrid": {
        "layer_types": [_FULL] * LAYERS,
        "num_local_experts": 0,
        "mamba_n_heads": 8,
        "mamba_d_head": HEAD,
    },
    "laguna": {"num_attention_heads_per_layer": [HEADS] * LAYERS},
    "hunyuan_v1_dense": {"head_dim": HEAD, "rope_parameters": _ROPE},
    "hunyuan_v1_moe": {"head_dim": HEAD, "rope_parameters": _ROPE},
    "ministral": {"head_dim": HEAD, "rope_parameters": _ROPE},
}
"""What the sizes alone do not make of a family's defaults. LFM2's and Granite 4's kinds of layers are
those of published checkpoints."""


def shrunk(model_type: str) -> Any:
    """The PretrainedConfig of this family with few layers, heads and tokens. Raises what transformers
    raises for sizes that do not fit together in it."""
    from transformers import CONFIG_MAPPING

    kind = CONFIG_MAPPING[model_type]
    values = kind().to_dict()
    for name, value in _OWN.get(model_type, {}).items():
        part, _, field = name.rpartition(".")
        (values[part] if part else values)[field] = value
    return kind.from_dict(_small(values))


def _small(values: dict[str, Any]) -> dict[str, Any]:
    small: dict[str, Any] = {}
    for name, value in values.items():
        if name in _DROPPED:
            continue
        if name in _KEPT or not isinstance(name, str):
            small[name] = value
        elif isinstance(value, dict):
            small[name] = _small(value)
        elif name in _TOKENS:
            small[name] = _TOKENS[name]
        elif name.endswith("_token_id") and name.startswith(_PLACES):
            small[name] = VOCAB + 1 + len(name) % 7
        elif name in _SIZES and isinstance(value, int) and not isinstance(value, bool):
            small[name] = _SIZES[name]
        else:
            small[name] = value
    layers = small.get("num_hidden_layers") or LAYERS
    for name in _BY_LAYER:
        if isinstance(small.get(name), list) and len(small[name]) > layers:
            small[name] = small[name][:layers]
    for name in _CHOSEN:
        if isinstance(small.get(name), list):
            small[name] = list(range(len(small[name])))[:2]
    if small.get("kv_lora_rank"):  # latent attention has a key for each head
        small["num_key_value_heads"] = HEADS
        if small.get("head_dim"):  # of what is rotated
            small["head_dim"] = small["qk_rope_head_dim"]
    _settle_rope(small)
    return small


def _settle_rope(small: dict[str, Any]) -> None:
    kind = str(small.get("model_type", ""))
    if "rope_parameters" not in small:
        return
    rope = small["rope_parameters"]
    if rope is None and small.get("head_dim"):
        rope = small["rope_parameters"] = {"rope_type": "default", "rope_theta": 10000.0}
    if isinstance(rope, dict) and ("mrope_section" in rope or _has_three_positions(kind)):
        turned = int(HEAD // 2 * rope.get("partial_rotary_factor", 1))
        rope |= {"rope_type": "default", "mrope_section": [turned // 2, turned // 4, turned // 4]}
        rope.setdefault("rope_theta", 10000.0)


def _has_three_positions(kind: str) -> bool:
    begins = ("qwen2_vl", "qwen2_5_vl", "qwen2_5_omni", "qwen3_vl", "qwen3_omni", "paddleocr_vl")
    return kind.endswith("_text") and kind.startswith((*begins, "glm4v", "glm_ocr", "ernie4_5_vl"))
