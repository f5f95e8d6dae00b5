"""Decode steps as points for the figure `latency-throughput`: what a stream waits, and what all get.

They stand in book/evidence/gpu_fixed_small.json and gpu_fixed_large.json. No part takes part in this
trace.
"""

import json
from statistics import median

from book.tools.traces import ROOT, Part, Trace

LAB = None
EVIDENCE = ROOT / "book/evidence"
RUNS = {"qwen3-06b": "gpu_fixed_small", "llama-8b": "gpu_fixed_large"}


def record(part: Part) -> Trace:
    """models, by key: [[requests, milliseconds of a step], ...], the median of the runs."""
    return {
        "measured": {
            model: [
                [int(size), round(median(runs["YAIE"]["median_ms"]), 3)]
                for size, runs in _batches(name).items()
            ]
            for model, name in RUNS.items()
        }
    }


def _batches(name: str) -> dict:
    batches: dict = json.loads((EVIDENCE / f"{name}.json").read_text("utf-8"))["batches"]
    return batches
