"""Tiny random checkpoints of every family in Hugging Face layout, made in the test and never stored.

`tiny_model(family, folder)` writes config, float32 safetensors, a byte-level BPE tokenizer and a chat
template. Weights are spread widely, so that the best token leads by far more than rounding error.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

SEED = 1234
VOCAB = 384
CONTEXT = 1024
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] not in ['system', 'user', 'assistant', 'tool'] %}"
    "{{ raise_exception('unknown role ' + message['role']) }}{% endif %}"
    "<|{{ message['role'] }}|>\n{{ message['content'] }}<|end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
_SPECIAL = ["<|bos|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]
_TEXT = (
    "A paged KV cache keeps keys and values in blocks of sixteen slots, and a block table says where. "
    "The scheduler admits a request when blocks are free; it preempts one when none is left. "
    "Ein Straßenschild zeigt 37 °C — naïve café, 日本語, emoji 🙂 and tabs\tand\nlines."
)

_LLAMA: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 112,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": CONTEXT,
}
_FLAT: dict[str, Any] = {**_LLAMA, "num_key_value_heads": 4}


def _llama(**changes: Any) -> Any:
    from transformers import LlamaConfig

    return LlamaConfig(**{**_LLAMA, **_ids(), **changes})


def _ids() -> dict[str, Any]:
    return {"vocab_size": VOCAB, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": None}


def _rope(**scaling: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_theta": 10000.0, **scaling}}


def _of(name: str, *bases: dict[str, Any], **changes: Any) -> Callable[[], Any]:
    def make() -> Any:
        import transformers

        values: dict[str, Any] = {}
        for base in (*bases, _ids(), changes):
            values |= base
        return getattr(transformers, name)(**values)

    return make


_LONGROPE = {
    "rope_type": "longrope",
    "short_factor": [1.0 + 0.1 * i for i in range(8)],
    "long_factor": [2.0 + 0.3 * i for i in range(8)],
}
_MLA: dict[str, Any] = {
    "kv_lora_rank": 16,
    "q_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 48,
    "n_group": 1,
    "topk_group": 1,
}
_GRANITE4: dict[str, Any] = {
    "layer_types": ["attention", "attention"],
    "num_local_experts": 0,
    "shared_intermediate_size": 112,
    "attention_multiplier": 0.1,
    "residual_multiplier": 0.7,
    "embedding_multiplier": 3.0,
    "logits_scaling": 2.0,
    "position_embedding_type": "nope",
    "mamba_n_heads": 8,
    "mamba_d_head": 16,
}
_GPT_OSS: dict[str, Any] = {
    "head_dim": 16,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "sliding_window": 24,
    **_rope(rope_type="default"),
}
_GEMMA4: dict[str, Any] = {
    "num_hidden_layers": 4,
    "head_dim": 16,
    "global_head_dim": 32,
    "sliding_window": 24,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        "full_attention": {
            "rope_type": "proportional",
            "partial_rotary_factor": 0.25,
            "rope_theta": 1e6,
        },
    },
}
_PUBLISHED_GPT_OSS: dict[str, Any] = {
    **_GPT_OSS,
    "hidden_size": 64,  # as wide as an expert, and narrower than all heads together
    "intermediate_size": 64,
    "num_attention_heads": 8,
    "num_key_value_heads": 1,
    "num_experts_per_tok": 4,
    **_rope(
        rope_type="yarn",
        rope_theta=150000.0,
        factor=32.0,
        beta_fast=32.0,
        beta_slow=1.0,
        truncate=False,
        original_max_position_embeddings=CONTEXT // 32,
    ),
}
_LFM2: dict[str, Any] = {
    **_LLAMA,
    "num_hidden_layers": 5,
    "block_multiple_of": 16,
    "layer_types": ["conv", "conv", "full_attention", "conv", "full_attention"],
}
_QWEN3_5: dict[str, Any] = {
    **_LLAMA,
    "num_hidden_layers": 4,
    "head_dim": 32,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 24,
}
_MAMBA2: dict[str, Any] = {
    "layer_types": ["mamba", "attention", "mamba", "mamba"],
    "mamba_d_state": 24,
}
_GPT2 = {"n_embd": 64, "n_layer": 3, "n_head": 4, "n_positions": CONTEXT}

FAMILIES: dict[str, Callable[[], Any]] = {
    "llama": _llama,
    "llama-tied": lambda: _llama(tie_word_embeddings=True, head_dim=24),
    "llama-biases": lambda: _llama(attention_bias=True, mlp_bias=True),
    "llama3-rope": lambda: _llama(
        **_rope(
            rope_type="llama3",
            factor=8.0,
            low_freq_factor=1.0,
            high_freq_factor=4.0,
            original_max_position_embeddings=64,
        )
    ),
    "llama-linear": lambda: _llama(**_rope(rope_type="linear", factor=4.0)),
    "llama-dynamic": lambda: _llama(**_rope(rope_type="dynamic", factor=4.0)),
    "llama-yarn": lambda: _llama(
        **_rope(rope_type="yarn", factor=8.0, original_max_position_embeddings=128)
    ),
    "llama-longrope": lambda: _llama(
        **_rope(**_LONGROPE, original_max_position_embeddings=CONTEXT // 2)
    ),
    "mistral": _of("MistralConfig", _LLAMA, sliding_window=24),
    "mistral-full": _of("MistralConfig", _LLAMA, sliding_window=None),
    "qwen2": _of(
        "Qwen2Config",
        _LLAMA,
        num_hidden_layers=3,
        use_sliding_window=True,
        sliding_window=24,
        max_window_layers=1,
    ),
    "qwen3": _of("Qwen3Config", _LLAMA, head_dim=32, tie_word_embeddings=True),
    "gpt2": _of("GPT2Config", _GPT2),
    "gpt2-scaled": _of(
        "GPT2Config", _GPT2, scale_attn_by_inverse_layer_idx=True, activation_function="gelu"
    ),
    "gemma2": _of(
        "Gemma2Config",
        _LLAMA,
        head_dim=32,
        sliding_window=24,
        query_pre_attn_scalar=16,
        attn_logit_softcapping=20.0,
        final_logit_softcapping=30.0,
    ),
    "gemma3": _of(
        "Gemma3TextConfig",
        _LLAMA,
        num_hidden_layers=3,
        head_dim=32,
        sliding_window=24,
        query_pre_attn_scalar=16,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
    ),
    "gemma3-linear": _of(  # five layers with a window to one without, one key head, as in the 1B
        "Gemma3TextConfig",
        _LLAMA,
        num_hidden_layers=6,
        num_key_value_heads=1,
        head_dim=32,
        sliding_window=24,
        query_pre_attn_scalar=21,
        attn_logit_softcapping=5.0,  # which transformers does not read
        final_logit_softcapping=30.0,
        attention_bias=True,
        tie_word_embeddings=False,
        rope_parameters={
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
        },
    ),
    "gemma4": _of(  # E2B: the last two layers borrow keys and values, each token speaks to each layer
        "Gemma4TextConfig",
        _LLAMA,
        _GEMMA4,
        hidden_size_per_layer_input=16,
        vocab_size_per_layer_input=VOCAB,
        num_kv_shared_layers=2,
        use_double_wide_mlp=True,
        final_logit_softcapping=30.0,
    ),
    "gemma4-31b": _of(  # keys are values where a layer sees all of a text
        "Gemma4TextConfig",
        _LLAMA,
        _GEMMA4,
        hidden_size_per_layer_input=0,
        attention_k_eq_v=True,
        num_global_key_value_heads=1,
        use_bidirectional_attention="vision",
        tie_word_embeddings=False,
    ),
    "gemma4-26b": _of(  # experts beside a dense part
        "Gemma4TextConfig",
        _LLAMA,
        _GEMMA4,
        hidden_size_per_layer_input=0,
        attention_k_eq_v=True,
        num_global_key_value_heads=1,
        enable_moe_block=True,
        num_experts=6,
        top_k_experts=3,
        moe_intermediate_size=32,
    ),
    "gemma4-12b": _of("Gemma4UnifiedTextConfig", _LLAMA, _GEMMA4, attention_k_eq_v=True),
    "phi3": _of("Phi3Config", _LLAMA, sliding_window=24),
    "phi3-longrope": _of(
        "Phi3Config",
        _LLAMA,
        original_max_position_embeddings=CONTEXT // 2,
        **_rope(**_LONGROPE),
    ),
    "phi": _of("PhiConfig", _FLAT, **_rope(rope_type="default", partial_rotary_factor=0.5)),
    "opt": _of(
        "OPTConfig",
        hidden_size=64,
        ffn_dim=112,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=CONTEXT,
        word_embed_proj_dim=48,
    ),
    "gpt_neox": _of("GPTNeoXConfig", _FLAT),
    "olmo2": _of("Olmo2Config", _LLAMA),
    "olmo2-flat": _of("Olmo2Config", _FLAT, attention_bias=True, tie_word_embeddings=True),
    "olmo3": _of(
        "Olmo3Config",
        _LLAMA,
        num_hidden_layers=4,
        sliding_window=24,
        rope_parameters={
            "sliding_attention": {"rope_type": "default", "rope_theta": 500000.0},
            "full_attention": {
                "rope_type": "yarn",
                "rope_theta": 500000.0,
                "factor": 8.0,
                "original_max_position_embeddings": CONTEXT // 8,
                "attention_factor": 1.2,
            },
        },
    ),
    "stablelm": _of("StableLmConfig", _LLAMA),
    "cohere": _of("CohereConfig", _LLAMA, logit_scale=0.25),
    "granite": _of(
        "GraniteConfig",
        _LLAMA,
        attention_multiplier=0.1,
        residual_multiplier=0.7,
        embedding_multiplier=3.0,
        logits_scaling=2.0,
    ),
    "granite-wide": _of(  # numbers of Granite 3, biases, a tied head
        "GraniteConfig",
        _FLAT,
        attention_multiplier=0.0625,
        residual_multiplier=0.22,
        embedding_multiplier=12.0,
        logits_scaling=8.0,
        attention_bias=True,
        mlp_bias=True,
        tie_word_embeddings=True,
    ),
    "gpt_oss": _of("GptOssConfig", _LLAMA, **_GPT_OSS),
    "gpt_oss-20b": _of(
        "GptOssConfig",
        _LLAMA,
        _PUBLISHED_GPT_OSS,
        num_hidden_layers=2,
        num_local_experts=8,
    ),
    "gpt_oss-120b": _of(
        "GptOssConfig",
        _LLAMA,
        _PUBLISHED_GPT_OSS,
        num_hidden_layers=3,
        num_local_experts=16,
        tie_word_embeddings=True,  # which is not published, and transformers has it
    ),
    "moe-qwen2": _of(  # makes a mask of windows that no layer uses
        "Qwen2MoeConfig",
        _LLAMA,
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=48,
        shared_expert_intermediate_size=48,
    ),
    "granite4": _of("GraniteMoeHybridConfig", _LLAMA, **_GRANITE4),
    "granite4-rope": _of(
        "GraniteMoeHybridConfig",
        _LLAMA,
        **_GRANITE4 | {"position_embedding_type": "rope"},
        **_rope(rope_type="default"),
    ),
    "deepseek_v3": _of(  # keys are wider than values
        "DeepseekV3Config",
        _FLAT,
        **_MLA,
        first_k_dense_replace=1,
    ),
    "lfm2": _of("Lfm2Config", _LFM2),
    "lfm2-wide": _of(  # widths as they are stated, biases, a longer tail, a head of its own
        "Lfm2Config",
        _LFM2,
        block_auto_adjust_ff_dim=False,
        conv_bias=True,
        conv_L_cache=5,
        tie_word_embeddings=False,
    ),
    "qwen3_5": _of("Qwen3_5TextConfig", _QWEN3_5),
    "granite4-h": _of("GraniteMoeHybridConfig", _LLAMA, **_GRANITE4 | _MAMBA2, num_hidden_layers=4),
    "granite4-h-groups": _of(
        "GraniteMoeHybridConfig",
        _LLAMA,
        **_GRANITE4 | _MAMBA2 | {"position_embedding_type": "rope"},
        **_rope(rope_type="default"),
        num_hidden_layers=4,
        mamba_n_groups=2,
        mamba_proj_bias=True,
        mamba_conv_bias=False,
    ),
    "bloom": _of("BloomConfig", hidden_size=64, n_layer=2, n_head=4),
    "mamba": _of("MambaConfig", hidden_size=64, num_hidden_layers=2, state_size=8),
    "rwkv": _of("RwkvConfig", hidden_size=64, num_hidden_layers=2, attention_hidden_size=64),
}

_BY_HAND = (
    "llama", "mistral", "qwen2", "qwen3", "gpt2", "gemma2", "gemma3", "gemma4", "olmo",
    "granite", "gpt_oss",
)  # fmt: skip
_IN_PART = ("granite4",)
"""Of these families, but not as any published model is: without positions."""
STATEFUL = [name for name in FAMILIES if name.startswith(("lfm2", "qwen3_5", "granite4-h"))]
"""By hand; the generic adapter has no place for a state."""
AMPLIFIED = {"qwen3_5": 2e-3}
"""What rounding in float32 comes to in logits, where it is more than 1e-4: transformers' are as far from
those in float64, because what a matrix of the delta rule holds is read and written over and over."""
HAND_WRITTEN = [
    name for name in FAMILIES if name.startswith(_BY_HAND) and name not in (*STATEFUL, *_IN_PART)
]
REFUSED = ["bloom", "mamba", "rwkv"]
GENERIC = [
    name
    for name in FAMILIES
    if name not in HAND_WRITTEN and name not in REFUSED and name not in STATEFUL
]
SERVED = HAND_WRITTEN + GENERIC


def tiny_model(family: str, folder: Path) -> Path:
    """Write a checkpoint of this family (a key of FAMILIES, or "pickle") into `folder`; returns it."""
    config = FAMILIES["llama" if family == "pickle" else family]()
    return write_model(config, folder, pickle=family == "pickle")


def write_model(config: Any, folder: Path, *, pickle: bool = False) -> Path:
    """Write a checkpoint of a transformers config, with a tokenizer, into `folder`; returns it."""
    from transformers import AutoModelForCausalLM

    torch.manual_seed(SEED)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    _spread(model)
    folder.mkdir(parents=True, exist_ok=True)
    if pickle:
        config.architectures = [type(model).__name__]
        config.save_pretrained(folder)
        torch.save(model.state_dict(), folder / "pytorch_model.bin")
    else:
        with _no_bars():
            model.save_pretrained(folder)
    tiny_tokenizer(folder)
    return folder


@contextmanager
def _no_bars() -> Iterator[None]:
    from transformers.utils import logging

    logging.disable_progress_bar()
    yield
    logging.enable_progress_bar()


@torch.no_grad()
def _spread(model: torch.nn.Module) -> None:
    """Random weights under which every part of the model matters and logits lie far apart."""
    generator = torch.Generator().manual_seed(SEED)
    for parameter in model.parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if parameter.dim() > 1:
            parameter.copy_(noise * 0.25)
        else:
            parameter.copy_(parameter + noise * 0.3)


def tiny_tokenizer(folder: Path, *, chat_template: bool = True) -> Path:
    """Train a byte-level BPE tokenizer on a few sentences and write it into `folder`."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB,
        special_tokens=_SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([_TEXT] * 4, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|bos|>",
        "eos_token": "<|end|>",
        "clean_up_tokenization_spaces": False,
    }
    if chat_template:
        settings["chat_template"] = CHAT_TEMPLATE
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    return folder
