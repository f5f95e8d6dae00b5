"""Milliseconds of a decode step on a GPU, in both loops, by batch size. Random weights in a known shape.

    python -m book.measure.gpu_steps [--json FILE]

The model has the shape of Qwen3-0.6B, in bfloat16. Every request has the same prompt length, and a step
computes one token for each. Greedy tokens of both loops are compared.
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from yaie.core.params import SamplingParams
from yaie.engine.llm_engine import LLMEngine
from yaie.tutor import TUTOR_PATH

SHAPE = {
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": True,
}
BATCHES = (1, 8, 32, 128, 256)
PROMPT_TOKENS = 1024
WARM_UP, STEPS = 20, 60


def checkpoint(folder: Path) -> Path:
    """Random weights in that shape, with the tutor's tokenizer."""
    from transformers import AutoTokenizer, Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    config: Any = Qwen3Config(**SHAPE, dtype="bfloat16")
    Qwen3ForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    AutoTokenizer.from_pretrained(TUTOR_PATH).save_pretrained(folder)
    return folder


def measure(engine: LLMEngine, batch: int) -> tuple[list[float], list[list[int]]]:
    """(milliseconds of each decode step, the tokens drawn)."""
    params = SamplingParams(temperature=0, max_tokens=WARM_UP + STEPS, ignore_eos=True)
    prompts = [[(i * 7 + j) % 4000 for j in range(PROMPT_TOKENS)] for i in range(batch)]
    requests = [engine.add_request(prompt, params)[0] for prompt in prompts]
    while any(request.num_output_tokens < WARM_UP for request in requests):
        engine.step()
    torch.cuda.synchronize()
    times = []
    for _ in range(STEPS - 10):
        begin = time.perf_counter()
        engine.step()
        times.append(1e3 * (time.perf_counter() - begin))
    while engine.has_work:
        engine.step()
    return times, [request.output_token_ids for request in requests]


def main() -> None:
    """Print a line for each loop and batch."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    figures: dict[str, dict[int, float]] = {}
    tokens: dict[int, list[list[int]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        model = str(checkpoint(Path(folder)))
        for overlap in ("off", "on"):
            engine = LLMEngine(
                model=model, overlap=overlap, prefix_caching=False, token_budget=16384, mine="none"
            )
            figures[overlap] = {}
            for batch in BATCHES:
                times, drawn = measure(engine, batch)
                figures[overlap][batch] = statistics.median(times)
                same = tokens.setdefault(batch, drawn) == drawn
                print(
                    f"overlap {overlap:3}  batch {batch:3}  {statistics.median(times):7.3f} ms "
                    f"({min(times):.3f} to {max(times):.3f}), tokens {'equal' if same else 'DIFFER'}",
                    flush=True,
                )
            engine.close()
            del engine
            torch.cuda.empty_cache()
    if given.json is not None:
        given.json.write_text(json.dumps(figures, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
