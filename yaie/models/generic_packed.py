"""Packed weights under the generic adapter: transformers' model, with our products for its `nn.Linear`s.

Which of them are packed is seen in the checkpoint: a product has packed tensors, or it has a weight. So
a list of products that a tool left out needs no reading. What is packed and is no `nn.Linear` of the
model (experts, which transformers stacks; products that it joins) is multiplied out as it is loaded.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from yaie.core.errors import ModelError
from yaie.models.adapter import check_weights
from yaie.models.layout import whole
from yaie.models.linear import make_linear
from yaie.models.packing import MARKS, PackedFormat
from yaie.models.schemes import Packing, Scheme
from yaie.models.schemes.words import DENSE, WORD, WordScheme
from yaie.models.skeleton import renaming

Tensors = dict[str, Tensor]

_CODES = (torch.float8_e4m3fn, torch.float8_e5m2, torch.int8, torch.uint8)


class PackedLinear(nn.Module):
    """y = x @ weight.T + bias by one of our products. Without it until `product` is set."""

    product: Scheme

    def __init__(self, in_features: int, out_features: int, *, bias: bool) -> None:
        super().__init__()
        self.in_features, self.out_features, self.has_bias = in_features, out_features, bias

    def forward(self, x: Tensor) -> Tensor:
        """x: [..., in_features]; returns [..., out_features]."""
        return self.product(x.reshape(-1, self.in_features)).unflatten(0, x.shape[:-1])


class PackedParts:
    """A checkpoint whose products are packed, taken apart for one model of transformers.

    model_class: transformers' class, whose models have `PackedLinear`s for packed products. rest: all
    other tensors, those included that were multiplied out. num_parameters, weight_bytes: of the products
    that `fill` has filled.
    """

    num_parameters: int = 0
    weight_bytes: int = 0

    def __init__(
        self,
        packing: Packing,
        tensors: Mapping[str, Tensor],
        model_class: Any,
        config: Any,
        dtype: torch.dtype,
    ) -> None:
        """tensors: of the checkpoint, by name. Raises ModelError for packed tensors that do not belong
        together."""
        self._packing, self._dtype = packing, dtype
        products, self.rest = taken_apart(packing.format, tensors, dtype)
        with torch.device("meta"):
            model = model_class(config)
        rename, modules = renaming(model), dict(model.named_modules())
        self._held: dict[str, Tensors] = {}
        for name, parts in products.items():
            place = rename(f"{name}.weight").removesuffix(".weight")
            module = modules.get(place)
            if type(module) is nn.Linear:
                self._held[place] = parts
                continue
            dense = _dense(packing.format, name, parts, dtype)
            transposed = type(module).__name__ == "Conv1D"
            self.rest[f"{name}.weight"] = dense.t().contiguous() if transposed else dense
            if "bias" in parts:
                self.rest[f"{name}.bias"] = parts["bias"]
        self.model_class = _with_places(model_class, list(self._held))

    def fill(self, model: Any, device: torch.device) -> None:
        """Put our products into a model of `model_class`. Raises ModelError for tensors that are
        missing, unexpected or of a wrong shape."""
        for place, parts in self._held.items():
            module = model.get_submodule(place)
            layout = whole(module.in_features, module.out_features, bias=module.has_bias)
            module.product = make_linear(layout, self._dtype, device, packing=self._packing)
            wanted = module.product.destinations(place)
            misshapen = []
            given = {f"{place}.{suffix}": tensor for suffix, tensor in parts.items()}
            for name in wanted.keys() & given.keys():
                try:
                    wanted[name].fill(given[name])
                except ValueError as error:
                    misshapen.append(f"{name} {error}")
                self.num_parameters += given[name].numel() * wanted[name].parameters
                self.weight_bytes += wanted[name].weight_bytes
            check_weights(wanted.keys() - given.keys(), given.keys() - wanted.keys(), misshapen)


def taken_apart(
    how: PackedFormat, tensors: Mapping[str, Tensor], dtype: torch.dtype
) -> tuple[dict[str, Tensors], Tensors]:
    """(each packed product's tensors by the ends of their names, all other tensors). Experts that are
    stacked in one tensor, in FP8, are among the others, multiplied out into `dtype`.

    Raises ModelError where nothing is packed, or where a tensor of few bits belongs to no product.
    """
    mark = f".{MARKS[how.method]}"
    packed = {name.removesuffix(mark) for name in tensors if name.endswith(mark)}
    products: dict[str, Tensors] = defaultdict(dict)
    rest: Tensors = {}
    for name, tensor in tensors.items():
        product, _, suffix = name.rpartition(".")
        if name.endswith(how.ignored):
            continue
        if product in packed:
            products[product][suffix] = tensor
        elif f"{name}_scale_inv" in tensors and tensor.dim() == 3 and how.block is not None:
            rest[name] = _stack_dense(tensor, tensors[f"{name}_scale_inv"], how.block, dtype)
        elif name.endswith("_scale_inv") and name.removesuffix("_scale_inv") in tensors:
            continue
        elif tensor.dtype in _CODES:
            raise ModelError(
                f"{name} is stored as {str(tensor.dtype).removeprefix('torch.')}, and the scales that "
                "belong to it are not there. Fetch the model again."
            )
        else:
            rest[name] = tensor
    if not products and not any(name.endswith("_scale_inv") for name in tensors):
        raise ModelError(
            f"by config.json the weights are quantized ({how.method}), and none of its tensors is "
            f"called ...{mark}. Check that config.json and the weights belong together."
        )
    return dict(products), rest


def _stack_dense(
    codes: Tensor, scales: Tensor, block: tuple[int, int], dtype: torch.dtype
) -> Tensor:
    """Experts in one tensor [experts, rows, columns], whose scales are of blocks of rows and columns."""
    dense = torch.empty(codes.shape, dtype=dtype)
    for expert, weight in enumerate(codes):
        spread = scales[expert].float()
        for axis, size in enumerate(block):
            spread = spread.repeat_interleave(size, dim=axis).narrow(axis, 0, weight.shape[axis])
        dense[expert] = (weight.float() * spread).to(dtype)
    return dense


def _dense(how: PackedFormat, name: str, parts: Tensors, dtype: torch.dtype) -> Tensor:
    """The weight [out, in] that a product's tensors stand for."""
    inputs, outputs = _features(how, parts)
    scheme = Packing(how, DENSE).scheme(whole(inputs, outputs), dtype, torch.device("cpu"))
    assert isinstance(scheme, WordScheme)
    wanted = scheme.destinations(name)
    given = {f"{name}.{suffix}": tensor for suffix, tensor in parts.items() if suffix != "bias"}
    check_weights(wanted.keys() - given.keys(), given.keys() - wanted.keys(), ())
    for key, place in wanted.items():
        try:
            place.fill(given[key])
        except ValueError as error:
            raise ModelError(
                f"{key} {error}: it does not fit the tensors beside it. Fetch the model again."
            ) from None
    return scheme.dense()


def _features(how: PackedFormat, parts: Tensors) -> tuple[int, int]:
    """Inputs and outputs of a product, by its tensors."""
    mark = MARKS[how.method]
    codes = WORD // how.bits
    shape = parts[mark if mark in ("qweight", "weight_packed") else "weight"].shape
    if len(shape) != 2:
        raise ModelError(
            f"packed weights of {len(shape)} dimensions are not supported: serve the original model"
        )
    if how.method == "gptq":
        return shape[0] * codes, shape[1]
    if how.method == "awq":
        return shape[0], shape[1] * codes
    return shape[1] * (codes if how.method == "pack-quantized" else 1), shape[0]


def _with_places(model_class: Any, places: Iterable[str]) -> Any:
    """The class of transformers, whose models have `PackedLinear`s there. It has the class's own name,
    by which transformers finds its table of tensor names."""

    def build(self: Any, config: Any, *more: Any, **options: Any) -> None:
        model_class.__init__(self, config, *more, **options)
        for place in places:
            old = self.get_submodule(place)
            new = PackedLinear(old.in_features, old.out_features, bias=old.bias is not None)
            self.set_submodule(place, new)

    fields = {"__init__": build, "__module__": model_class.__module__}
    return type(model_class.__name__, (model_class,), fields)
