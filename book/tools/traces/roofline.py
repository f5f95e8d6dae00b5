"""What the figure `roofline` computes with: ceilings that were measured, and the shapes of two models.

Ceilings stand in book/evidence/ceilings.json, the card's memory in gpu.json beside it, shapes in
book/figures/kv-growth.toml; none is written down twice. No part takes part in this trace.
"""

import json

from book.tools.traces import ROOT, Part, Trace
from yaie.core.compat import tomllib

LAB = None
CEILINGS = ROOT / "book/evidence/ceilings.json"
MEMORY = ROOT / "book/evidence/gpu.json"
SHAPES = ROOT / "book/figures/kv-growth.toml"
MODELS = ("tutor", "qwen3-06b", "llama-8b")
NEEDED = (
    "label", "layers", "heads", "kv_heads", "head_dim", "hidden", "ffn", "vocab", "context", "parameters"
)  # fmt: skip


def record(part: Part) -> Trace:
    """machines: label, bytes a number, bytes/s, FLOP/s (least and most), bytes of memory (null for a
    CPU's, which depends on the machine). models: their shapes."""
    card = json.loads(MEMORY.read_text("utf-8"))["properties"]["memory_gb"] * 1e9
    machines = json.loads(CEILINGS.read_text("utf-8"))["machines"]
    models = tomllib.loads(SHAPES.read_text("utf-8"))["data"]["models"]
    return {
        "machines": {
            name: {
                "label": machine["label"],
                "width": machine["bytes_a_number"],
                "bandwidth": machine["bytes_per_second"],
                "compute": machine["flops_per_second"],
                "memory": card if name == "h200" else None,
            }
            for name, machine in machines.items()
        },
        "models": {name: {field: models[name][field] for field in NEEDED} for name in MODELS},
    }
