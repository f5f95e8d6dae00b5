"""Where a measured decode step goes, for the figure `step-budget`: bytes, gaps, and the rest.

Steps and gaps stand in book/evidence/gpu_decode_trace.json, ceilings in ceilings.json, the shape in
book/figures/kv-growth.toml. No part takes part in this trace.
"""

import json

from book.tools.traces import ROOT, Part, Trace
from yaie.core.compat import tomllib

LAB = None
EVIDENCE = ROOT / "book/evidence"
SHAPES = ROOT / "book/figures/kv-growth.toml"
WIDTH = 2


def record(part: Part) -> Trace:
    """batches, by size: microseconds of weights and of keys and values at a copy's speed, of measured
    gaps, and of what is left of the measured step; and its kernels."""
    measured = json.loads((EVIDENCE / "gpu_decode_trace.json").read_text("utf-8"))
    machines = json.loads((EVIDENCE / "ceilings.json").read_text("utf-8"))["machines"]
    model = tomllib.loads(SHAPES.read_text("utf-8"))["data"]["models"]["qwen3-06b"]
    speed = machines["h200"]["bytes_per_second"] / 1e6
    token = 2 * WIDTH * model["layers"] * model["kv_heads"] * model["head_dim"]
    weights = WIDTH * model["parameters"] / speed
    batches = {}
    for size, step in measured["batches"].items():
        kv = int(size) * measured["prompt_tokens"] * token / speed
        rest = step["step_us"] - weights - kv - step["idle_us"]
        batches[size] = {
            "weights": round(weights, 1),
            "kv": round(kv, 1),
            "gaps": round(step["idle_us"], 1),
            "rest": round(rest, 1),
            "step": round(step["step_us"], 1),
            "kernels": step["kernels"],
        }
    return {"batches": batches}
