"""What must be alike on both sides: the weights, and how keys and values lie in a block."""

import hashlib
from pathlib import Path
from typing import Any

from yaie.models.loader import LoadedModel
from yaie.models.weights import checkpoint_files, weight_files

FORMAT = 3
"""Of messages and of the order of the bytes of blocks: another number, another order."""
SAMPLED = 1 << 20
"""Bytes at either end of a file of weights that tell it from another one."""


def layout_of(model: LoadedModel, block_size: int) -> dict[str, Any]:
    """For JSON. Names are what a message calls them."""
    layers = [[layer.num_kv_heads, layer.head_dim] for layer in model.adapter.kv_layers]
    return {
        "block_size": block_size,
        "dtype": str(model.dtype).removeprefix("torch."),
        "layers": layers,
        "weights": _digest(model.folder),
    }


def difference(ours: dict[str, Any], theirs: dict[str, Any]) -> str:
    """The first thing that is not alike, in words; "" if there is none."""
    for name, value in ours.items():
        other = theirs.get(name)
        if other != value and name in ("block_size", "dtype"):
            return f"{name} is {value} here and {other} there"
        if other != value:
            return f"the {name} of the two models differ"
    return ""


def _digest(folder: Path) -> str:
    """Of config.json and of samples of each file of weights, with its size."""
    digest = hashlib.sha256((folder / "config.json").read_bytes())
    for path in weight_files(checkpoint_files(folder)):
        size = path.stat().st_size
        digest.update(f"{path.name} {size}".encode())
        with path.open("rb") as file:
            digest.update(file.read(SAMPLED))
            file.seek(max(0, size - SAMPLED))
            digest.update(file.read(SAMPLED))
    return digest.hexdigest()
