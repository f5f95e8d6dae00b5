"""From llama.cpp's names of tensors to those of transformers, and what each one needs on the way."""

from pathlib import Path
from typing import Any

from yaie.core.errors import ModelError
from yaie.models.gguf.config import FACTORS
from yaie.models.gguf.families import Family
from yaie.models.gguf.header import TensorInfo
from yaie.models.gguf.parts import Model
from yaie.models.gguf.stored import Entry, Piece

_GATE_FIRST = ("ffn_gate_exps", "ffn_up_exps")
"""Of a layer's experts, which transformers holds in one tensor."""


def entries(path: Path, model: Model, config: Any, name: str, family: Family) -> dict[str, Entry]:
    """What each tensor of the model is made of, by transformers' name for it.

    config: a transformers PretrainedConfig. name: the file's architecture.
    Raises ModelError that names tensors which this architecture does not have.
    """
    known = _their_names(config, name, family)
    unknown = [one for one in model.tensors if one not in known and one not in FACTORS]
    if unknown:
        raise ModelError(
            f"{path} has {len(unknown)} tensors that a {config.model_type} does not have "
            f"({', '.join(unknown[:3])}{', ...' if len(unknown) > 3 else ''}): it is a variant that is "
            "not read from GGUF. Serve the original model with safetensors."
        )
    found: dict[str, list[Piece]] = {}
    # Gates stand before what they open, whatever the order in the file.
    for one in sorted(set(model.tensors) - set(FACTORS), key=_in_order):
        file, info = model.tensors[one]
        found.setdefault(known[one], []).append(_piece(file, info, config, family))
    return {theirs: _entry(pieces, family) for theirs, pieces in found.items()}


def _in_order(name: str) -> tuple[str, bool]:
    gate, up = _GATE_FIRST
    return name.replace(up, gate), up in name


def _their_names(config: Any, name: str, family: Family) -> dict[str, str]:
    """transformers' names by llama.cpp's, through a model without weights and the gguf package's table.

    As `get_gguf_hf_weights_map` of transformers, which looks at each of a model's modules again with a
    table of its own: seconds, for names that none of these families has.
    """
    import torch
    from gguf import MODEL_ARCH_NAMES, get_tensor_name_map
    from transformers import AutoModelForCausalLM
    from transformers.modeling_gguf_pytorch_utils import TENSOR_PROCESSORS, TensorProcessor

    with torch.device("meta"):
        empty = AutoModelForCausalLM.from_config(config)
    kind = next(kind for kind, called in MODEL_ARCH_NAMES.items() if called == name)
    table = get_tensor_name_map(kind, config.num_hidden_layers)
    processor = TENSOR_PROCESSORS.get(name, TensorProcessor)(config=config.to_dict())
    found: dict[str, str] = {}
    for theirs in map(processor.preprocess_name, empty.state_dict()):
        stem, suffix = _without_suffix(theirs)
        known = table.get_name(stem)
        if known is None:  # two tensors of the file may be one of theirs
            processor.perform_fallback_tensor_mapping(found, suffix, "", theirs)
        else:
            found[known + suffix] = theirs
    names = {_with_suffix(ours): theirs for ours, theirs in found.items()}
    for layer in range(config.num_hidden_layers):
        for ours, theirs in family.further.items():
            names[f"blk.{layer}.{ours}"] = f"model.layers.{layer}.{theirs}"
    return names


def _with_suffix(name: str) -> str:
    """Experts have a suffix in files alone."""
    return name if name.endswith((".weight", ".bias")) else f"{name}.weight"


def _without_suffix(name: str) -> tuple[str, str]:
    stem, _, last = name.rpartition(".")
    return (stem, f".{last}") if last in ("weight", "bias") else (name, "")


def _piece(file: int, info: TensorInfo, config: Any, family: Family) -> Piece:
    name = info.name
    heads = 0
    if family.permutes and ".attn_q." in name:
        heads = config.num_attention_heads
    elif family.permutes and ".attn_k." in name:
        heads = config.num_key_value_heads
    return Piece(
        file,
        info.start,
        info.shape,
        info.kind,
        heads=heads,
        shift=family.norm_shift if name.endswith("norm.weight") else 0.0,
        transposed=name.endswith(family.transposes),
    )


def _entry(pieces: list[Piece], family: Family) -> Entry:
    shape = pieces[0].result_shape
    if len(pieces) == 1:
        return Entry((pieces[0],), shape=shape)
    if family.interleaves:
        together = len(pieces) * shape[-1]
        return Entry(tuple(pieces), shape=(*shape[:-1], together), interleaved=True)
    joined = sum(piece.shape[1] for piece in pieces)
    return Entry(tuple(pieces), 1, (shape[0], joined, *shape[2:]))
