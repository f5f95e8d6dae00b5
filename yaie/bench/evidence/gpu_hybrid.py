"""A hybrid model, whole, on a GPU: Qwen3.5-4B's shape with random weights, in the engine.

    python -m yaie.bench.evidence.gpu_hybrid [path] [--only decode ...] [--shape NAME] [--kernels]

Three minutes, on a GPU that does nothing else.

    decode    a step of 1 request and of 256, with prompts of 1,024 tokens, beside the time in which a
              copy moves the step's bytes: weights, keys and values, states there and back
    prefix    prompts that share 2,048 tokens, with the prefix cache (checkpoints of states) and without
    prefill   32 prompts of 1,024 tokens, in turn with the same engine on flash-linear-attention's (fla)
              delta rule

The engine replays CUDA graphs, recorded when they are first needed. `--kernels` also tells to which
kernels the time of a decode step and of a prefill goes.
"""

import argparse
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from yaie.bench.evidence import EVIDENCE
from yaie.bench.evidence.delta_by_fla import delta_by_fla, missing
from yaie.bench.evidence.gpu_decode_trace import Span, figures, spans_of
from yaie.bench.limits import ModelCost, measure_ceilings
from yaie.bench.report import save
from yaie.bench.shapes import checkpoint
from yaie.bench.throughput.ablation import same_answers
from yaie.bench.throughput.asked import Asked
from yaie.bench.throughput.contestants import run_at_once, with_engine
from yaie.bench.throughput.drawn import described, fixed_jobs, ideal_hit_rate, prefix_jobs
from yaie.bench.throughput.fixed import WARM_UP, Steps, decode_steps
from yaie.bench.workload import Lengths
from yaie.core.config import EngineConfig
from yaie.engine.llm_engine import LLMEngine

OUT = EVIDENCE / "gpu_hybrid.json"
PARTS = ("decode", "prefix", "prefill")
SHAPE = "qwen3.5-4b"
NUM_BLOCKS = 24576
"""For 256 requests of 1,500 tokens. An engine that is told need not compute the largest step first."""
MOST_KERNELS = 30


