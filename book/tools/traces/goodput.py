"""What a step costs in the figure `goodput`: a line through the engine's measured steps on one H200.

The measurements stand in book/evidence/gpu_fixed_large.json. No part takes part in this trace.
"""

import json

from book.tools.traces import ROOT, Part, Trace

LAB = None
MEASURED = ROOT / "book/evidence/gpu_fixed_large.json"
PROMPT, FEW, MANY = 1024, 1, 256


def record(part: Part) -> Trace:
    """engine: seconds of a step, of a request that decodes in it, and of a prompt token; its limits."""
    batches = json.loads(MEASURED.read_text("utf-8"))["batches"]
    step = {size: batches[str(size)]["YAIE"]["mean_ms"][0] / 1e3 for size in (FEW, MANY)}
    each = (step[MANY] - step[FEW]) / (MANY - FEW)
    prefill = batches["32"]["YAIE"]["prefill_ms"][0] / 1e3
    return {
        "engine": {
            "base": round(step[FEW] - each, 7),
            "each": round(each, 8),
            "token": round(prefill / (32 * PROMPT), 9),
            "budget": 2048,
            "most": 256,
        }
    }
