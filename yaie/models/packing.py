"""How a checkpoint packs its weights, by its config.json: which formats are read, and why not others."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from yaie.core.errors import ModelError
from yaie.models.json_files import bad_field, shown

MARKS = {
    "gptq": "qweight",
    "awq": "qweight",
    "pack-quantized": "weight_packed",
    "int-quantized": "weight_scale",
    "float-quantized": "weight_scale",
    "fp8": "weight_scale_inv",
}
"""By a format's method: the tensor that a packed product has and another has not."""
WHOLE = -1
"""The group size that says: all inputs share a scale."""


@dataclass(frozen=True, slots=True)
class PackedFormat:
    """Of the layers' products. method: how the numbers lie in memory, one of `schemes.words.KINDS`.

    bits: 4 or 8. group_size: inputs that share a scale; WHOLE for all. zero_offset: what was taken off
    the zeros before they were stored. zeros: whether there are any. ordered: whether `g_idx` says which
    group an input belongs to. block: outputs and inputs that share a scale, where it is not a row of
    inputs; (0, 0) for one scale of all. ignored: endings of the names of tensors that say nothing new.
    left_out: patterns of the names of products that are not packed, see `is_left_out`. only: patterns of
    those that are, where that is not every product of a layer; "*" where the checkpoint alone shows it.
    renamed: an ending of names, and the one that the format usually has in its place. on_load: whether
    weights are multiplied out before an adapter sees them. plain: names of products that a checkpoint
    has in floating point, see `seen_in`.
    """

    method: str
    bits: int
    group_size: int = WHOLE
    zero_offset: int = 0
    zeros: bool = False
    ordered: bool = False
    block: tuple[int, int] | None = None
    ignored: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    renamed: tuple[str, str] | None = None
    on_load: bool = False
    plain: frozenset[str] = frozenset()

    def seen_in(self, names: Iterable[str], short: Callable[[str], str]) -> "PackedFormat":
        """The same with `plain`, by a checkpoint's tensors of these names. short: what an adapter calls
        them."""
        usual = [short(name) for name, _ in self.usual_names((name, None) for name in names)]
        mark = f".{MARKS[self.method]}"
        packed = {name.removesuffix(mark) for name in usual if name.endswith(mark)}
        weights = {name.removesuffix(".weight") for name in usual if name.endswith(".weight")}
        return replace(self, plain=frozenset(weights - packed))

    def usual_names(self, tensors: Iterable[tuple[str, Any]]) -> Iterable[tuple[str, Any]]:
        """The same tensors, by the names that schemes know."""
        for name, tensor in tensors:
            if self.renamed is not None and name.endswith(self.renamed[0]):
                yield name.removesuffix(self.renamed[0]) + self.renamed[1], tensor
            else:
                yield name, tensor

    def packs_all(self, products: Iterable[str]) -> bool:
        """Whether all of these products of layers are packed, as far as config.json shows."""
        return not self.only and not any(map(self.is_left_out, products))

    def is_left_out(self, name: str) -> bool:
        """Whether config.json leaves the product of this name in floating point. Tools mean different
        things by a name: a module, all in it, or whatever contains it. Any of these counts here."""
        for pattern in self.left_out:
            if pattern.startswith("re:"):
                if re.match(pattern.removeprefix("re:"), name):
                    return True
            elif pattern in name:
                return True
        return False


def product_names(num_layers: int) -> Iterable[str]:
    """Of the products of a decoder's layers, as hand-written adapters have them, by each of the names in
    use."""
    inner = [f"self_attn.{one}_proj" for one in "qkvo"]
    inner += [f"mlp.{one}_proj" for one in ("gate", "up", "down")]
    inner += ["shared_mlp.input_linear", "shared_mlp.output_linear"]
    for prefix in ("model.", "model.language_model.", "language_model.model."):
        for layer in range(num_layers):
            yield from (f"{prefix}layers.{layer}.{one}" for one in inner)


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
    except (AttributeError, TypeError, ValueError, KeyError, IndexError) as error:
        wanted = f"what tools for {shown(method)} write"
        raise bad_field(folder / "config.json", "quantization_config", told, wanted) from error
    except _NotRead as error:
        raise ModelError(
            f"{folder / 'config.json'}: by its quantization_config the weights are quantized "
            f"({method}), {error} is not supported. What is read: gptq and compressed-tensors "
            "(pack-quantized) in 4 bits, and in 8 with a scale for each output; awq in 4 bits; "
            "int-quantized and float-quantized weights; fp8; mxfp4. Or serve the original model in "
            "bfloat16, float16 or float32."
        ) from None


class _NotRead(Exception):
    """Of a format: what is not read, in words."""


def _unknown(told: dict[str, Any]) -> PackedFormat:
    raise _NotRead("which")


def _gptq(told: dict[str, Any]) -> PackedFormat:
    bits = _bits(told.get("bits"))
    size = _group_size(told.get("group_size"), bits)
    if told.get("checkpoint_format", "gptq") not in ("gptq", "gptq_v2"):
        raise _NotRead(f"whose checkpoint_format {told['checkpoint_format']!r}")
    rules = told.get("dynamic") or {}
    if not all(rule.startswith("-:") for rule in rules):  # others give single products other bits
        raise _NotRead("whose 'dynamic'")
    some = "*" if told.get("lm_head") or told.get("modules_in_block_to_quantize") else ""
    # Unless inputs were rounded in another order, g_idx says nothing new.
    ordered = bool(told.get("desc_act")) and size != WHOLE
    return PackedFormat(
        "gptq",
        bits,
        size,
        zero_offset=0 if told.get("checkpoint_format") == "gptq_v2" else 1,
        zeros=True,
        ordered=ordered,
        ignored=() if ordered else (".g_idx",),
        left_out=tuple(f"re:{rule.removeprefix('-:')}" for rule in rules),
        only=(some,) if some else (),
    )


