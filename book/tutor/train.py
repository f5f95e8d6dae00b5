"""Trains the tutor: python -m book.tutor.train --help

Minutes on one datacentre GPU; a CPU is good for a dry run (`--dry-run`). Writes the weights in
Hugging Face layout with `training_log.json`, the loss curve, beside them.

`--init FOLDER` goes on from the weights in a folder, with their tokenizer. `--seconds N` trains for
N seconds in all instead of a number of steps, on conversations that are written meanwhile; the
learning rate's cosine is planned for the time that is left when training begins.

`--architecture lfm2` trains the tutor's sibling (see `hybrid`): on the same data, in the tutor's tokens.

`--keep N` also writes what it has after N equal parts of the training but the last, and, before a mean
is taken, at its end: to `kept-1`, ... and `last` in the folder.
"""

import argparse
import contextlib
import json
import math
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from transformers import GenerationConfig, Lfm2ForCausalLM, LlamaConfig, LlamaForCausalLM

from book.tutor.batches import Batch, batches, stream_batches
from book.tutor.corpus import SHARD_DIALOGUES, ShardStream, build_corpus
from book.tutor.dialogues import dialogues
from book.tutor.glossary import load_knowledge
from book.tutor.hybrid import hybrid_config, new_hybrid, shift_convolutions
from book.tutor.regularise import Regulariser, first_words
from book.tutor.tokenizer import (
    BOS,
    CONTEXT_LENGTH,
    PAD,
    TURN_END,
    VOCAB_SIZE,
    save_tokenizer,
    token_id,
    train_tokenizer,
)
from yaie.models.tutor import HYBRID_PATH, TUTOR_PATH
from yaie.system.files import write_whole

LOG_EVERY = 25
ROPE_THETA = 10_000
TOKENIZER_DIALOGUES = 20_000
WARMUP = 0.03

Model: TypeAlias = LlamaForCausalLM | Lfm2ForCausalLM
FOLDERS = {"llama": TUTOR_PATH, "lfm2": HYBRID_PATH}
"""By architecture, as a checkpoint's `model_type` names it: where its weights are served from."""


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


def learning_rate(progress: float, peak: float) -> float:
    """Linear warm-up over the first 3% of the training, then a cosine down to zero.

    progress: from 0 at the first step to 1 at the end.
    """
    if progress < WARMUP:
        return peak * max(progress, WARMUP / 30) / WARMUP
    share = min(1.0, (progress - WARMUP) / (1 - WARMUP))
    return peak * 0.5 * (1 + math.cos(math.pi * share))


def loss_of(
    model: Model, body: Any, tokens: torch.Tensor, learn: torch.Tensor, first: float = 1
) -> Any:
    """Mean cross-entropy over the assistant's tokens, each predicted from all before it.

    `tokens` [batch, length] int64, on the model's device; `learn` [batch, length] bool, on the CPU, so
    that the places to learn are known without waiting for the device. Logits are computed only
    there: they are the largest tensor of a small model. `first` is what the first token of an answer
    counts: that one decides between yes and no.
    """
    places = learn[:, 1:].flatten().nonzero().squeeze(1)
    counts = torch.where(first_words(learn)[:, 1:].flatten()[places], first, 1.0)
    places, counts = (part.to(tokens.device, non_blocking=True) for part in (places, counts))
    hidden = body(input_ids=tokens, use_cache=False).last_hidden_state[:, :-1]
    logits = model.lm_head(hidden.flatten(0, 1).index_select(0, places)).float()
    wanted = tokens[:, 1:].flatten().index_select(0, places)
    losses = torch.nn.functional.cross_entropy(logits, wanted, reduction="none")
    return (losses * counts).sum() / counts.sum()


