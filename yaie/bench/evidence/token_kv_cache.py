"""The same answers with keys and values kept and with everything computed again at each token.

    python -m yaie.bench.evidence.token_kv_cache

For chapter "The KV cache". Counts are exact; times need an idle machine.
"""

import statistics
import time
from typing import Any

import torch

from yaie.bench.evidence import EVIDENCE, four
from yaie.bench.report import save
from yaie.core.config import EngineConfig
from yaie.engine.llm_engine import LLMEngine
from yaie.models import LoadedModel, ModelLoader
from yaie.models.naive_kv import ContiguousKV
from yaie.parts import load_parts

OUT = EVIDENCE / "token_kv_cache.json"
REPEATS = 3
LENGTHS = [64, 256, 1024]


def main() -> None:
    ops = load_parts("none")["transformer_ops"].TransformerOps()
    model = ModelLoader(EngineConfig(), progress=False).load(ops)
    prompts = _prompts()
    requests = {name: _compare(model, name, prompt) for name, prompt in prompts.items()}
    steps = {str(length): _one_token(model, length) for length in LENGTHS}
    spec = model.adapter.kv_layers
    element = torch.empty(0, dtype=model.dtype).element_size()
    record = {
        "command": "python -m yaie.bench.evidence.token_kv_cache",
        "workload": f"requests A to D, greedy, one at a time; medians of {REPEATS}",
        "bytes_per_token": 2 * sum(one.num_kv_heads * one.head_dim for one in spec) * element,
        "requests": requests,
        "one_token": steps,
    }
    save(str(OUT), record)


def _prompts() -> dict[str, list[int]]:
    engine = LLMEngine(mine="none", num_blocks=64)
    return {name: engine.encode_chat(four.messages(name)) for name in four.QUESTIONS}


def _compare(model: LoadedModel, name: str, prompt: list[int]) -> dict[str, Any]:
    runs = {
        kept: [_generate(model, prompt, kept) for _ in range(REPEATS)] for kept in (True, False)
    }
    with_cache, without = runs[True][0], runs[False][0]
    assert with_cache["answer"] == without["answer"], "the two must say the same"
    figures = {
        "prompt": len(prompt),
        "answer": len(with_cache["answer"]),
        "computed_with": with_cache["computed"],
        "computed_without": without["computed"],
        "ratio": without["computed"] / with_cache["computed"],
        "rows_copied": with_cache["copied"],
        "ms_with": statistics.median(run["ms"] for run in runs[True]),
        "ms_without": statistics.median(run["ms"] for run in runs[False]),
    }
    figures["time_ratio"] = figures["ms_without"] / figures["ms_with"]
    print(name, figures, flush=True)
    return figures


@torch.inference_mode()
def _generate(model: LoadedModel, prompt: list[int], kept: bool) -> dict[str, Any]:
    """Greedy until the end token. computed: tokens through the layers; copied: rows of K and V that
    growing by concatenation moved, per layer."""
    tokens, kv, computed, copied = list(prompt), ContiguousKV(), 0, 0
    begin = time.perf_counter()
    while True:
        if not kept:
            kv, computed_here = ContiguousKV(), 0
        else:
            computed_here = 0 if len(tokens) == len(prompt) else len(tokens) - 1
        new = torch.tensor(tokens[computed_here:])
        positions = torch.arange(computed_here, len(tokens))
        hidden = model.adapter.forward(new, positions, kv.attend([("a", len(new))]))
        computed += len(new)
        copied += computed_here
        tokens.append(int(model.adapter.logits(hidden[-1:]).argmax()))
        if tokens[-1] in model.eos_token_ids:
            break
    elapsed = 1000 * (time.perf_counter() - begin)
    return {"answer": tokens[len(prompt) :], "computed": computed, "copied": copied, "ms": elapsed}


@torch.inference_mode()
def _one_token(model: LoadedModel, length: int) -> dict[str, float]:
    """Milliseconds for the token after `length` others, with and without what was kept of them."""
    tokens = torch.arange(length + 1) * 7919 % model.adapter.vocab_size
    positions = torch.arange(length + 1)
    with_ms, without_ms = [], []
    for _ in range(REPEATS):
        kv = ContiguousKV()
        model.adapter.forward(tokens[:-1], positions[:-1], kv.attend([("a", length)]))
        begin = time.perf_counter()
        model.adapter.forward(tokens[-1:], positions[-1:], kv.attend([("a", 1)]))
        with_ms.append(1000 * (time.perf_counter() - begin))
        begin = time.perf_counter()
        model.adapter.forward(tokens, positions, ContiguousKV().attend([("a", length + 1)]))
        without_ms.append(1000 * (time.perf_counter() - begin))
    figures = {"ms_with": statistics.median(with_ms), "ms_without": statistics.median(without_ms)}
    figures["ratio"] = figures["ms_without"] / figures["ms_with"]
    print(length, figures, flush=True)
    return figures


if __name__ == "__main__":
    main()
