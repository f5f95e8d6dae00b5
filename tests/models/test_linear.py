"""A product: packed or plain, fused or not, it is the matrix product that it says."""

import pytest
import torch
import torch.nn.functional as F

from yaie.models.layout import Layout, stacked, whole
from yaie.models.linear import make_linear, tied_linear
from yaie.models.schemes import Scheme, choose_scheme
from yaie.models.schemes.floats import EXACT_ROWS, PackedScheme

CPU = torch.device("cpu")


def filled(linear: Scheme, weights: list[torch.Tensor], biases: list[torch.Tensor]) -> Scheme:
    names = [f"part{index}" for index in range(len(weights))]
    places = linear.destinations(*names)
    for name, weight in zip(names, weights, strict=True):
        places[f"{name}.weight"].fill(weight)
    for name, bias in zip(names, biases, strict=False):
        places[f"{name}.bias"].fill(bias)
    return linear


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", [(64, 48), (512, 768)], ids=["plain", "packed"])
def test_fused_parts_are_their_products_side_by_side(shape: tuple[int, int], bias: bool) -> None:
    inputs, outputs = shape
    sizes = [outputs, outputs // 2, outputs // 2]
    weights = [torch.randn(size, inputs) / inputs**0.5 for size in sizes]
    biases = [torch.randn(size) for size in sizes] if bias else []
    linear = filled(
        make_linear(stacked(inputs, sizes, bias=bias), torch.float32, CPU), weights, biases
    )
    all_biases = torch.cat(biases) if bias else None
    for rows in (0, 1, 2, 17, EXACT_ROWS, EXACT_ROWS + 1, 200):
        x = torch.randn(rows, inputs)
        got = linear(x)
        expected = F.linear(x, torch.cat(weights), all_biases)
        assert got.shape == expected.shape
        assert torch.allclose(got, expected, rtol=1e-5, atol=1e-5)


def test_transposed_weights_fill_the_same_product() -> None:
    weight = torch.randn(24, 16)
    linear = filled(
        make_linear(whole(16, 24, transposed=True), torch.float32, CPU), [weight.t()], []
    )
    x = torch.randn(3, 16)
    assert torch.allclose(linear(x), F.linear(x, weight), atol=1e-5)


def scheme_of(rows: int, columns: int, dtype: torch.dtype, device: str = "cpu") -> str:
    return choose_scheme(rows, columns, dtype, torch.device(device)).name


def test_a_scheme_is_chosen_by_size_dtype_and_device(monkeypatch: pytest.MonkeyPatch) -> None:
    if not torch.backends.mkldnn.is_available():
        pytest.skip("oneDNN is not available")
    assert scheme_of(512, 512, torch.float32) == "onednn_packed"
    assert scheme_of(64, 64, torch.float32) == "plain"
    assert scheme_of(512, 512, torch.float16) == "plain"
    assert scheme_of(512, 512, torch.float32, "cuda") == "plain"
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert scheme_of(512, 512, torch.float32) == "plain"


def test_a_weight_is_packed_when_its_last_part_is_there_and_not_before() -> None:
    if scheme_of(512, 512, torch.float32) != "onednn_packed":
        pytest.skip("oneDNN is not available")
    linear = make_linear(stacked(512, [256, 256]), torch.float32, CPU)
    assert isinstance(linear, PackedScheme)
    places = linear.destinations("query", "key")
    places["query.weight"].fill(torch.randn(256, 512))
    assert not linear._weight.is_mkldnn
    places["key.weight"].fill(torch.randn(256, 512))
    assert linear._weight.is_mkldnn
    assert linear.extra_bytes == 0


def test_the_parts_of_a_layout_are_named_in_their_order() -> None:
    layout = stacked(4, [3, 1, 1], bias=True)
    weight, bias = layout.empty(torch.float32, CPU)
    places = layout.destinations(["q", "k", "v"], weight, bias)
    assert list(places) == ["q.weight", "k.weight", "v.weight", "q.bias", "k.bias", "v.bias"]
    assert [place.shape for place in places.values()] == [(3, 4), (1, 4), (1, 4), (3,), (1,), (1,)]
    places["k.weight"].fill(torch.full((1, 4), 7.0))
    assert (weight[3] == 7).all()
    assert layout == Layout(4, (3, 1, 1), bias=True)


def test_a_tied_head_leaves_the_table_to_look_up() -> None:
    table = torch.randn(1024, 256)
    head = tied_linear(table)
    x = torch.randn(5, 256)
    assert torch.allclose(head(x), F.linear(x, table), rtol=1e-5, atol=1e-4)
    assert table.shape == (1024, 256)


def test_a_strided_input_is_read_as_it_lies() -> None:
    weight = torch.randn(512, 512)
    linear = filled(make_linear(whole(512, 512), torch.float32, CPU), [weight], [])
    x = torch.randn(6, 1024)[:, 512:]
    assert torch.allclose(linear(x), F.linear(x, weight), rtol=1e-5, atol=1e-4)


def test_a_wrong_shape_is_refused() -> None:
    place = make_linear(whole(16, 24), torch.float32, CPU).destinations("only")["only.weight"]
    with pytest.raises(ValueError, match=r"has shape \[16, 24\] instead of \[24, 16\]"):
        place.fill(torch.empty(16, 24))


def test_bfloat16_is_close() -> None:
    weight = torch.randn(512, 512) / 512**0.5
    linear = filled(make_linear(whole(512, 512), torch.bfloat16, CPU), [weight], [])
    x = torch.randn(9, 512)
    got = linear(x.bfloat16()).float()
    assert (got - F.linear(x, weight)).abs().max() < 0.1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(64, 48), (512, 768)], ids=["plain", "packed"])
def test_a_product_in_float32_is_the_same(shape: tuple[int, int], dtype: torch.dtype) -> None:
    linear = filled(make_linear(whole(*shape), dtype, CPU), [torch.randn(shape[1], shape[0])], [])
    x = torch.randn(5, shape[0]).to(dtype)
    got = linear.in_float32(x)
    assert got.dtype == torch.float32
    assert torch.equal(got, linear(x).float())


@pytest.mark.gpu
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_gpu_does_not_round_a_product_in_float32(dtype: torch.dtype, bias: bool) -> None:
    device = torch.device("cuda")
    weight, biases = torch.randn(300, 128), [torch.randn(300).to(dtype)] if bias else []
    linear = filled(
        make_linear(whole(128, 300, bias=bias), dtype, device), [weight.to(dtype)], biases
    )
    x = torch.randn(5, 128, device=device).to(dtype)
    exact = x.double() @ weight.to(device, dtype).double().t() + (
        biases[0].to(device) if bias else 0
    )
    assert (linear.in_float32(x) - exact).norm() / exact.norm() < 1e-5
    assert (linear(x) - exact).norm() / exact.norm() > 1e-4
