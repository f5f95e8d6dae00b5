"""A tiny hybrid model of random weights, in the layout of Qwen3.5: layers that keep a state, beside one
that attends. Its answers mean nothing, and depend on all of the text before."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from yaie.models.packed_checkpoint import COPIED
from yaie.models.tutor import TUTOR_PATH
from yaie.models.weights import SINGLE_FILE

HIDDEN, INNER, WIDTH = 64, 96, 4
HEADS, KV_HEADS, HEAD_DIM = 4, 2, 32
KEY_HEADS, VALUE_HEADS, D_K, D_V = 2, 4, 16, 24
CONTEXT = 1024
SEED = 22


def tiny_hybrid(folder: Path, kinds: str = "ddda", vocab: int | None = None) -> Path:
    """Write it, with the tutor's tokenizer. kinds: of its layers, d for a delta rule, a for attention.
    vocab: how many of the tutor's tokens it knows, if not all."""
    folder.mkdir(parents=True)
    for path in TUTOR_PATH.iterdir():
        if path.suffix in COPIED:
            shutil.copyfile(path, folder / path.name)
    tutor = json.loads((TUTOR_PATH / "config.json").read_text("utf-8"))
    vocab = vocab or int(tutor["vocab_size"])
    names = {"d": "linear_attention", "a": "full_attention"}
    config = {
        "architectures": ["Qwen3_5ForCausalLM"],
        "model_type": "qwen3_5_text",
        "dtype": "float32",
        "vocab_size": vocab,
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_hidden_layers": len(kinds),
        "layer_types": [names[kind] for kind in kinds],
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "linear_conv_kernel_dim": WIDTH,
        "linear_num_key_heads": KEY_HEADS,
        "linear_num_value_heads": VALUE_HEADS,
        "linear_key_head_dim": D_K,
        "linear_value_head_dim": D_V,
        "max_position_embeddings": CONTEXT,
        "tie_word_embeddings": True,
        **{name: tutor[name] for name in ("bos_token_id", "eos_token_id", "pad_token_id")},
    }
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    save_file(dict(_weights(kinds, vocab)), folder / SINGLE_FILE, {"format": "pt"})
    return folder


def _weights(kinds: str, vocab: int) -> Iterator[tuple[str, Tensor]]:
    """The spread is wide, and the best token leads by far. Decays are weak, and states remember."""
    generator = torch.Generator().manual_seed(SEED)

    def some(*shape: int, scale: float = 0.25, around: float = 0.0) -> Tensor:
        return torch.randn(*shape, generator=generator) * scale + around

    yield "model.embed_tokens.weight", some(vocab, HIDDEN)
    yield "model.norm.weight", some(HIDDEN)
    for number, kind in enumerate(kinds):
        parts = {
            "input_layernorm.weight": some(HIDDEN),
            "post_attention_layernorm.weight": some(HIDDEN),
            "mlp.gate_proj.weight": some(INNER, HIDDEN),
            "mlp.up_proj.weight": some(INNER, HIDDEN),
            "mlp.down_proj.weight": some(HIDDEN, INNER),
        }
        if kind == "d":
            key, value = KEY_HEADS * D_K, VALUE_HEADS * D_V
            parts |= {
                "linear_attn.in_proj_qkv.weight": some(2 * key + value, HIDDEN),
                "linear_attn.in_proj_z.weight": some(value, HIDDEN),
                "linear_attn.in_proj_b.weight": some(VALUE_HEADS, HIDDEN),
                "linear_attn.in_proj_a.weight": some(VALUE_HEADS, HIDDEN),
                "linear_attn.conv1d.weight": some(2 * key + value, 1, WIDTH),
                "linear_attn.dt_bias": some(VALUE_HEADS, around=-1.0),
                "linear_attn.A_log": some(VALUE_HEADS, around=-3.0),
                "linear_attn.norm.weight": some(D_V, around=1.0),
                "linear_attn.out_proj.weight": some(HIDDEN, value),
            }
        else:
            query, key = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
            parts |= {
                "self_attn.q_proj.weight": some(2 * query, HIDDEN),
                "self_attn.k_proj.weight": some(key, HIDDEN),
                "self_attn.v_proj.weight": some(key, HIDDEN),
                "self_attn.o_proj.weight": some(HIDDEN, query),
                "self_attn.q_norm.weight": some(HEAD_DIM),
                "self_attn.k_norm.weight": some(HEAD_DIM),
            }
        for name, weight in parts.items():
            yield f"model.layers.{number}.{name}", weight
