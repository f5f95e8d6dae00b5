"""Small models for the grader, made of the tutor's weights."""

import json
import shutil
from pathlib import Path

from safetensors.torch import load_file, save_file
from torch import Tensor

from solutions import quantization as reference
from yaie.models.packed_checkpoint import COPIED, write_checkpoint
from yaie.models.rounding import Recipe
from yaie.models.tutor import TUTOR_PATH
from yaie.models.weights import SINGLE_FILE

GROUP = 128
LAYERS = "model.layers."
EMBEDDING = "model.embed_tokens.weight"


def shallow_tutor(folder: Path, layers: int, vocab: int | None = None) -> Path:
    """The tutor's first layers, with the first tokens of its vocabulary, or with all."""
    folder.mkdir(parents=True)
    tensors = {name: tensor for name, tensor in _weights().items() if _layer(name) < layers}
    embedding = tensors[EMBEDDING][:vocab].clone()
    tensors[EMBEDDING] = embedding
    save_file(tensors, folder / SINGLE_FILE, metadata={"format": "pt"})
    for path in TUTOR_PATH.iterdir():
        if path.suffix in COPIED:
            shutil.copyfile(path, folder / path.name)
    config = json.loads((TUTOR_PATH / "config.json").read_text("utf-8"))
    config |= {"num_hidden_layers": layers, "vocab_size": len(embedding)}
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    return folder


def rounded_tutor(folder: Path, bits: int) -> Path:
    """The tutor with weights of 8 or 4 bits, rounded to the nearest by the reference."""
    packed = {
        name.removesuffix(".weight"): (
            reference.Int8().quantize(tensor.float())
            if bits == 8
            else reference.Int4().quantize(tensor.float(), GROUP)
        )
        for name, tensor in _weights().items()
        if name.startswith(LAYERS) and tensor.dim() == 2
    }
    write_checkpoint(TUTOR_PATH, folder, packed, Recipe(bits, GROUP, gptq=False))
    return folder


def _weights() -> dict[str, Tensor]:
    weights: dict[str, Tensor] = load_file(TUTOR_PATH / SINGLE_FILE)
    return weights


def _layer(name: str) -> int:
    """That a tensor belongs to; -1 for one of no layer."""
    return int(name.removeprefix(LAYERS).partition(".")[0]) if name.startswith(LAYERS) else -1
