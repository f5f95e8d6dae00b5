"""Trains the tutor: python -m yaie.tutor.train --help

Minutes on one datacentre GPU; a CPU is good for a dry run (`--dry-run`). Writes the weights in
Hugging Face layout with `training_log.json`, the loss curve, beside them.
"""

import argparse
import json
import math
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.progress import track
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

from yaie.tutor import TUTOR_PATH
from yaie.tutor.corpus import SHARD_DIALOGUES, Corpus, build_corpus
from yaie.tutor.dialogues import dialogues
from yaie.tutor.glossary import load_knowledge
from yaie.tutor.tokenizer import (
    BOS,
    CONTEXT_LENGTH,
    PAD,
    TURN_END,
    VOCAB_SIZE,
    save_tokenizer,
    token_id,
    train_tokenizer,
)

LOG_EVERY = 25
ROPE_THETA = 10_000
TOKENIZER_DIALOGUES = 20_000


def tutor_config(**token_ids: int) -> LlamaConfig:
    """About 7.3 million weights: 8 layers of width 256, 8 query heads on 4 KV heads of 32."""
    return LlamaConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=256,
        intermediate_size=768,
        num_hidden_layers=8,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=32,
        max_position_embeddings=CONTEXT_LENGTH,
        rope_theta=ROPE_THETA,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        **token_ids,
    )


def learning_rate(step: int, steps: int, peak: float) -> float:
    """Linear warm-up over the first 3% of the steps, then a cosine down to zero."""
    warmup = max(1, steps * 3 // 100)
    if step < warmup:
        return peak * (step + 1) / warmup
    return peak * 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, steps - warmup)))


def batches(corpus: Corpus, size: int, steps: int, seed: int) -> Any:
    """Yield (`tokens` [size, 2048] int64, `learn` [size, 2048] bool), reshuffled each epoch."""
    rng = np.random.default_rng(seed)
    order = np.empty(0, dtype=np.int64)
    for _ in range(steps):
        while len(order) < size:
            order = np.concatenate([order, rng.permutation(len(corpus.tokens))])
        chosen, order = order[:size], order[size:]
        tokens = torch.from_numpy(corpus.tokens[chosen].astype(np.int64))
        yield tokens, torch.from_numpy(corpus.learn[chosen])


def loss_of(model: LlamaForCausalLM, body: Any, tokens: torch.Tensor, learn: torch.Tensor) -> Any:
    """Mean cross-entropy over the assistant's tokens, each predicted from all before it.

    `tokens` [batch, length] int64, `learn` [batch, length] bool. Logits are computed only where a
    token is learned: they are the largest tensor of a small model.
    """
    hidden = body(input_ids=tokens, use_cache=False).last_hidden_state
    target = learn[:, 1:]
    logits = model.lm_head(hidden[:, :-1][target])
    return torch.nn.functional.cross_entropy(logits.float(), tokens[:, 1:][target])


def optimizer_of(model: LlamaForCausalLM, weight_decay: float) -> torch.optim.AdamW:
    """AdamW that decays matrices but neither norms nor the embedding."""
    matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and "embed" not in name]
    others = [p for name, p in model.named_parameters() if p.ndim != 2 or "embed" in name]
    groups = [
        {"params": matrices, "weight_decay": weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, betas=(0.9, 0.95), fused=torch.cuda.is_available())


def fit(
    model: LlamaForCausalLM, corpus: Corpus, args: argparse.Namespace
) -> list[dict[str, float]]:
    """Train in place; returns the loss curve, one entry per `LOG_EVERY` steps."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model.to(device).train()
    # Compiling takes a minute and pays only on a GPU.
    body = torch.compile(model.model) if device.type == "cuda" else model.model
    optimizer = optimizer_of(model, args.weight_decay)
    curve: list[dict[str, float]] = []
    running = torch.zeros((), device=device)
    start = time.perf_counter()
    data = batches(corpus, args.batch, args.steps, args.seed)
    for step, (tokens, learn) in enumerate(track(data, "training", total=args.steps)):
        rate = learning_rate(step, args.steps, args.lr)
        for group in optimizer.param_groups:
            group["lr"] = rate
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda"):
            loss = loss_of(model, body, tokens.to(device), learn.to(device))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        running += loss.detach()
        if (step + 1) % LOG_EVERY == 0:
            # Reading the loss waits for the device, so it happens once per log entry only.
            mean, running = running.item() / LOG_EVERY, torch.zeros_like(running)
            seconds = time.perf_counter() - start
            curve.append({"step": step + 1, "loss": round(mean, 5), "seconds": round(seconds, 1)})
            if (step + 1) % (LOG_EVERY * 10) == 0:
                print(f"step {step + 1}: loss {mean:.4f}, {seconds:.0f} s", flush=True)
    return curve


def save(model: LlamaForCausalLM, out: Path) -> None:
    """Write config, generation config and the weights rounded to bfloat16."""
    config = model.config
    model.generation_config = GenerationConfig(
        bos_token_id=config.bos_token_id,
        eos_token_id=config.eos_token_id,
        pad_token_id=config.pad_token_id,
        max_new_tokens=160,
        # What it says is right at the top choice: servers read from here that it answers greedily.
        do_sample=False,
    )
    model.to(device="cpu", dtype=torch.bfloat16).save_pretrained(out)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train the YAIE tutor from scratch.")
    parser.add_argument("--out", type=Path, default=TUTOR_PATH, help="folder for the weights")
    parser.add_argument("--steps", type=int, default=3900, help="optimizer steps")
    parser.add_argument("--batch", type=int, default=64, help="windows of 2048 tokens per step")
    parser.add_argument("--shards", type=int, default=500, help="times 2000 conversations")
    parser.add_argument("--lr", type=float, default=2e-3, help="peak learning rate")
    parser.add_argument("--weight-decay", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--dry-run", action="store_true", help="three tiny steps, to see that all parts work"
    )
    args = parser.parse_args()
    if args.dry_run:
        args.steps, args.batch, args.shards = 3, 1, 1
    return args


def main() -> None:
    """Train tokenizer and model and write both to `--out`."""
    args = parse_args()
    start = time.perf_counter()
    tokenizer = train_tokenizer(dialogues(args.seed + 1, TOKENIZER_DIALOGUES))
    save_tokenizer(tokenizer, args.out)
    corpus = build_corpus(tokenizer, args.shards, args.seed)
    written = time.perf_counter() - start
    print(f"{len(corpus.tokens)} windows of {CONTEXT_LENGTH} tokens in {written:.0f} s", flush=True)

    random.seed(args.seed)
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    names = {"bos_token_id": BOS, "eos_token_id": TURN_END, "pad_token_id": PAD}
    model = LlamaForCausalLM(
        tutor_config(**{name: token_id(tokenizer, token) for name, token in names.items()})
    )
    curve = fit(model, corpus, args)
    save(model, args.out)
    log = {
        "parameters": model.num_parameters(),
        "steps": args.steps,
        "windows_per_step": args.batch,
        "shards": args.shards,
        "conversations": args.shards * SHARD_DIALOGUES,
        "terms": len(load_knowledge().terms),
        "rope_theta": ROPE_THETA,
        "windows": len(corpus.tokens),
        "peak_learning_rate": args.lr,
        "weight_decay": args.weight_decay,
        "seed": args.seed,
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "training_seconds": curve[-1]["seconds"] if curve else None,
        "loss_curve": curve,
    }
    (args.out / "training_log.json").write_text(json.dumps(log, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