@dataclass(slots=True)
class Sizes:
    """batches, steps: of decodes. prompts: of the prefill, of `prompt` tokens each. pairs: of prefills,
    ours and the peer's."""

    batches: tuple[int, ...] = (1, 256)
    prompt: int = 1024
    steps: int = 64
    seeds: tuple[int, ...] = (0, 1)
    prompts: int = 32
    pairs: int = 5
    prefix: Asked = field(
        default_factory=lambda: Asked(
            "prefix", 1, Lengths.parse("1", "64", None), (0,), groups=8, group_size=16
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("path", nargs="?", type=Path, default=OUT)
    parser.add_argument("--only", action="append", choices=PARTS)
    parser.add_argument("--shape", default=SHAPE)
    parser.add_argument("--shape-folder", help="where to keep the weights, and to find them again")
    parser.add_argument("--kernels", action="store_true", help="also what takes a step's time")
    asked = parser.parse_args()
    found: dict[str, Any] = {
        "command": "python -m yaie.bench.evidence.gpu_hybrid",
        "model": asked.shape,
        "ceilings": measure_ceilings("cuda", torch.bfloat16).as_json(),
    }
    rate, parts, sizes = found["ceilings"]["bytes_per_second"], asked.only or PARTS, Sizes()
    with checkpoint(asked.shape, asked.shape_folder) as folder:
        config = EngineConfig(
            model=str(folder), max_model_len=4096, token_budget=16384, graphs="lazy", mine="none",
            num_blocks=NUM_BLOCKS,
        )  # fmt: skip
        found["settings"] = config.non_default() | {"model": asked.shape}

        def with_checkpoints(engine: LLMEngine) -> None:
            print(engine.info, flush=True)
            if "decode" in parts:
                found["decode"] = {
                    str(batch): decode(engine, batch, sizes, rate) for batch in sizes.batches
                }
            if "prefix" in parts:
                found["prefix"] = {"with": prefix(engine, sizes.prefix)}
            if asked.kernels:
                found["decode_kernels"] = {
                    str(batch): kernels_of_decode(engine, batch) for batch in sizes.batches
                }

        def without(engine: LLMEngine) -> None:
            if "prefix" in parts:
                found["prefix"]["without"] = prefix(engine, sizes.prefix)
                found["prefix"] |= compared(sizes.prefix, engine.config, **found["prefix"])
            if "prefill" in parts:
                found["prefill"] = prefill(engine, sizes)
            if asked.kernels:
                found["prefill_kernels"] = kernels_of_prefill(engine, sizes)

        if {"decode", "prefix"} & {*parts}:
            with_engine(config, with_checkpoints)
        if {"prefill", "prefix"} & {*parts}:
            with_engine(replace(config, prefix_caching=False), without)
    save(str(asked.path), found)


def decode(engine: LLMEngine, batch: int, sizes: Sizes, rate: float) -> dict[str, Any]:
    """Milliseconds of a step, from the end of each to the next one's, beside those of its bytes.

    The first run is for what is compiled and recorded then.
    """
    vocab, steps = engine.model.adapter.vocab_size, Steps()
    for seed in (sizes.seeds[0], *sizes.seeds):
        jobs = fixed_jobs(batch, sizes.prompt, 1, vocab, seed)
        decode_steps(engine, jobs, sizes.steps, steps)
    context = sizes.prompt + WARM_UP + sizes.steps // 2
    cost = ModelCost.of(engine.model, context)
    assert isinstance(cost, ModelCost), cost
    num_bytes = cost.step_bytes(batch, batch * context) + batch * cost.kv_bytes
    found = {
        "context": context,
        "bytes": {
            "weights": cost.weight_bytes,
            "keys and values": batch * cost.kv_bytes * (context + 1),
            "states": 2 * batch * cost.state_bytes,
        },
        "limit_ms": 1e3 * num_bytes / rate,
        "step_ms": statistics.median(steps.mean_ms[1:]),
        **steps.figures(),
    }
    found["times_the_limit"] = found["step_ms"] / found["limit_ms"]
    _tell(
        "decode", batch, {name: found[name] for name in ("step_ms", "limit_ms", "times_the_limit")}
    )
    return found


def prefix(engine: LLMEngine, asked: Asked) -> dict[str, Any]:
    """Seconds of each seed's requests, behind a first run for what is compiled and recorded then."""
    vocab = engine.model.adapter.vocab_size
    jobs = [prefix_jobs(asked, vocab, seed, shares=True) for seed in asked.order]
    runs = [run_at_once(engine, one, 0.0) for one in jobs][1:]
    found = {
        "seconds": [run.seconds for run in runs],
        "hit_rate": [run.hit_rate for run in runs],
    }
    _tell("prefix", found)
    return found


def compared(asked: Asked, config: EngineConfig, **found: dict[str, Any]) -> dict[str, Any]:
    """ratio: how many times faster with checkpoints."""
    both = (found[name]["seconds"] for name in ("without", "with"))
    result = {
        "workload": described(asked),
        "ideal_hit_rate": ideal_hit_rate(asked, config.block_size),
        "ratio": [without / cached for without, cached in zip(*both, strict=True)],
    }
    _tell("prefix", result)
    return result


def prefill(engine: LLMEngine, sizes: Sizes, peer: Any = None) -> dict[str, Any]:
    """Tokens a second of prompts that come at once, until each has its first token: ours and fla's in
    turn, by pairs, behind a first run of each. peer: what computes in place of fla."""
    vocab = engine.model.adapter.vocab_size
    why = "" if peer else missing()
    seconds: dict[str, list[float]] = {"ours": [], **({} if why else {"fla": []})}
    calls: Counter[str] = Counter()
    same = []
    for pair in range(-1, sizes.pairs):
        jobs = fixed_jobs(sizes.prompts, sizes.prompt, 1, vocab, pair)
        answers = []
        for name in seconds if pair % 2 else reversed(seconds):
            within: AbstractContextManager[Counter[str]] = nullcontext(Counter())
            if name == "fla":
                within = delta_by_fla(peer)
            with within as counted:
                run = run_at_once(engine, jobs, 0.0)
            calls += counted
            answers.append(run.outputs)
            if pair >= 0:
                seconds[name].append(run.seconds)
        same.append(same_answers(answers[0], answers[-1]))
    num_tokens = sizes.prompts * sizes.prompt
    found: dict[str, Any] = {
        "tokens_per_second": {
            name: num_tokens / statistics.median(one) for name, one in seconds.items()
        },
        "seconds": seconds,
    }
    if why:
        found["missing"] = why
    else:
        assert calls["fla"], "the peer was never called"
        found["of_fla"] = [fla / ours for ours, fla in zip(*seconds.values(), strict=True)]
        found["same_first_tokens"] = same
        found["median_of_fla"] = statistics.median(found["of_fla"])
    _tell("prefill", found)
    return found


def kernels_of_decode(engine: LLMEngine, batch: int, steps: int = 20) -> dict[str, Any]:
    """Of whole steps."""
    spans = spans_of(engine, batch, steps)
    found = {**figures(spans), "us": by_kernel(spans, steps)}
    _tell("kernels of a decode step", batch, found)
    return found


def kernels_of_prefill(engine: LLMEngine, sizes: Sizes) -> dict[str, Any]:
    """Of all prompts."""
    jobs = fixed_jobs(sizes.prompts, sizes.prompt, 1, engine.model.adapter.vocab_size, seed=99)
    found = {}
    for name in ("ours", *([] if missing() else ["fla"])):
        with (
            nullcontext() if name == "ours" else delta_by_fla(),
            torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile,
        ):
            run_at_once(engine, jobs, 0.0)
            torch.cuda.synchronize()
        found[name] = by_kernel(
            Span(event.time_range.start, event.time_range.end, event.name)
            for event in profile.events()
            if event.device_type == torch.autograd.DeviceType.CUDA
        )
        _tell("kernels of a prefill", name, found[name])
    return found


def by_kernel(spans: Iterable[Span], steps: int = 1) -> dict[str, list[float]]:
    """Microseconds of a step in kernels of each name, and how many a step there are; most first."""
    times: defaultdict[str, float] = defaultdict(float)
    counts: Counter[str] = Counter()
    for begin, end, name in spans:
        times[name[:90]] += end - begin
        counts[name[:90]] += 1
    return {
        name: [round(time / steps, 2), counts[name] / steps]
        for name, time in sorted(times.items(), key=lambda item: -item[1])[:MOST_KERNELS]
    }


def _tell(*what: Any) -> None:
    print(time.strftime("%X"), *what, flush=True)


if __name__ == "__main__":
    main()
