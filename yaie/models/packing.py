"""How a checkpoint packs its weights, by its config.json: the formats that are read, and why not."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from yaie.core.errors import ModelError

WHOLE = -1
"""The group size that says: all inputs share a scale."""


@dataclass(frozen=True, slots=True)
class PackedFormat:
    """The layers' products in a format of GPTQ's. method: as config.json calls it.

    bits: 4 or 8. group_size: inputs that share a scale; WHOLE for all. zero_offset: what was taken off
    the zeros before they were stored.
    """

    method: str
    bits: int
    group_size: int
    zero_offset: int


def read_format(folder: Path, config: Any) -> PackedFormat | None:
    """Of a transformers PretrainedConfig; None if the weights are not packed.

    Raises ModelError for a format, or a variant, that is not read.
    """
    told = getattr(config, "quantization_config", None)
    if told is None:
        return None
    if not isinstance(told, dict):
        told = told.to_dict()
    method = str(told.get("quant_method", "some method"))
    if why := _refusal(method, told):
        raise ModelError(
            f"the weights in {folder} are quantised ({method}), {why}. What is read: gptq in 4 bits, "
            "and in 8 bits with a scale for each output. Or serve the original model in bfloat16, "
            "float16 or float32."
        )
    size = int(told["group_size"])
    offset = 0 if told.get("checkpoint_format") == "gptq_v2" else 1
    return PackedFormat(method, int(told["bits"]), size, offset)


def _refusal(method: str, told: dict[str, Any]) -> str:
    """Why it is not read, in words; "" if it is."""
    if method != "gptq":
        return "which is not supported"
    bits, size = told.get("bits"), told.get("group_size")
    if bits not in (4, 8):
        return f"in {bits} bits, which is not supported"
    if not isinstance(size, int) or (size != WHOLE and (size <= 0 or size % 8)):
        return f"in groups of {size}, which is not supported"
    if bits == 8 and size != WHOLE:
        return "in 8 bits and in groups, which is not supported"
    if told.get("desc_act"):
        return "with inputs in order of activation (desc_act), which is not supported"
    if told.get("checkpoint_format", "gptq") not in ("gptq", "gptq_v2"):
        return f"with the checkpoint_format {told['checkpoint_format']!r}, which is not supported"
    for name in ("lm_head", "dynamic", "modules_in_block_to_quantize"):
        if told.get(name):
            return f"with {name!r}, which is not supported"
    return ""