def _awq(told: dict[str, Any]) -> PackedFormat:
    if told.get("bits") != 4:
        raise _NotRead(f"which in {told.get('bits')} bits")
    if told.get("version", "gemm") != "gemm":
        raise _NotRead(f"whose version {told['version']!r}")
    size, left_out = _group_size(told.get("group_size"), 4), _names(told, "modules_to_not_convert")
    return PackedFormat("awq", 4, size, zeros=True, left_out=left_out)


def _compressed(told: dict[str, Any]) -> PackedFormat:
    groups = list((told.get("config_groups") or {}).values())
    form = told.get("format")
    if form not in _FORMS or len(groups) != 1:
        raise _NotRead(f"whose format {form!r} of {len(groups)} groups of weights")
    (group,) = groups
    targets = _names(group, "targets")
    how = group.get("weights") or {}
    kind = "float" if form == "float-quantized" else "int"
    if how.get("type", "int") != kind:
        raise _NotRead(f"whose type {how.get('type')!r} of {form!r}")
    only = () if targets == ("Linear",) else targets or ("*",)
    return replace(_FORMS[form](how), left_out=_names(told, "ignore"), only=only)


def _pack_quantized(how: dict[str, Any]) -> PackedFormat:
    bits = _bits(how.get("num_bits"))
    if how.get("strategy") not in ("group", "channel"):
        raise _NotRead(f"whose strategy {how.get('strategy')!r}")
    size: Any = WHOLE if how["strategy"] == "channel" else how.get("group_size")
    return PackedFormat(
        "pack-quantized",
        bits,
        _group_size(size, bits),
        zeros=not how.get("symmetric", True),
        ordered=how.get("actorder") in ("group", "dynamic") and size != WHOLE,
        ignored=(".weight_shape", *_OF_ACTIVATIONS),
    )


def _int_quantized(how: dict[str, Any]) -> PackedFormat:
    if how.get("num_bits") != 8 or how.get("strategy") != "channel":
        raise _NotRead(f"whose strategy {how.get('strategy')!r} in {how.get('num_bits')} bits")
    zeros = not how.get("symmetric", True)
    return PackedFormat("int-quantized", 8, zeros=zeros, ignored=_OF_ACTIVATIONS)


def _float_quantized(how: dict[str, Any]) -> PackedFormat:
    strategy, size = how.get("strategy"), how.get("block_structure")
    blocks = {"channel": (1, WHOLE), "tensor": (0, 0)}
    if strategy == "block":
        blocks["block"] = _block(size)
    if how.get("num_bits") != 8 or strategy not in blocks:
        raise _NotRead(f"whose strategy {strategy!r} in {how.get('num_bits')} bits")
    return PackedFormat("float-quantized", 8, block=blocks[strategy], ignored=_OF_ACTIVATIONS)


def _fp8(told: dict[str, Any]) -> PackedFormat:
    if told.get("fmt", "e4m3") != "e4m3":
        raise _NotRead(f"whose fmt {told['fmt']!r}")
    left_out = _names(told, "modules_to_not_convert") or _names(told, "ignored_layers")
    size = told.get("weight_block_size")
    how = PackedFormat(
        "float-quantized",
        8,
        block=(0, 0),
        ignored=_OF_ACTIVATIONS,
        renamed=(".weight_scale_inv", ".weight_scale"),  # as transformers writes it
    )
    if size is not None:
        how = PackedFormat("fp8", 8, block=_block(size), ignored=_OF_ACTIVATIONS)
    return replace(how, left_out=left_out)


def _mxfp4(told: dict[str, Any]) -> PackedFormat:
    return PackedFormat("mxfp4", 4, on_load=True)  # which experts it is, their tensors show


_READERS: dict[str, Callable[[dict[str, Any]], PackedFormat]] = {
    "gptq": _gptq,
    "awq": _awq,
    "compressed-tensors": _compressed,
    "fp8": _fp8,
    "mxfp4": _mxfp4,
}
_FORMS: dict[Any, Callable[[dict[str, Any]], PackedFormat]] = {
    "pack-quantized": _pack_quantized,
    "int-quantized": _int_quantized,
    "float-quantized": _float_quantized,
}
# Scales for rounding what a product reads, and keys and values: here they keep the model's dtype.
_OF_ACTIVATIONS = (
    ".input_scale",
    ".activation_scale",
    ".input_zero_point",
    ".output_scale",
    ".k_scale",
    ".v_scale",
)


def _names(told: dict[str, Any], field: str) -> tuple[str, ...]:
    """A list of names; nothing if it is not there."""
    names = told.get(field) or []
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        raise TypeError(field)
    for name in names:
        if name.startswith("re:"):
            try:
                re.compile(name.removeprefix("re:"))
            except re.error as error:
                raise ValueError(field) from error
    return tuple(names)


def _bits(bits: Any) -> int:
    if type(bits) is not int or bits not in (4, 8):
        raise _NotRead(f"which in {bits} bits")
    return int(bits)


def _block(size: Any) -> tuple[int, int]:
    """Outputs and inputs that share a scale."""
    is_pair = isinstance(size, list | tuple) and len(size) == 2
    if not is_pair or not all(type(one) is int and 0 < one < 1 << 24 for one in size):
        raise _NotRead(f"whose blocks {shown(size)}")
    return size[0], size[1]


def _group_size(size: Any, bits: int) -> int:
    if type(size) is not int or (size != WHOLE and (size <= 0 or size % 8)):
        raise _NotRead(f"which in groups of {size}")
    if bits == 8 and size != WHOLE:
        raise _NotRead("which in 8 bits and in groups")
    return size
