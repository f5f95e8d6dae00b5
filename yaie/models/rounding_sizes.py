"""Which group sizes fit a model's products, by its config.json: before a weight is read."""

from dataclasses import dataclass
from typing import Any

from yaie.core.errors import ConfigError, ModelError
from yaie.models.rounding import decoder_layers, products
from yaie.models.skeleton import made

COMMON = (128, 64, 32)
"""Group sizes that the kernels of vLLM and SGLang take, the largest first."""
SMALL = (16, 8)
"""Where none of these fits: YAIE's kernels take them."""
CODES = 8
"""In one word: inputs of a group, and outputs, come in so many."""


@dataclass(frozen=True, slots=True)
class Product:
    """A matrix product of the layers. name: full, of the first layer that has this shape."""

    name: str
    inputs: int
    outputs: int


def product_shapes(config: Any) -> list[Product]:
    """Of each shape one, in the order of the layers, from a transformers PretrainedConfig.

    Raises ModelError for a model whose layers are no plain products.
    """
    import torch
    from transformers import AutoModelForCausalLM

    try:
        with torch.device("meta"):
            model = made(AutoModelForCausalLM.from_config, config)
    except ValueError as error:  # no language model by transformers' tables
        raise ModelError(
            f"{type(config).__name__} is not quantized: transformers has no language model of this kind."
        ) from error
    prefix, layers = decoder_layers(model)
    found: dict[tuple[int, int], Product] = {}
    for index, layer in enumerate(layers):
        for name, module in products(layer):
            shape = module.in_features, module.out_features
            found.setdefault(shape, Product(f"{prefix}.{index}.{name}", *shape))
    return list(found.values())


def fitting(shapes: list[Product], sizes: tuple[int, ...]) -> list[int]:
    """Those that divide the inputs of all products."""
    return [size for size in sizes if all(one.inputs % size == 0 for one in shapes)]


def choose_group_size(shapes: list[Product], wanted: int | None, default: int) -> int:
    """`wanted` if it fits; without it the largest size that fits and is not above `default`.

    Raises ConfigError that names the product which does not fit, and the sizes that do; ModelError if
    none does.
    """
    for one in shapes:
        if one.outputs % CODES:
            raise ModelError(
                f"{one.name} has {one.outputs} outputs, and four bits are packed for {CODES} at a time: "
                "round it with --to int8"
            )
    common, small = fitting(shapes, COMMON), fitting(shapes, SMALL)
    if wanted is None:
        sizes = [size for size in (*common, *small) if size <= default]
        if not sizes:
            raise ModelError(
                "no group size divides the inputs of all products: round it with --to int8"
            )
        return sizes[0]
    wrong = next((one for one in shapes if one.inputs % wanted), None)
    if wrong is None:
        return wanted
    said = "no size does for all of this model; round it with --to int8"
    if common:
        said = f"--group-size {', '.join(map(str, common))} fits all of this model"
    elif small:
        said = f"--group-size {small[0]} does, but other engines' kernels want 32, 64 or 128"
    raise ConfigError(
        f"{wrong.name} has {wrong.inputs} inputs, which groups of {wanted} do not divide: {said}",
        param="group_size",
    )
