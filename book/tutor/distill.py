"""Trains what drafts for the tutor: python -m book.tutor.distill --help

    --kind draft    a small model of its own, of the same tokenizer
    --kind mtp      a head on the tutor's states (see `mtp_head`)

Both learn the tutor's distributions at the assistant's tokens of conversations (distillation, Hinton
et al. 2015; for drafts, Zhou et al. 2023): the loss is the KL divergence from the tutor's. Minutes on
one datacentre GPU; a CPU is good for a dry run (`--dry-run`). Writes the weights in bfloat16, with
`distill_log.json` beside them: the loss curve, and how often the first choices agree.
"""

import argparse
import contextlib
import json
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from book.tutor.batches import Batch, batches, stream_batches
from book.tutor.corpus import SHARD_DIALOGUES, ShardStream, build_corpus
from book.tutor.mtp_head import MtpHead, rolled
from book.tutor.train import Trainer
from yaie.models.tutor import TUTOR_PATH
from yaie.system.files import write_whole

DEPTHS = 3
"""Tokens that the head is rolled on for in training."""
DEPTH_WEIGHTS = (1.0, 0.8, 0.6)
AGREEMENT_BATCHES = 4
PEAK_RATES = {"draft": 4e-3, "mtp": 2e-3}


def draft_config(teacher: LlamaConfig) -> LlamaConfig:
    """About 0.69 million weights: 3 layers of width 96, 3 query heads on 1 KV head of 32."""
    return LlamaConfig(
        vocab_size=teacher.vocab_size,
        hidden_size=96,
        intermediate_size=256,
        num_hidden_layers=3,
        num_attention_heads=3,
        num_key_value_heads=1,
        head_dim=32,
        max_position_embeddings=teacher.max_position_embeddings,
        rope_theta=teacher.rope_parameters["rope_theta"],
        rms_norm_eps=teacher.rms_norm_eps,
        tie_word_embeddings=True,
        bos_token_id=teacher.bos_token_id,
        eos_token_id=teacher.eos_token_id,
        pad_token_id=teacher.pad_token_id,
    )


def new_draft(teacher: LlamaForCausalLM) -> LlamaForCausalLM:
    """A draft model that has learned nothing, but whose embedding is the teacher's, seen in the
    directions in which that differs most."""
    model = LlamaForCausalLM(draft_config(teacher.config))
    table = teacher.model.embed_tokens.weight.detach().float().cpu()
    _, _, directions = torch.linalg.svd(table, full_matrices=False)
    own = table @ directions[: model.config.hidden_size].T
    with torch.no_grad():
        model.model.embed_tokens.weight.copy_(own * (model.config.initializer_range / own.std()))
    return model


def divergence(logits: Tensor, wanted: Tensor) -> Tensor:
    """Mean KL divergence of the students' distributions from the teacher's. Both [m, vocab] logits."""
    log_p, log_q = wanted.float().log_softmax(-1), logits.float().log_softmax(-1)
    return F.kl_div(log_q, log_p, log_target=True, reduction="batchmean")


