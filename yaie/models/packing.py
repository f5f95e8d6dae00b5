"""How a checkpoint packs its weights, by its config.json: which formats are read, and why not others."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from yaie.core.errors import ModelError

WHOLE = -1
"""The group size that says: all inputs share a scale."""


@dataclass(frozen=True, slots=True)
class PackedFormat:
    """Of the layers' products. method: as config.json calls it.

    bits: 4 or 8. group_size: inputs that share a scale; WHOLE for all. zero_offset: what was taken off
    the zeros before they were stored. ignored: endings of the names of tensors that say nothing new.
    """

    method: str
    bits: int
    group_size: int
    zero_offset: int = 0
    ignored: tuple[str, ...] = ()


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
    try:
        return _READERS.get(method, _unknown)(told)
    except _NotRead as error:
        raise ModelError(
            f"the weights in {folder} are quantised ({method}), {error} is not supported. What is read: "
            "gptq, awq and compressed-tensors (pack-quantized) in 4 bits, and gptq in 8 bits with a "
            "scale for each output. Or serve the original model in bfloat16, float16 or float32."
        ) from None


class _NotRead(Exception):
    """Of a format: what is not read, in words."""


def _unknown(told: dict[str, Any]) -> PackedFormat:
    raise _NotRead("which")


def _gptq(told: dict[str, Any]) -> PackedFormat:
    if why := _refusal(told):
        raise _NotRead(why)
    offset = 0 if told.get("checkpoint_format") == "gptq_v2" else 1
    # Inputs stand in the order of their groups: g_idx says nothing new.
    return PackedFormat("gptq", int(told["bits"]), int(told["group_size"]), offset, (".g_idx",))


def _awq(told: dict[str, Any]) -> PackedFormat:
    _require_four(told.get("bits"), told.get("group_size"))
    if told.get("version", "gemm") != "gemm":
        raise _NotRead(f"whose version {told['version']!r}")
    if told.get("modules_to_not_convert") not in (None, [], ["lm_head"]):
        raise _NotRead("whose 'modules_to_not_convert'")
    return PackedFormat("awq", 4, int(told["group_size"]))


def _compressed(told: dict[str, Any]) -> PackedFormat:
    groups = list((told.get("config_groups") or {}).values())
    if told.get("format") != "pack-quantized" or len(groups) != 1:
        raise _NotRead(f"whose format {told.get('format')!r} of {len(groups)} groups of weights")
    (group,) = groups
    how = group.get("weights") or {}
    if group.get("input_activations") or group.get("output_activations"):
        raise _NotRead("whose rounding of activations")
    if told.get("kv_cache_scheme") or told.get("ignore") not in ([], ["lm_head"], None):
        raise _NotRead("whose 'kv_cache_scheme' or 'ignore'")
    if group.get("targets") != ["Linear"] or how.get("actorder") or not how.get("symmetric", True):
        raise _NotRead("whose targets, order of inputs or zeros")
    channel = how.get("strategy") == "channel"
    if how.get("type", "int") != "int" or how.get("strategy") not in ("group", "channel"):
        raise _NotRead(f"whose strategy {how.get('strategy')!r} of {how.get('type')!r}")
    size: Any = WHOLE if channel else how.get("group_size")
    _require_four(how.get("num_bits"), size)
    return PackedFormat("compressed-tensors", 4, int(size), ignored=(".weight_shape",))


_READERS = {"gptq": _gptq, "awq": _awq, "compressed-tensors": _compressed}


def _require_four(bits: Any, size: Any) -> None:
    if bits != 4:
        raise _NotRead(f"which in {bits} bits")
    if not isinstance(size, int) or (size != WHOLE and (size <= 0 or size % 8)):
        raise _NotRead(f"which in groups of {size}")


def _refusal(told: dict[str, Any]) -> str:
    """Which variant of gptq is not read, in words; "" if it is."""
    bits, size = told.get("bits"), told.get("group_size")
    if bits not in (4, 8):
        return f"which in {bits} bits"
    if not isinstance(size, int) or (size != WHOLE and (size <= 0 or size % 8)):
        return f"which in groups of {size}"
    if bits == 8 and size != WHOLE:
        return "which in 8 bits and in groups"
    if told.get("desc_act"):
        return "whose order of inputs by activation (desc_act)"
    if told.get("checkpoint_format", "gptq") not in ("gptq", "gptq_v2"):
        return f"whose checkpoint_format {told['checkpoint_format']!r}"
    for name in ("lm_head", "dynamic", "modules_in_block_to_quantize"):
        if told.get(name):
            return f"whose {name!r}"
    return ""
