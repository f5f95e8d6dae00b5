"""`yaie bench prefix`: what finding a prefix in the cache saves."""

import statistics
from dataclasses import replace

from yaie.bench.report import progress, save, show
from yaie.bench.workload import Job, Lengths, draw_jobs, run_jobs, spread
from yaie.cli.console import show_parts
from yaie.core.config import EngineConfig
from yaie.engine.llm_engine import LLMEngine


def run(
    config: EngineConfig, shared_tokens: int, own_tokens: int, repeats: int, json: str | None
) -> None:
    """Time to first token of prompts that share a prefix: the first one, one that finds it cached,
    and one with the cache off."""
    engine = LLMEngine(replace(config, prefix_caching=True))
    show_parts(engine.parts)
    uncached = LLMEngine(replace(config, prefix_caching=False))
    prefix = _tokens(engine, shared_tokens, seed=-1)
    times: dict[str, list[float]] = {"computed": [], "cached": [], "cache off": []}
    with progress() as bar:
        for repeat in bar.track(range(-1, repeats), description="measuring"):
            own = [_tokens(engine, own_tokens, seed=2 * repeat + i) for i in (2, 3)]
            engine.reset_prefix_cache()
            measured = {
                "computed": _first_token_ms(engine, prefix + own[0]),
                "cached": _first_token_ms(engine, prefix + own[1]),
                "cache off": _first_token_ms(uncached, prefix + own[1]),
            }
            if repeat >= 0:
                for name, value in measured.items():
                    times[name].append(value)
    ratios = [cold / hit for cold, hit in zip(times["computed"], times["cached"], strict=True)]
    cost = statistics.median(times["computed"]) / statistics.median(times["cache off"]) - 1
    note = f"a prefix of {shared_tokens} tokens and {own_tokens} of its own"
    notes = [
        note,
        f"computed / cached: {spread(ratios)}; cost of the cache without a hit: {cost:+.1%}",
    ]
    rows = [(name, spread(values)) for name, values in times.items()]
    show(f"Shared prefix on {engine.model_name}", ["prefix", "to first token, ms"], rows, notes)
    save(json, {"workload": note, "first_token_ms": times, "ratio": ratios})


def _tokens(engine: LLMEngine, count: int, seed: int) -> list[int]:
    lengths = Lengths((count, count), (1, 1))
    return draw_jobs(1, lengths, engine.tokenizer.vocab_size, seed)[0].prompt


def _first_token_ms(engine: LLMEngine, prompt: list[int]) -> float:
    return 1e3 * run_jobs(engine, [Job(prompt, 1)]).first[0]