class Distiller(Trainer):
    """A student on its device beside its teacher.

    What it is asked for at each depth is a pair of logits [m, vocab], the student's and the teacher's.
    """

    weights: tuple[float, ...] = (1.0,)

    def __init__(
        self, student: torch.nn.Module, teacher: LlamaForCausalLM, args: argparse.Namespace
    ) -> None:
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.teacher = teacher.to(device).eval().requires_grad_(False)
        super().__init__(cast(LlamaForCausalLM, student), args)

    def _regulariser(self) -> None:
        return None  # the teacher's whole distribution is more than a student can learn by heart

    def _keep(self, done: float) -> None:
        """A student is written when it is done."""

    def pairs(self, tokens: Tensor, learn: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """tokens [batch, length] int64, learn [batch, length] bool."""
        raise NotImplementedError

    def states(self, tokens: Tensor) -> Tensor:
        """The teacher's, normed: [batch, length, d]."""
        with torch.no_grad():
            hidden: Tensor = self.teacher.model(input_ids=tokens, use_cache=False).last_hidden_state
        return hidden

    def head(self, states: Tensor) -> Tensor:
        """The teacher's logits of some of its states [m, d]."""
        with torch.no_grad():
            logits: Tensor = self.teacher.lm_head(states)
        return logits

    def _backward(self, tokens: Tensor, learn: Tensor) -> Tensor:
        tokens, learn = tokens.to(self.device), learn.to(self.device)
        with self._autocast():
            losses = [divergence(own, wanted) for own, wanted in self.pairs(tokens, learn)]
            weighted = [loss * weight for loss, weight in zip(losses, self.weights, strict=True)]
            loss = torch.stack(weighted).sum() / sum(self.weights)
        loss.backward()
        return loss.detach()

    def _autocast(self) -> Any:
        is_gpu = self.device.type == "cuda"
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=is_gpu)

    @torch.no_grad()
    def agreement(self, data: Iterator[Batch], count: int) -> list[float]:
        """At each depth, the share of the assistant's tokens at which student and teacher have the same
        first choice: what greedy drafts may hope for."""
        same = torch.zeros(len(self.weights))
        total = torch.zeros(len(self.weights))
        for _ in range(count):
            tokens, learn = (part.to(self.device) for part in next(data))
            with self._autocast():
                for depth, (own, wanted) in enumerate(self.pairs(tokens, learn)):
                    same[depth] += (own.argmax(-1) == wanted.argmax(-1)).sum().item()
                    total[depth] += len(own)
        return [round(share, 4) for share in (same / total.clamp(min=1)).tolist()]


