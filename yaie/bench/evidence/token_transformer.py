"""How the residual stream grows through the tutor's layers, and where its parameters are.

    python -m yaie.bench.evidence.token_transformer

For chapter "Inside a transformer layer". No times: nothing here needs an idle machine.
"""

from typing import Any

import torch
from torch import Tensor

from yaie.bench.evidence import EVIDENCE, four
from yaie.bench.report import save
from yaie.core.config import EngineConfig
from yaie.engine.llm_engine import LLMEngine
from yaie.models import LoadedModel, ModelLoader
from yaie.models.llama import LlamaAdapter
from yaie.models.naive_kv import ContiguousKV
from yaie.parts import load_parts

OUT = EVIDENCE / "token_transformer.json"


class Watched:
    """The reference's operations; keeps every sum that goes on as the residual."""

    def __init__(self) -> None:
        self.inner = load_parts("none")["transformer_ops"].TransformerOps()
        self.sums: list[Tensor] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def fused_add_rms_norm(
        self, x: Tensor, residual: Tensor, weight: Tensor, eps: float
    ) -> tuple[Tensor, Tensor]:
        normed, total = self.inner.fused_add_rms_norm(x, residual, weight, eps)
        self.sums.append(total.clone())
        return normed, total


def main() -> None:
    ops = Watched()
    model = ModelLoader(EngineConfig(), progress=False).load(ops)
    prompt = LLMEngine(mine="none", num_blocks=64).encode_chat(four.messages("A"))
    record = {
        "command": "python -m yaie.bench.evidence.token_transformer",
        "workload": "the 48 prompt tokens of request A; root mean square over tokens and dimensions",
        "residual": _residual(model, ops, prompt),
        "parameters": _parameters(model),
        "ones_summed_in_bfloat16": _ones_in_bfloat16(1000),
    }
    print(record)
    save(str(OUT), record)


@torch.inference_mode()
def _residual(model: LoadedModel, ops: Watched, prompt: list[int]) -> dict[str, list[float]]:
    """Of the embedding, then after each layer: root mean square, and largest absolute value."""
    tokens, positions = torch.tensor(prompt), torch.arange(len(prompt))
    model.adapter.forward(tokens, positions, ContiguousKV().attend([("a", len(prompt))]))
    assert isinstance(model.adapter, LlamaAdapter)
    embedded = torch.nn.functional.embedding(tokens, model.adapter.embedding)
    stream = [embedded, *ops.sums[1::2]]
    return {
        "rms": [float(x.square().mean().sqrt()) for x in stream],
        "largest": [float(x.abs().max()) for x in stream],
    }


def _parameters(model: LoadedModel) -> dict[str, int]:
    """By what they belong to, all layers together."""
    config = model.adapter.config
    hidden, layers, head = config.hidden_size, config.num_hidden_layers, config.head_dim
    query, key = config.num_attention_heads * head, config.num_key_value_heads * head
    parts = {
        "attention": layers * hidden * (2 * query + 2 * key),
        "feed_forward": layers * 3 * hidden * config.intermediate_size,
        "norms": (2 * layers + 1) * hidden,
        "embedding": config.vocab_size * hidden,
    }
    assert sum(parts.values()) == model.num_parameters, (parts, model.num_parameters)
    return {**parts, "all": sum(parts.values())}


def _ones_in_bfloat16(count: int) -> float:
    """`count` ones added one after the other, each sum rounded to bfloat16."""
    total = torch.zeros((), dtype=torch.bfloat16)
    for one in torch.ones(count, dtype=torch.bfloat16):
        total = total + one
    return float(total)


if __name__ == "__main__":
    main()
