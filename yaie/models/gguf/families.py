"""The architectures that are read from GGUF, and what llama.cpp's converter does to each one's weights.

`general.architecture` is the name. transformers has tables from llama.cpp's keys to its own fields
(`GGUF_CONFIG_MAPPING`); a `Family` says which of them holds, and adds what it leaves out, because its
loader then runs on a default of the class (GPT-2's context, Qwen3's size of heads, Gemma's soft caps).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Values = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Keys:
    """metadata: of the file. architecture: what its keys begin with. tensors: their names."""

    metadata: Values
    architecture: str
    tensors: frozenset[str]

    def get(self, name: str, default: Any = None) -> Any:
        return self.metadata.get(f"{self.architecture}.{name}", default)

    def given(self, **fields: str) -> Values:
        """Fields of a config, each with the value of a key, for the keys that the file has."""
        values = {field: self.get(key) for field, key in fields.items()}
        return {field: value for field, value in values.items() if value is not None}

    def has(self, ending: str) -> bool:
        """Whether a layer has a tensor of this name."""
        return any(name.endswith(f".{ending}") for name in self.tensors)

    @property
    def head_dim(self) -> int:
        stated = self.get("attention.key_length") or self.get("rope.dimension_count")
        return int(stated or self.get("embedding_length") // self.get("attention.head_count"))

    @property
    def rotary_share(self) -> float:
        """Of a head's numbers, how many are rotated."""
        return float(self.get("rope.dimension_count", self.head_dim) / self.head_dim)


@dataclass(frozen=True, slots=True)
class Family:
    """model_type: of transformers. table: in GGUF_CONFIG_MAPPING. more: further fields of its config.
    permutes: whether rows of queries and keys are in llama.cpp's order. norm_shift: what is to be added
    to the weights of norms. transposes: endings of the names of products that are [in, out] in
    transformers. further: of a layer's tensors that the gguf package's table does not have, their names
    in transformers. interleaves: whether two tensors that are one in transformers take turns in it,
    number by number, and do not stand one behind the other."""

    model_type: str
    table: str
    more: Callable[[Keys], Values] = lambda keys: {}
    permutes: bool = False
    norm_shift: float = 0.0
    transposes: tuple[str, ...] = ()
    further: Mapping[str, str] = field(default_factory=dict)
    interleaves: bool = False


def _llama(keys: Keys) -> Values:
    return {
        "head_dim": keys.head_dim,
        "attention_bias": keys.has("attn_q.bias"),
        "mlp_bias": keys.has("ffn_up.bias"),
    }


def _with_heads(keys: Keys) -> Values:
    return {"head_dim": keys.head_dim, "attention_bias": keys.has("attn_q.bias")}


def _qwen3_moe(keys: Keys) -> Values:
    return {
        **_with_heads(keys),
        **keys.given(
            moe_intermediate_size="expert_feed_forward_length",
            num_experts="expert_count",
            num_experts_per_tok="expert_used_count",
        ),
    }


def _granite(keys: Keys) -> Values:
    scales = keys.given(
        embedding_multiplier="embedding_scale",
        residual_multiplier="residual_scale",
        attention_multiplier="attention.scale",
        logits_scaling="logit_scale",
    )
    return {"attention_bias": keys.has("attn_q.bias"), "mlp_bias": keys.has("ffn_up.bias")} | scales


def _phi3(keys: Keys) -> Values:
    trained = keys.get("rope.scaling.original_context_length", keys.get("context_length"))
    return {
        "sliding_window": keys.get("attention.sliding_window") or None,
        "original_max_position_embeddings": trained,
    }


def _gemma(keys: Keys) -> Values:
    return {"head_dim": keys.head_dim}


def _gemma2(keys: Keys) -> Values:
    """The largest one divides by a head's share, not by its size: llama.cpp knows it by its layers."""
    return {
        "head_dim": keys.head_dim,
        "query_pre_attn_scalar": _share(keys) if keys.get("block_count") == 46 else keys.head_dim,
        **keys.given(
            sliding_window="attention.sliding_window",
            attn_logit_softcapping="attn_logit_softcapping",
            final_logit_softcapping="final_logit_softcapping",
        ),
    }