class DraftDistiller(Distiller):
    """Of a model of its own."""

    def pairs(self, tokens: Tensor, learn: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """One depth: each token from all before it."""
        target = learn[:, 1:]
        hidden = self.body(input_ids=tokens, use_cache=False).last_hidden_state
        own = self.model.lm_head(hidden[:, :-1][target])
        yield own, self.head(self.states(tokens)[:, :-1][target])


class MtpDistiller(Distiller):
    """Of a head on the teacher's states."""

    weights = DEPTH_WEIGHTS

    def pairs(self, tokens: Tensor, learn: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Position i of each depth stands for token i + 2, as the teacher's state at i + 1."""
        states = self.states(tokens)
        with torch.no_grad():
            embedded = self.teacher.model.embed_tokens(tokens)
        norm, depths = self.teacher.model.norm, len(self.weights)
        for depth, own in enumerate(
            rolled(self.body, states[:, :-2], embedded[:, 1:-1], norm, depths)
        ):
            target = learn[:, 2:].clone()
            target[:, :depth] = False
            # The head is frozen, but what comes out of the student must find its way back through it.
            yield self.teacher.lm_head(own[target]), self.head(states[:, 1:-1][target])


def save(student: torch.nn.Module, teacher: LlamaForCausalLM, out: Path) -> None:
    """Write the weights rounded to bfloat16, and config.json."""
    student.to(device="cpu", dtype=torch.bfloat16)
    if isinstance(student, LlamaForCausalLM):
        student.save_pretrained(out)
        return
    out.mkdir(parents=True, exist_ok=True)
    weights = {name: tensor.contiguous() for name, tensor in student.state_dict().items()}
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})
    (out / "model.safetensors").chmod(0o644)  # it comes for its owner's eyes only
    names = ("vocab_size", "hidden_size", "intermediate_size", "num_attention_heads",
             "num_key_value_heads", "head_dim", "rms_norm_eps")  # fmt: skip
    config = {"architectures": ["MtpHead"], "model_type": "mtp_head", "dtype": "bfloat16"}
    config |= {name: getattr(teacher.config, name) for name in names}
    write_whole(out / "config.json", json.dumps(config, indent=2) + "\n")


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Distil what drafts for the YAIE tutor.")
    parser.add_argument("--kind", choices=("draft", "mtp"), required=True)
    parser.add_argument("--teacher", type=Path, default=TUTOR_PATH, help="folder of the tutor")
    parser.add_argument("--out", type=Path, help="folder for the weights; draft or mtp by default")
    parser.add_argument("--init", type=Path, help="folder of a student to go on from")
    parser.add_argument("--seconds", type=float, help="train so long in all, instead of --steps")
    parser.add_argument("--steps", type=int, default=4000, help="optimizer steps")
    parser.add_argument("--batch", type=int, default=32, help="windows of 2048 tokens per step")
    parser.add_argument("--shards", type=int, default=60, help="times 2000 conversations")
    parser.add_argument(
        "--processes", type=int, default=0, help="that write the corpus; 0: all cores"
    )
    parser.add_argument("--lr", type=float, help="peak learning rate")
    parser.add_argument("--weight-decay", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--eager", action="store_true", help="do not compile the model on a GPU")
    parser.add_argument(
        "--dry-run", action="store_true", help="three tiny steps, to see that all parts work"
    )
    args = parser.parse_args(argv)
    args.out = args.out or TUTOR_PATH.parent / args.kind
    args.lr = args.lr or PEAK_RATES[args.kind]
    if args.dry_run:
        args.steps, args.batch, args.shards, args.seconds = 3, 1, 1, None
    return args


def distiller(teacher: LlamaForCausalLM, args: argparse.Namespace) -> Distiller:
    """The student of this kind, new or that of `--init`, beside its teacher."""
    if args.kind == "draft":
        draft = new_draft(teacher)
        if args.init is not None:
            draft = LlamaForCausalLM.from_pretrained(args.init, dtype=torch.float32)
        return DraftDistiller(draft, teacher, args)
    head = MtpHead(teacher.config)
    if args.init is not None:
        head.load_state_dict(load_file(args.init / "model.safetensors"))
    return MtpDistiller(head, teacher, args)


def main(argv: list[str] | None = None) -> None:
    """Train, and write weights and log to `--out`."""
    start = time.perf_counter()
    args = parse_args(argv)
    random.seed(args.seed)
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    tokenizer = Tokenizer.from_file(str(args.teacher / "tokenizer.json"))
    with contextlib.ExitStack() as stack:
        deadline = None
        if args.seconds is None:
            corpus = build_corpus(tokenizer, args.shards, args.seed, args.processes)
            data = batches(corpus, args.batch, args.steps + AGREEMENT_BATCHES, args.seed)
        else:
            stream = ShardStream(tokenizer, args.seed, args.processes)
            stack.callback(stream.close)
            data = stream_batches(stream, args.batch)
            deadline = start + args.seconds
        # Only now: the stream's processes are forks, and must not inherit threads or a GPU.
        teacher = LlamaForCausalLM.from_pretrained(args.teacher, dtype=torch.float32)
        student = distiller(teacher, args)
        print(f"training begins after {time.perf_counter() - start:.0f} s", flush=True)
        steps = student.fit(data, deadline)
        agreement = student.agreement(data, AGREEMENT_BATCHES)
        shards = args.shards if deadline is None else stream.taken
    num_parameters = sum(one.numel() for one in student.model.parameters())
    save(student.model, teacher, args.out)
    curve = student.curve
    log = {
        "kind": args.kind,
        "init": args.init is not None,
        "parameters": num_parameters,
        "agreement_by_depth": agreement,
        "seconds": args.seconds,
        "steps": steps,
        "windows_per_step": args.batch,
        "conversations": shards * SHARD_DIALOGUES,
        "peak_learning_rate": args.lr,
        "weight_decay": args.weight_decay,
        "seed": args.seed,
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "training_seconds": curve[-1]["seconds"] if curve else None,
        "loss_curve": curve,
    }
    write_whole(args.out / "distill_log.json", json.dumps(log, indent=1) + "\n")
    print(f"the first choices agree: {agreement}", flush=True)


if __name__ == "__main__":
    main()
