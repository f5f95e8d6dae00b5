"""Shapes of published models, as the figures of the chapters without a lab count with them.

They stand in book/figures/kv-growth.toml and are not written down twice. No part takes part in this
trace.
"""

from book.tools.traces import ROOT, Part, Trace
from yaie.core.compat import tomllib

LAB = None
SHAPES = ROOT / "book/figures/kv-growth.toml"
MODELS = ("llama-8b", "llama-70b", "qwen3-06b")


def record(part: Part) -> Trace:
    """models: label, layers, heads, kvHeads, dim, hidden, kv (width of the keys), ffn, weights, head.

    Weights are those that a token is multiplied by when it gets logits: not the embedding table that it
    is looked up in. `head` of them are the last matrix, which makes the logits; of a prompt only the
    last token is multiplied by it.
    """
    models = tomllib.loads(SHAPES.read_text("utf-8"))["data"]["models"]
    return {"models": {name: _shape(models[name]) for name in MODELS}}


def _shape(model: dict) -> dict:
    head = model["vocab"] * model["hidden"]
    table = 0 if model.get("tied") else head
    return {
        "label": model["label"],
        "layers": model["layers"],
        "heads": model["heads"],
        "kvHeads": model["kv_heads"],
        "dim": model["head_dim"],
        "hidden": model["hidden"],
        "kv": model["kv_heads"] * model["head_dim"],
        "ffn": model["ffn"],
        "weights": model["parameters"] - table,
        "head": head,
    }