def optimizer_of(model: Model, weight_decay: float) -> torch.optim.AdamW:
    """AdamW that decays matrices, but neither norms and convolutions nor the embedding."""
    matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and "embed" not in name]
    others = [p for name, p in model.named_parameters() if p.ndim != 2 or "embed" in name]
    groups = [
        {"params": matrices, "weight_decay": weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, betas=(0.9, 0.95), fused=torch.cuda.is_available())


class Trainer:
    """A model on its device, with its optimizer and, on a GPU, its compiled body."""

    def __init__(self, model: Model, args: argparse.Namespace) -> None:
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.model, self.args = model, args
        model.to(self.device).train()
        shift_convolutions(model)
        if self.device.type == "cuda":
            # The cores belong to those who write the corpus: a thread that waits for one stops a step.
            torch.set_num_threads(1)
        self.regulariser = self._regulariser()
        # Compiling takes 20 seconds and doubles the speed on a GPU.
        compiled = self.device.type == "cuda" and not args.eager
        self.body = torch.compile(model.model) if compiled else model.model
        self.optimizer = optimizer_of(model, args.weight_decay)
        self.curve: list[dict[str, float]] = []
        self.kept = 0
        if compiled:
            self._warm_up()

    def _regulariser(self) -> Regulariser | None:
        return Regulariser(self.model, self.args.dropout)

    def _warm_up(self) -> None:
        """Compile on random tokens, while other processes write the corpus; eager if that fails."""
        tokens = torch.randint(4, VOCAB_SIZE, (self.args.batch, CONTEXT_LENGTH))
        learn = torch.rand(tokens.shape) < 0.3
        try:
            self._backward(tokens, learn)
        except Exception as error:  # noqa: BLE001  whatever the compiler lacks, training goes on
            print(f"not compiled: {error}"[:500], flush=True)
            self.body = self.model.model
        self.optimizer.zero_grad(set_to_none=True)

    def _backward(self, tokens: torch.Tensor, learn: torch.Tensor) -> torch.Tensor:
        is_gpu = self.device.type == "cuda"
        tokens = tokens.to(self.device, non_blocking=True)
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=is_gpu):
            loss: torch.Tensor = loss_of(self.model, self.body, tokens, learn, self.args.first_word)
        loss.backward()
        return loss.detach()

    def fit(self, data: Iterator[Batch], deadline: float | None = None) -> int:
        """Train in place for `args.steps` steps, or until the deadline; returns the steps.

        deadline: a time of perf_counter.

        Fills `curve`, the loss curve, with one entry per `LOG_EVERY` steps.
        """
        start = time.perf_counter()
        running = torch.zeros((), device=self.device)
        step = 0
        while True:
            now = time.perf_counter()
            done = (
                (now - start) / max(1e-9, deadline - start) if deadline else step / self.args.steps
            )
            if done >= 1:
                return step
            for group in self.optimizer.param_groups:
                group["lr"] = learning_rate(done, self.args.lr)
            if self.regulariser is not None:
                self.regulariser.before_step(done)
            running += self._backward(*next(data))
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            if self.regulariser is not None:
                self.regulariser.after_step(done)
            self._keep(done)
            step += 1
            if step % LOG_EVERY == 0:
                # Reading the loss waits for the device, so it happens once per log entry only.
                mean, running = running.item() / LOG_EVERY, torch.zeros_like(running)
                self._log(step, mean, time.perf_counter() - start)

    def _keep(self, done: float) -> None:
        """Write the weights if another part of the training is over."""
        if self.kept < self.args.keep - 1 and done >= (self.kept + 1) / self.args.keep:
            self.kept += 1
            keep(self.model, self.args.out / f"kept-{self.kept}")

    def _log(self, step: int, loss: float, seconds: float) -> None:
        self.curve.append({"step": step, "loss": round(loss, 5), "seconds": round(seconds, 1)})
        if step % (LOG_EVERY * 4) == 0:
            print(f"step {step}: loss {loss:.4f}, {seconds:.0f} s", flush=True)


def keep(model: Model, out: Path) -> None:
    """Write the weights as they are, rounded to bfloat16; the model stays on its device."""
    out.mkdir(parents=True, exist_ok=True)
    # Of tensors that are tied, the parameters name the first, as `save_pretrained` does.
    rounded = {
        name: weight.detach().to("cpu", torch.bfloat16).contiguous()
        for name, weight in model.named_parameters()
    }
    save_file(rounded, out / "model.safetensors", {"format": "pt"})


