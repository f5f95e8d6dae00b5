"""How long a step takes by the number of requests that decode in it, for chapter "Continuous batching".

    python -m yaie.bench.evidence.time_company

The tutor; prompts of 32 tokens; each size is stepped 64 times after a warm-up, in three rounds.
"""

import statistics
import time

from yaie.bench.evidence import EVIDENCE
from yaie.bench.report import save
from yaie.bench.workload import Lengths, draw_jobs
from yaie.core.params import SamplingParams
from yaie.engine.llm_engine import LLMEngine

OUT = EVIDENCE / "time_company.json"
SIZES = (1, 2, 4, 8, 16, 32, 64)
ROUNDS, STEPS, WARM_UP = 3, 64, 8


def main() -> None:
    engine = LLMEngine(mine="none", prefix_caching=False)
    samples: dict[int, list[float]] = {size: [] for size in SIZES}
    for round in range(-1, ROUNDS):
        for size in SIZES:
            times = _step_times(engine, size)
            if round >= 0:  # the one before compiles kernels
                samples[size] += times
            print(round, size, f"{1e3 * statistics.median(times):.2f} ms", flush=True)
    sizes = {}
    for size, times in samples.items():
        ms = 1e3 * statistics.median(times)
        sizes[str(size)] = {
            "step_ms": ms,
            "tokens_per_second": 1e3 * size / ms,
            "each": 1e3 / ms,
        }
    first, last = sizes["1"], sizes[str(SIZES[-1])]
    save(
        str(OUT),
        {
            "command": "python -m yaie.bench.evidence.time_company",
            "workload": f"decodes after prompts of 32 tokens, medians of {ROUNDS * STEPS} steps",
            "sizes": sizes,
            "last": {
                "size": SIZES[-1],
                "step_ratio": last["step_ms"] / first["step_ms"],
                "tokens_ratio": last["tokens_per_second"] / first["tokens_per_second"],
            },
        },
    )


def _step_times(engine: LLMEngine, size: int) -> list[float]:
    """Seconds of each of STEPS steps in which `size` requests decode."""
    params = SamplingParams(temperature=0, max_tokens=STEPS + WARM_UP + 8, ignore_eos=True)
    requests = []
    for job in draw_jobs(size, Lengths((32, 32), (1, 1)), engine.tokenizer.vocab_size):
        requests += engine.add_request(job.prompt, params)
    for _ in range(WARM_UP):
        engine.step()
    times = []
    for _ in range(STEPS):
        begin = time.perf_counter()
        outputs = engine.step()
        times.append(time.perf_counter() - begin)
        assert len(outputs) == size, f"{len(outputs)} of {size} requests went on"
    for request in requests:
        engine.abort(request.request_id)
    return times


if __name__ == "__main__":
    main()
