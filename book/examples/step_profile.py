"""Which operations a decode step of the tutor is made of: `python book/examples/step_profile.py`.

`python -m book.measure.step_profile` keeps what the chapter shows of a run.
"""

import time
from statistics import median
from typing import Any

from torch.profiler import ProfilerActivity, profile

from yaie import LLMEngine, SamplingParams

STEPS = 64
SHOWN = 6


def main() -> None:
    print("\n".join(lines(measure())))


def measure() -> dict[str, Any]:
    """step_ms: without the profiler. operators, the largest first: name, share, calls a step."""
    # ANCHOR: profile
    engine = LLMEngine(model="tutor", mine="none", backend="torch", threads=1)
    params = SamplingParams(temperature=0, max_tokens=3 * STEPS, ignore_eos=True)
    for question in ("What is a KV cache?", "Why is decode slow?"):
        engine.add_request(engine.encode_chat([{"role": "user", "content": question}]), params)
    for _ in range(STEPS):  # prompts, and whatever happens only once
        engine.step()
    plain = []
    for _ in range(STEPS):
        begin = time.perf_counter()
        engine.step()
        plain.append(time.perf_counter() - begin)
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        for _ in range(STEPS // 2):
            engine.step()
    # ANCHOR_END: profile
    rows = sorted(seen.key_averages(), key=lambda row: -row.self_cpu_time_total)
    whole = sum(row.self_cpu_time_total for row in rows)
    operators = [
        {
            "name": row.key,
            "share": row.self_cpu_time_total / whole,
            "calls": row.count / (STEPS // 2),
        }
        for row in rows
    ]
    return {
        "workload": "two requests decode",
        "step_ms": median(plain) * 1e3,
        "operators": operators,
    }


def lines(figures: dict[str, Any]) -> list[str]:
    """What is printed of them."""
    first = f"{figures['step_ms']:.2f} ms a step without the profiler; of the time in operators:"
    return [first, *(_line(**operator) for operator in figures["operators"][:SHOWN])]


def _line(name: str, share: float, calls: float) -> str:
    return f"  {share:4.0%}  {name:46s} {calls:4.0f} calls a step"


if __name__ == "__main__":
    main()