def save(model: Model, out: Path) -> None:
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


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train the YAIE tutor, from scratch or further.")
    parser.add_argument(
        "--out", type=Path, help="folder for the weights; what is served by default"
    )
    parser.add_argument(
        "--architecture", choices=FOLDERS, default="llama", help="lfm2: the tutor's sibling"
    )
    parser.add_argument("--init", type=Path, help="folder of weights to go on from")
    parser.add_argument("--seconds", type=float, help="train so long in all, instead of --steps")
    parser.add_argument("--steps", type=int, default=3900, help="optimizer steps")
    parser.add_argument("--batch", type=int, default=64, help="windows of 2048 tokens per step")
    parser.add_argument("--shards", type=int, default=500, help="times 2000 conversations")
    parser.add_argument(
        "--processes", type=int, default=0, help="that write the corpus; 0: all cores"
    )
    parser.add_argument("--lr", type=float, default=2e-3, help="peak learning rate")
    parser.add_argument("--weight-decay", type=float, default=0.1)
    parser.add_argument("--dropout", type=float, default=0.0, help="share dropped, at first")
    parser.add_argument("--first-word", type=float, default=1.0, help="what it counts in the loss")
    parser.add_argument("--mean", action="store_true", help="write the mean of the last weights")
    parser.add_argument("--keep", type=int, default=0, help="also write weights, N times in all")
    parser.add_argument(
        "--systems", type=float, default=1.0, help="how many of the usual system messages, 0 to 1"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--eager", action="store_true", help="do not compile the model on a GPU")
    parser.add_argument(
        "--dry-run", action="store_true", help="three tiny steps, to see that all parts work"
    )
    args = parser.parse_args(argv)
    args.out = args.out or FOLDERS[args.architecture]
    if args.init is not None:
        config = json.loads((args.init / "config.json").read_text(encoding="utf-8"))
        if config["model_type"] != args.architecture:
            parser.error(f"{args.init} holds a {config['model_type']}: say --architecture so")
    if args.dry_run:
        args.steps, args.batch, args.shards, args.seconds = 3, 1, 1, None
    return args


def start_tokenizer(args: argparse.Namespace) -> Tokenizer:
    """That of `--init`, the tutor's for its sibling, or a new one."""
    folder = args.init
    if folder is None and args.architecture != "llama":
        folder = TUTOR_PATH
    if folder is not None:
        return Tokenizer.from_file(str(folder / "tokenizer.json"))
    return train_tokenizer(dialogues(args.seed + 1, TOKENIZER_DIALOGUES))


def start_model(args: argparse.Namespace, tokenizer: Tokenizer) -> Model:
    """The model of `--init`, in float32, or a new one."""
    kind = Lfm2ForCausalLM if args.architecture == "lfm2" else LlamaForCausalLM
    if args.init is not None:
        loaded: Model = kind.from_pretrained(args.init, dtype=torch.float32)
        return loaded
    names = {"bos_token_id": BOS, "eos_token_id": TURN_END, "pad_token_id": PAD}
    ids = {name: token_id(tokenizer, token) for name, token in names.items()}
    if args.architecture == "lfm2":
        return new_hybrid(hybrid_config(ROPE_THETA, **ids))
    return LlamaForCausalLM(tutor_config(**ids))


def main(argv: list[str] | None = None) -> None:
    """Train and write tokenizer, weights and log to `--out`."""
    start = time.perf_counter()
    args = parse_args(argv)
    random.seed(args.seed)
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    tokenizer = start_tokenizer(args)
    save_tokenizer(tokenizer, args.out)
    with contextlib.ExitStack() as stack:
        deadline = None
        if args.seconds is None:
            corpus = build_corpus(tokenizer, args.shards, args.seed, args.processes, args.systems)
            data = batches(corpus, args.batch, args.steps, args.seed)
        else:
            stream = ShardStream(tokenizer, args.seed, args.processes, systems=args.systems)
            stack.callback(stream.close)
            data = stream_batches(stream, args.batch)
            deadline = start + args.seconds
        # Only now: the stream's processes are forks, and must not inherit threads or a GPU.
        model = start_model(args, tokenizer)
        trainer = Trainer(model, args)
        print(f"training begins after {time.perf_counter() - start:.0f} s", flush=True)
        steps = trainer.fit(data, deadline)
        shards = args.shards if deadline is None else stream.taken
    if args.keep:
        keep(model, args.out / "last")
    if args.mean and trainer.regulariser is not None:
        trainer.regulariser.use_mean()
    save(model, args.out)
    curve = trainer.curve
    log = {
        "architecture": args.architecture,
        "parameters": model.num_parameters(),
        "init": args.init is not None,
        "seconds": args.seconds,
        "steps": steps,
        "windows_per_step": args.batch,
        "shards": shards,
        "conversations": shards * SHARD_DIALOGUES,
        "terms": len(load_knowledge().terms),
        "rope_theta": ROPE_THETA,
        "windows": steps * args.batch if deadline is not None else len(corpus.tokens),
        "peak_learning_rate": args.lr,
        "weight_decay": args.weight_decay,
        "dropout": args.dropout,
        "first_word": args.first_word,
        "mean": args.mean,
        "systems": args.systems,
        "seed": args.seed,
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "training_seconds": curve[-1]["seconds"] if curve else None,
        "loss_curve": curve,
    }
    write_whole(args.out / "training_log.json", json.dumps(log, indent=1) + "\n")


if __name__ == "__main__":
    main()
