"""Tokens a second with and without drafts, on the tutor and on a small model made for copying.

    python -m yaie.bench.evidence.speculation [path] [--streams 1 64]

A few minutes, on a machine that does nothing else. One thread computes. Engines are loaded side by side
and take turns, who begins changes with each round, and the ratio to `off` is taken in each round; the
median of the rounds counts. Every engine must give the same tokens as `off`.

The model for copying is trained here, in about a minute and from a fixed seed, on rows that say a
sequence of random tokens twice: it learns to look up what followed a token before (an induction head,
Olsson et al. 2022). Its task is to say the first half of a prompt again.
"""

import argparse
import json
import random
import tempfile
import time
from pathlib import Path
from shutil import copy
from statistics import median
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from yaie.bench.evidence import EVIDENCE
from yaie.bench.report import save
from yaie.core.params import SamplingParams
from yaie.engine.llm_engine import LLMEngine
from yaie.models.tutor import TUTOR_DIR, TUTOR_PATH

OUT = EVIDENCE / "speculation.json"
ROUNDS = 5
QUESTIONS = (
    "What is continuous batching?",
    "How does paged attention work?",
    "Why is decode memory-bound?",
    "What does the scheduler do when the KV pool is full?",
    "What is a radix tree for?",
    "Explain the KV cache.",
    "What does temperature do?",
    "How is a prefix found in the cache?",
)
WORDS, HALF = 256, 48
"""Of the model for copying: how many different tokens it knows, and how many it is to repeat."""


def copying_model(folder: Path, steps: int = 700, seed: int = 0) -> float:
    """Write a model of two layers that repeats what it read; returns the share of tokens that it gets
    right in texts it has not seen."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=4096, hidden_size=128, intermediate_size=256, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=4, head_dim=32, max_position_embeddings=1024,
        tie_word_embeddings=False, bos_token_id=0, eos_token_id=3, pad_token_id=1,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, betas=(0.9, 0.98), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps)
    for step in range(steps):
        half = 8 + (HALF - 8) * min(steps, 2 * step) // steps  # short ones first
        tokens = rows(32, half)
        logits = model(input_ids=tokens, use_cache=False).logits[:, half:-1]
        loss = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), tokens[:, half + 1 :].flatten()
        )
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    with torch.no_grad():
        tokens = rows(64, HALF)
        said = model(input_ids=tokens, use_cache=False).logits[:, HALF:-1].argmax(-1)
        right = (said == tokens[:, HALF + 1 :]).float().mean().item()
    model.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        copy(TUTOR_PATH / name, folder)
    return right


def rows(count: int, half: int) -> torch.Tensor:
    """Random tokens, said twice: [count, 2 * half]."""
    once = torch.stack([torch.randperm(WORDS)[:half] for _ in range(count)]) + 300
    return torch.cat([once, once], dim=1)


def copying_prompts(count: int) -> list[list[int]]:
    rng = random.Random(1)
    prompts = []
    for _ in range(count):
        once = rng.sample(range(300, 300 + WORDS), HALF)
        prompts.append([*once, *once[:4]])
    return prompts


def tutor_prompts(engine: LLMEngine, count: int) -> list[list[int]]:
    asked = [QUESTIONS[index % len(QUESTIONS)] for index in range(count)]
    return [engine.encode_chat([{"role": "user", "content": question}]) for question in asked]


def timed(engine: LLMEngine, prompts: list[list[int]], params: SamplingParams) -> tuple[float, Any]:
    """Tokens a second, and the tokens."""
    engine.reset_prefix_cache()
    begin = time.perf_counter()
    requests = [engine.add_request(prompt, params)[0] for prompt in prompts]
    while engine.has_work:
        engine.step()
    seconds = time.perf_counter() - begin
    outputs = [request.output_token_ids for request in requests]
    return sum(map(len, outputs)) / seconds, outputs


def compared(engines: dict[str, LLMEngine], prompts: list[list[int]], params: SamplingParams,
             at_once: bool) -> dict[str, Any]:  # fmt: skip
    """Of each engine: the median rate and ratio to `off`, and what its drafts came to."""
    rates: dict[str, list[float]] = {name: [] for name in engines}
    before = {name: engine.stats() for name, engine in engines.items()}
    order = list(engines)
    for turn in range(ROUNDS + 1):
        outputs: dict[str, Any] = {}
        for name in order if turn % 2 else reversed(order):
            groups = [prompts] if at_once else [[prompt] for prompt in prompts]
            results = [timed(engines[name], group, params) for group in groups]
            tokens = [sum(map(len, own)) for _, own in results]
            seconds = sum(count / rate for count, (rate, _) in zip(tokens, results, strict=True))
            outputs[name] = [own for _, own in results]
            if turn:  # the first round does not count
                rates[name].append(sum(tokens) / seconds)
        assert all(own == outputs["off"] for own in outputs.values()), "drafts changed an output"
    found = {}
    for name, own in rates.items():
        stats = {key: value - before[name][key] for key, value in engines[name].stats().items()}
        ratios = [rate / off for rate, off in zip(own, rates["off"], strict=True)]
        found[name] = {
            "tokens_a_second": round(median(own), 1),
            "ratio_to_off": round(median(ratios), 3),
            "ratios": [round(ratio, 3) for ratio in ratios],
            "drafts": stats["draft_tokens"],
            "accepted": stats["accepted_draft_tokens"],
            "steps": stats["steps"],
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("path", nargs="?", type=Path, default=OUT)
    parser.add_argument("--streams", nargs="*", type=int, default=[1, 64])
    parser.add_argument("--num-drafts", default="auto")
    args = parser.parse_args()
    torch.set_num_threads(1)
    settings: dict[str, Any] = {"threads": 1, "mine": "none"}
    own = [kind for kind in ("draft", "mtp") if (TUTOR_DIR / kind / "config.json").is_file()]
    kinds = ["ngram", *own]
    found: dict[str, Any] = {
        "command": "python -m yaie.bench.evidence.speculation",
        "workload": "eight questions to the tutor of at most 120 tokens, greedy, one after the other or "
        f"as many at once; prompts of {HALF} random tokens that a model for copying says again; "
        f"float32, one thread, {ROUNDS} rounds in which the engines take turns",
    }
    engines = {"off": LLMEngine(**settings)}
    for kind in kinds:
        engines[kind] = LLMEngine(speculate=kind, num_drafts=args.num_drafts, **settings)
    greedy = SamplingParams(temperature=0, max_tokens=120)
    for count in args.streams:
        prompts = tutor_prompts(engines["off"], max(count, len(QUESTIONS)))
        found[f"tutor_{count}"] = compared(engines, prompts, greedy, count > 1)
        print(json.dumps(found[f"tutor_{count}"], indent=1), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        right = copying_model(Path(folder))
        made = {"right": round(right, 3), "seconds": round(time.perf_counter() - begin, 1)}
        engines = {"off": LLMEngine(model=folder, **settings)}
        engines["ngram"] = LLMEngine(
            model=folder, speculate="ngram", num_drafts=args.num_drafts, **settings
        )
        params = SamplingParams(temperature=0, max_tokens=HALF - 4, ignore_eos=True)
        found["copying"] = {
            "model": made, **compared(engines, copying_prompts(8), params, False)
        }  # fmt: skip
    save(str(args.path), found)


if __name__ == "__main__":
    main()
