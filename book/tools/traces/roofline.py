"""What the figure `roofline` computes with: ceilings that were measured, and the shapes of two models.

Ceilings stand in book/evidence/ceilings.json, shapes in book/figures/kv-growth.toml; neither is written
down twice. No part takes part in this trace.
"""

import json

from book.tools.traces import ROOT, Part, Trace
from yaie.core.compat import tomllib

LAB = None
CEILINGS = ROOT / "book/evidence/ceilings.json"
SHAPES = ROOT / "book/figures/kv-growth.toml"
MODELS = ("tutor", "qwen3-06b", "llama-8b")
NEEDED = ("label", "layers", "heads", "kv_heads", "head_dim", "hidden", "ffn", "vocab", "context")


def record(part: Part) -> Trace:
    """machines: label, bytes a number, bytes/s, FLOP/s (least and most). models: their shapes."""
    machines = json.loads(CEILINGS.read_text("utf-8"))["machines"]
    models = tomllib.loads(SHAPES.read_text("utf-8"))["data"]["models"]
    return {
        "machines": {
            name: {
                "label": machine["label"],
                "width": machine["bytes_a_number"],
                "bandwidth": machine["bytes_per_second"],
                "compute": machine["flops_per_second"],
            }
            for name, machine in machines.items()
        },
        "models": {name: {field: models[name][field] for field in NEEDED} for name in MODELS},
    }
