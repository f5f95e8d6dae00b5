"""`Linear`: packed or plain, fused or not, it is the matrix product that it says."""

import pytest
import torch
import torch.nn.functional as F

from yaie.models.linear import EXACT_ROWS, Linear, can_pack, tied_linear

CPU = torch.device("cpu")


def filled(linear: Linear, weights: list[torch.Tensor], biases: list[torch.Tensor]) -> Linear:
    names = [f"part{index}" for index in range(len(weights))]
    slots = linear.slots(*names)
    for name, weight in zip(names, weights, strict=True):
        slots[f"{name}.weight"].fill(weight)
    for name, bias in zip(names, biases, strict=False):
        slots[f"{name}.bias"].fill(bias)
    return linear


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", [(64, 48), (512, 768)], ids=["plain", "packed"])
def test_fused_parts_are_their_products_side_by_side(shape: tuple[int, int], bias: bool) -> None:
    inputs, outputs = shape
    sizes = [outputs, outputs // 2, outputs // 2]
    weights = [torch.randn(size, inputs) / inputs**0.5 for size in sizes]
    biases = [torch.randn(size) for size in sizes] if bias else []
    linear = filled(Linear(inputs, sizes, torch.float32, CPU, bias=bias), weights, biases)
    stacked = torch.cat(biases) if bias else None
    for rows in (0, 1, 2, 17, EXACT_ROWS, EXACT_ROWS + 1, 200):
        x = torch.randn(rows, inputs)
        got = linear(x)
        expected = F.linear(x, torch.cat(weights), stacked)
        assert got.shape == expected.shape
        assert torch.allclose(got, expected, rtol=1e-5, atol=1e-5)


def test_transposed_weights_fill_the_same_product() -> None:
    weight = torch.randn(24, 16)
    linear = filled(Linear(16, 24, torch.float32, CPU, transpose=True), [weight.t()], [])
    x = torch.randn(3, 16)
    assert torch.allclose(linear(x), F.linear(x, weight), atol=1e-5)


def test_a_large_weight_is_packed_and_not_kept_twice() -> None:
    if not can_pack(torch.empty(512, 512)):
        pytest.skip("oneDNN is not available")
    linear = filled(Linear(512, 512, torch.float32, CPU), [torch.randn(512, 512)], [])
    assert linear.weight.numel() == 0


def test_a_small_weight_stays_plain() -> None:
    assert not can_pack(torch.empty(64, 64))


def test_a_tied_head_leaves_the_table_to_look_up() -> None:
    table = torch.randn(1024, 256)
    head = tied_linear(table)
    x = torch.randn(5, 256)
    assert torch.allclose(head(x), F.linear(x, table), rtol=1e-5, atol=1e-4)
    assert table.shape == (1024, 256)


def test_a_strided_input_is_read_as_it_lies() -> None:
    weight = torch.randn(512, 512)
    linear = filled(Linear(512, 512, torch.float32, CPU), [weight], [])
    x = torch.randn(6, 1024)[:, 512:]
    assert torch.allclose(linear(x), F.linear(x, weight), rtol=1e-5, atol=1e-4)


def test_a_wrong_shape_is_refused() -> None:
    slot = Linear(16, 24, torch.float32, CPU).slots("only")["only.weight"]
    with pytest.raises(ValueError, match=r"has shape \[16, 24\] instead of \[24, 16\]"):
        slot.fill(torch.empty(16, 24))


def test_bfloat16_is_close() -> None:
    weight = torch.randn(512, 512) / 512**0.5
    linear = filled(Linear(512, 512, torch.bfloat16, CPU), [weight], [])
    x = torch.randn(9, 512)
    got = linear(x.bfloat16()).float()
    assert (got - F.linear(x, weight)).abs().max() < 0.1