def _gemma3(keys: Keys) -> Values:
    """Five layers with a window, then one without, unless the file says otherwise."""
    is_largest = keys.get("block_count") == 62
    return {
        "head_dim": keys.head_dim,
        "query_pre_attn_scalar": _share(keys) if is_largest else keys.head_dim,
        "layer_types": _layer_types(keys, 6),
        **keys.given(
            sliding_window="attention.sliding_window",
            final_logit_softcapping="final_logit_softcapping",
        ),
    }


def _gpt_oss(keys: Keys) -> Values:
    """Every other layer has a window, the first one too, unless the file says otherwise."""
    return {
        **_with_heads(keys),
        "layer_types": _layer_types(keys, 2),
        **keys.given(
            intermediate_size="expert_feed_forward_length",
            sliding_window="attention.sliding_window",
        ),
    }


def _layer_types(keys: Keys, every: int) -> list[str]:
    """Of each layer. every: how often one sees all of a text, where the file does not say it."""
    pattern = keys.get("attention.sliding_window_pattern", every)
    if not isinstance(pattern, list):
        pattern = [bool((layer + 1) % pattern) for layer in range(keys.get("block_count"))]
    return ["sliding_attention" if one else "full_attention" for one in pattern]


def _share(keys: Keys) -> int:
    return int(keys.get("embedding_length") // keys.get("attention.head_count"))


def _gpt2(keys: Keys) -> Values:
    return keys.given(n_positions="context_length", n_inner="feed_forward_length")


def _stablelm(keys: Keys) -> Values:
    return {
        "use_qkv_bias": keys.has("attn_q.bias"),
        "use_parallel_residual": not keys.has("ffn_norm.weight"),
    }


_EXPERTS = ("ffn_gate_exps.weight", "ffn_up_exps.weight", "ffn_down_exps.weight")
_GPT2 = ("attn_qkv.weight", "attn_output.weight", "ffn_up.weight", "ffn_down.weight")

FAMILIES: dict[str, Family] = {
    "llama": Family("llama", "llama", _llama, permutes=True),
    "qwen2": Family("qwen2", "qwen2"),
    "qwen3": Family("qwen3", "qwen3", _with_heads),
    "qwen3moe": Family("qwen3_moe", "qwen3_moe", _qwen3_moe),
    "smollm3": Family("smollm3", "qwen2", permutes=True),
    "granite": Family("granite", "qwen2", _granite, permutes=True),
    "olmo2": Family("olmo2", "qwen2"),
    "phi3": Family("phi3", "phi3", _phi3),
    "gemma": Family("gemma", "gemma2", _gemma, norm_shift=-1.0),
    "gemma2": Family("gemma2", "gemma2", _gemma2, norm_shift=-1.0),
    "gemma3": Family("gemma3_text", "gemma3", _gemma3, norm_shift=-1.0),
    "gpt2": Family("gpt2", "gpt2", _gpt2, transposes=_GPT2),
    "gpt-oss": Family(
        "gpt_oss",
        "gpt_oss",
        _gpt_oss,
        transposes=_EXPERTS,
        further={
            "ffn_gate_exps.weight": "mlp.experts.gate_up_proj",
            "ffn_up_exps.weight": "mlp.experts.gate_up_proj",
            "ffn_gate_exps.bias": "mlp.experts.gate_up_proj_bias",
            "ffn_up_exps.bias": "mlp.experts.gate_up_proj_bias",
            "ffn_down_exps.bias": "mlp.experts.down_proj_bias",
        },
        interleaves=True,
    ),
    "starcoder2": Family("starcoder2", "starcoder2"),
    "stablelm": Family("stablelm", "stablelm", _stablelm),
}
"""By `general.architecture`. Llama's covers Mistral, Mistral Nemo, SmolLM and others that llama.cpp
counts among them."""
