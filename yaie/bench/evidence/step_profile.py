"""Which operations a decode step of the tutor is made of, for the chapter on profiling.

    python -m yaie.bench.evidence.step_profile

The chapter prints it word for word. Of RUNS runs the fastest gives the time and the medians give the
shares, so other programs of the machine disturb them least.
"""

import time
from statistics import median
from typing import Any

from torch.profiler import ProfilerActivity, profile

from yaie.bench.evidence import EVIDENCE
from yaie.bench.report import save
from yaie.core.params import SamplingParams
from yaie.engine.llm_engine import LLMEngine

OUT = EVIDENCE / "step_profile.json"
RUNS = 5
STEPS = 64
KEPT = 12
SHOWN = 6


def main() -> None:
    figures = joined([measure() for _ in range(RUNS)])
    print("\n".join(lines(figures)))
    save(
        str(OUT), {"command": "python -m yaie.bench.evidence.step_profile", "runs": RUNS, **figures}
    )


def joined(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Several results of `measure` as one, with KEPT operators that all of them have."""
    found = [{operator["name"]: operator for operator in run["operators"]} for run in runs]
    operators = [
        {**found[0][name], "share": median(run[name]["share"] for run in found)}
        for name in found[0]
        if all(name in run for run in found)
    ]
    operators.sort(key=lambda operator: -operator["share"])
    return {
        "workload": runs[0]["workload"],
        "step_ms": min(run["step_ms"] for run in runs),
        "operators": operators[:KEPT],
    }


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
