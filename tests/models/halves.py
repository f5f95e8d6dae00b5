"""Tiny random checkpoints of models that take images or sound beside text, as `tests.models.tiny` makes
those of text alone. transformers' own model of all of it says what their text halves must answer."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from tests.models.tiny import CONTEXT, SEED, VOCAB, _no_bars, _spread, tiny_tokenizer
from yaie.models.skeleton import made

_TEXT: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 112,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": CONTEXT,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 2,
}
_TOWER: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 14,
}
_QWEN_TOWER: dict[str, Any] = {"depth": 2, "num_heads": 2, "in_channels": 3, "patch_size": 14}
_MROPE = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [4, 2, 2]}
_GEMMA_ROPE = {
    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
    "full_attention": {"rope_type": "default", "rope_theta": 100000.0},
}
_GEMMA4_ROPE = {
    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
    "full_attention": {
        "rope_type": "proportional",
        "partial_rotary_factor": 0.25,
        "rope_theta": 100000.0,
    },
}
_WINDOWS = ["sliding_attention", "full_attention"] * 2
_GEMMA4 = {
    **_TEXT,
    "global_head_dim": 32,
    "sliding_window": 24,
    "layer_types": _WINDOWS,
    "rope_parameters": _GEMMA4_ROPE,
    "vocab_size_per_layer_input": VOCAB,
    "hidden_size_per_layer_input": 16,
}
_GEMMA4_TOWER = {**_TOWER, "num_key_value_heads": 2, "head_dim": 16}


def _of(name: str, text: dict[str, Any], tower: dict[str, Any], **more: Any) -> Callable[[], Any]:
    """A configuration of transformers. text, tower: of its parts."""

    def make() -> Any:
        import transformers

        config = getattr(transformers, name)
        return config(text_config=text, vision_config=tower, **more)

    return make


def _tokens(*names: str) -> dict[str, int]:
    """Ids that stand for an image, or for its parts: no token of a text is one of them."""
    return {f"{name}_token_id": VOCAB + at for at, name in enumerate(names)}


HALVES: dict[str, Callable[[], Any]] = {
    "gemma3-image": _of(
        "Gemma3Config",
        {
            **_TEXT,
            "sliding_window": 24,
            "layer_types": _WINDOWS,
            "query_pre_attn_scalar": 16,
            "rope_parameters": _GEMMA_ROPE,
        },
        _TOWER,
        mm_tokens_per_image=4,
        image_token_index=VOCAB,
    ),
    "gemma4-shared": _of(  # E2B: later layers read the keys of earlier ones, and embeddings of their own
        "Gemma4Config",
        {**_GEMMA4, "num_kv_shared_layers": 2, "final_logit_softcapping": 30.0},
        _GEMMA4_TOWER,
        audio_config=None,
        **_tokens("image", "video", "audio"),
    ),
    "gemma4-moe": _of(  # 26B A4B: keys are values in full attention, experts beside a dense layer
        "Gemma4Config",
        {
            **_GEMMA4,
            "hidden_size_per_layer_input": 0,
            "attention_k_eq_v": True,
            "num_global_key_value_heads": 1,
            "enable_moe_block": True,
            "num_experts": 4,
            "top_k_experts": 2,
            "moe_intermediate_size": 32,
        },
        _GEMMA4_TOWER,
        audio_config=None,
        **_tokens("image", "video", "audio"),
    ),
    "gemma3n": _of(  # its tower is of timm, which need not be there
        "Gemma3nConfig",
        {
            **_TEXT,
            "head_dim": 16,
            "sliding_window": 24,
            "layer_types": _WINDOWS,
            "rope_parameters": _GEMMA_ROPE,
            "vocab_size_per_layer_input": VOCAB,
            "hidden_size_per_layer_input": 16,
            "num_kv_shared_layers": 2,
            "laurel_rank": 8,
            "activation_sparsity_pattern": [0.95, 0.95, 0.0, 0.0],
        },
        {"hidden_size": 32, "vocab_size": 8, "vocab_offset": VOCAB},
        audio_config={
            "hidden_size": 32,
            "vocab_size": 8,
            "vocab_offset": VOCAB + 8,
            "conf_num_attention_heads": 2,
            "conf_num_hidden_layers": 1,
            "sscp_conv_channel_size": [8, 8],
        },
        **_tokens("image", "audio"),
    ),
    "mistral3": _of(
        "Mistral3Config",
        {**_TEXT, "model_type": "mistral", "sliding_window": None},
        {**_TOWER, "model_type": "pixtral", "head_dim": 16},
        image_token_index=VOCAB,
    ),
    "ministral3": _of(
        "Mistral3Config",
        {
            **_TEXT,
            "model_type": "ministral3",
            "sliding_window": None,
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 10000.0,
                "factor": 4.0,
                "original_max_position_embeddings": 64,
                "llama_4_scaling_beta": 0.1,
                "beta_fast": 32.0,
                "beta_slow": 1.0,
                "mscale": 1.0,
                "mscale_all_dim": 1.0,
            },
        },
        {**_TOWER, "model_type": "pixtral", "head_dim": 16},
        image_token_index=VOCAB,
    ),
    "qwen2-vl": _of(
        "Qwen2VLConfig",
        {**_TEXT, "rope_parameters": _MROPE},
        {**_QWEN_TOWER, "embed_dim": 32, "hidden_size": 64},
        **_tokens("image", "video", "vision_start", "vision_end"),
    ),
    "qwen2.5-vl": _of(
        "Qwen2_5_VLConfig",
        {**_TEXT, "rope_parameters": _MROPE},
        {**_QWEN_TOWER, "hidden_size": 32, "intermediate_size": 48, "out_hidden_size": 64},
        **_tokens("image", "video", "vision_start", "vision_end"),
    ),
    "qwen3-vl": _of(
        "Qwen3VLConfig",
        {**_TEXT, "head_dim": 32, "rope_parameters": {**_MROPE, "mrope_section": [6, 5, 5]}},
        {
            **_QWEN_TOWER,
            "hidden_size": 32,
            "intermediate_size": 48,
            "out_hidden_size": 64,
            "deepstack_visual_indexes": [0, 1],
            "num_position_embeddings": 16,
        },
        tie_word_embeddings=True,
        **_tokens("image", "video", "vision_start", "vision_end"),
    ),
    "qwen3-vl-moe": _of(
        "Qwen3VLMoeConfig",
        {
            **_TEXT,
            "rope_parameters": _MROPE,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 48,
        },
        {
            **_QWEN_TOWER,
            "hidden_size": 32,
            "intermediate_size": 48,
            "out_hidden_size": 64,
            "deepstack_visual_indexes": [0, 1],
            "num_position_embeddings": 16,
        },
        **_tokens("image", "video", "vision_start", "vision_end"),
    ),
    "smolvlm": _of(
        "SmolVLMConfig",
        {**_TEXT, "model_type": "llama"},
        _TOWER,
        image_token_id=VOCAB,
        scale_factor=2,
    ),
    "idefics3": _of(
        "Idefics3Config",
        {**_TEXT, "model_type": "llama"},
        _TOWER,
        image_token_id=VOCAB,
        scale_factor=2,
    ),
    "llava": _of(
        "LlavaConfig",
        {**_TEXT, "model_type": "llama"},
        {**_TOWER, "model_type": "clip_vision_model", "projection_dim": 32},
        image_token_index=VOCAB,
    ),
    "llama4": _of(
        "Llama4Config",
        {
            **_TEXT,
            "intermediate_size_mlp": 96,
            "num_local_experts": 4,
            "num_experts_per_tok": 1,
            "moe_layers": [1, 3],
            "no_rope_layers": [1, 1, 1, 0],
            "attention_chunk_size": CONTEXT,
            "floor_scale": 16,
            "attn_temperature_tuning": True,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        },
        {
            **_TOWER,
            "vision_output_dim": 32,
            "projector_input_dim": 32,
            "projector_output_dim": 32,
            "pixel_shuffle_ratio": 0.5,
        },
    ),
}
"""Made by the configurations of published checkpoints, with other numbers."""

BY_HAND = {
    "gemma3-image", "gemma4-shared", "gemma4-moe", "mistral3", "qwen2-vl", "qwen2.5-vl", "qwen3-vl",
    "smolvlm", "idefics3", "llava",
}  # fmt: skip
"""Those whose decoder has an adapter here."""


def tiny_half(family: str, folder: Path) -> Path:
    """Write a checkpoint of this family (a key of HALVES), towers included, into `folder`."""
    from transformers import AutoModelForMultimodalLM

    torch.manual_seed(SEED)
    config = HALVES[family]()
    model = made(lambda one: AutoModelForMultimodalLM.from_config(one, dtype=torch.float32), config)
    _spread(model)
    folder.mkdir(parents=True, exist_ok=True)
    with _no_bars():
        model.save_pretrained(folder)
    if family == "gemma3n":  # of the tower that was not made
        path = folder / "model.safetensors"
        weights = load_file(path) | {"model.vision_tower.timm_model.stem.weight": torch.ones(3)}
        save_file(weights, path, metadata={"format": "pt"})
    return tiny_tokenizer(folder)


def whole_model(folder: Path) -> Any:
    """transformers' model for text and more, in float32."""
    from transformers import AutoModelForMultimodalLM

    def load(path: Path) -> Any:
        return AutoModelForMultimodalLM.from_pretrained(
            path, dtype=torch.float32, attn_implementation="eager"
        )

    with _no_bars():
        return made(load, folder).eval()
