"""`yaie bench latency`: how long one waits for the first token, and for each next one."""

import statistics

from yaie.bench.report import progress, save, show
from yaie.bench.workload import Lengths, draw_jobs, run_jobs, spread
from yaie.cli.console import show_parts
from yaie.core.config import EngineConfig
from yaie.engine.llm_engine import LLMEngine


def run(
    config: EngineConfig,
    batches: list[int],
    prompt_tokens: int,
    output_tokens: int,
    repeats: int,
    json: str | None,
) -> None:
    """Print, for each batch size, the medians over `repeats` runs, and the slowest gap's percentile."""
    engine = LLMEngine(config)
    show_parts(engine.parts)
    lengths = Lengths((prompt_tokens, prompt_tokens), (output_tokens, output_tokens))
    rows, figures = [], {}
    with progress() as bar:
        for batch in bar.track(batches, description="measuring"):
            first, gap, tail, rate = [], [], [], []
            for repeat in range(-1, repeats):
                # Other prompts in each run: none is to be found in the prefix cache.
                jobs = draw_jobs(batch, lengths, engine.tokenizer.vocab_size, seed=repeat)
                trace = run_jobs(engine, jobs)
                if repeat < 0:
                    continue
                first.append(1e3 * statistics.median(trace.first))
                gap.append(1e3 * statistics.median(trace.gaps))
                tail.append(1e3 * statistics.quantiles(trace.gaps, n=100)[98])
                rate.append(trace.tokens_per_second)
            rows.append((batch, *(spread(values) for values in (first, gap, tail, rate))))
            figures[batch] = {
                "first_ms": first, "gap_ms": gap, "gap_p99_ms": tail, "tokens_per_second": rate
            }  # fmt: skip
    columns = [
        "requests at once",
        "to first token, ms",
        "between tokens, ms",
        "same, p99",
        "tokens/s",
    ]
    note = f"prompts of {prompt_tokens} tokens, {output_tokens} generated; medians over requests"
    show(f"Latency of {engine.model_name}", columns, rows, [note])
    save(json, {"workload": note, "batches": figures})
