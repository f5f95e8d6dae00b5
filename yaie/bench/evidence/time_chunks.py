"""A long prompt among requests that are answering, by token budget, for chapter "The scheduler".

    python -m yaie.bench.evidence.time_chunks

Four requests of the tutor decode; then a prompt of 1,500 tokens comes. Of the steps until its first
token: the longest, in which all four wait, their number, and the time to that token.
"""

import statistics
import time
from typing import Any

from yaie.bench.evidence import EVIDENCE
from yaie.bench.report import save
from yaie.bench.workload import Lengths, draw_jobs
from yaie.core.params import SamplingParams
from yaie.engine.llm_engine import LLMEngine

OUT = EVIDENCE / "time_chunks.json"
BUDGETS = (2048, 512, 256, 128, 64)
TALKERS, PROMPT, REPEATS = 4, 1500, 5


def main() -> None:
    budgets = {}
    for budget in BUDGETS:
        engine = LLMEngine(mine="none", prefix_caching=False, token_budget=budget)
        runs = [_run(engine, seed) for seed in range(-1, REPEATS)][1:]
        budgets[str(budget)] = {
            "steps": runs[0]["steps"],
            "most_tokens": runs[0]["most_tokens"],
            "longest_ms": statistics.median(run["longest_ms"] for run in runs),
            "first_token_ms": statistics.median(run["first_token_ms"] for run in runs),
        }
        print(budget, budgets[str(budget)], flush=True)
    save(
        str(OUT),
        {
            "command": "python -m yaie.bench.evidence.time_chunks",
            "workload": f"{TALKERS} requests decode, a prompt of {PROMPT} tokens comes",
            "talkers": TALKERS,
            "prompt": PROMPT,
            "budgets": budgets,
        },
    )


def _run(engine: LLMEngine, seed: int) -> dict[str, Any]:
    """Steps from the newcomer's arrival to its first token."""
    vocab = engine.tokenizer.vocab_size
    params = SamplingParams(temperature=0, max_tokens=400, ignore_eos=True)
    requests = []
    for job in draw_jobs(TALKERS, Lengths((16, 16), (1, 1)), vocab, seed):
        requests += engine.add_request(job.prompt, params)
    for _ in range(8):
        engine.step()
    [job] = draw_jobs(1, Lengths((PROMPT, PROMPT), (1, 1)), vocab, seed)
    [newcomer] = engine.add_request(job.prompt, params)
    begin = time.perf_counter()
    times, tokens = [], []
    while newcomer.num_output_tokens == 0:
        computed, start = newcomer.num_computed_tokens, time.perf_counter()
        outputs = engine.step()
        times.append(time.perf_counter() - start)
        tokens.append(newcomer.num_computed_tokens - computed + TALKERS)
        talking = sum(output.request_id != newcomer.request_id for output in outputs)
        assert talking == TALKERS, f"only {talking} of {TALKERS} went on"
    waited = time.perf_counter() - begin
    for request in [*requests, newcomer]:
        engine.abort(request.request_id)
    return {
        "steps": len(times),
        "most_tokens": max(tokens),
        "longest_ms": 1e3 * max(times),
        "first_token_ms": 1e3 * waited,
    }


if __name__ == "__main__":
    main()
