"""Which group sizes fit a model is known from its configuration, and said where one does not."""

import pytest
from transformers import LlamaConfig

from yaie.core.errors import ConfigError, ModelError
from yaie.models.rounding_sizes import Product, choose_group_size, product_shapes

SMOLLM2 = [
    Product("qkv", 576, 576),
    Product("kv", 576, 192),
    Product("up", 576, 1536),
    Product("down", 1536, 576),
]


def test_shapes_are_those_of_the_layers_without_a_weight() -> None:
    config = LlamaConfig(
        hidden_size=1 << 14, intermediate_size=1 << 16, num_hidden_layers=80, vocab_size=64,
        num_attention_heads=128, num_key_value_heads=8, architectures=["LlamaForCausalLM"],
    )  # fmt: skip
    wide, kv, inner = 1 << 14, 8 * 128, 1 << 16
    shapes = {(one.inputs, one.outputs) for one in product_shapes(config)}
    assert shapes == {(wide, wide), (wide, kv), (wide, inner), (inner, wide)}


@pytest.mark.parametrize(
    ("wanted", "default", "chosen"),
    [(None, 128, 64), (None, 32, 32), (None, 64, 64), (16, 128, 16), (32, 128, 32)],
)
def test_what_is_chosen_fits_all_products(wanted: int | None, default: int, chosen: int) -> None:
    assert choose_group_size(SMOLLM2, wanted, default) == chosen


def test_what_does_not_fit_is_told_with_what_does() -> None:
    with pytest.raises(
        ConfigError, match=r"qkv has 576 inputs, which groups of 128 .* --group-size 64, 32 fits"
    ):
        choose_group_size(SMOLLM2, 128, 32)
    odd = [Product("odd", 48, 8)]
    assert choose_group_size(odd, None, 32) == 16
    with pytest.raises(ConfigError, match="--group-size 16 does, but other engines' kernels"):
        choose_group_size(odd, 32, 32)
    with pytest.raises(ConfigError, match="round it with --to int8"):
        choose_group_size([Product("odd", 20, 8)], 32, 32)


def test_a_model_that_no_size_fits_is_refused() -> None:
    with pytest.raises(ModelError, match="no group size divides"):
        choose_group_size([Product("odd", 20, 8)], None, 32)
    with pytest.raises(ModelError, match="has 12 outputs"):
        choose_group_size([Product("odd", 64, 12)], None, 32)
