"""Decode steps as points for the figure `latency-throughput`: what a stream waits, and what all get.

They stand in book/evidence/gpu_fixed_small.json and gpu_fixed_large.json, with the least that the bytes
of each step would take at the speed of a copy in that run. No part takes part in this trace.
"""

import json
from statistics import median

from book.tools.traces import ROOT, Part, Trace

LAB = None
EVIDENCE = ROOT / "book/evidence"
RUNS = {"qwen3-06b": "gpu_fixed_small", "llama-8b": "gpu_fixed_large"}


def record(part: Part) -> Trace:
    """measured and limit, by model: [[requests, milliseconds of a step], ...], medians of the runs."""
    files = {model: _file(name) for model, name in RUNS.items()}
    return {
        "measured": {
            model: [
                [int(size), round(median(runs["YAIE"]["median_ms"]), 3)]
                for size, runs in file["batches"].items()
            ]
            for model, file in files.items()
        },
        "limit": {
            model: [[int(size), round(one["decode_ms"], 3)] for size, one in file["limit"].items()]
            for model, file in files.items()
        },
    }


def _file(name: str) -> dict:
    found: dict = json.loads((EVIDENCE / f"{name}.json").read_text("utf-8"))
    return found
