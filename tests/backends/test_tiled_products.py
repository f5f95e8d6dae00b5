"""Weights of four bits in the order of tensor cores: the order, and on a GPU the products."""

import pytest
import torch
from torch import Tensor

from solutions.quantization import Int4
from yaie.backends.products.tiled import (
    TiledProducts,
    TiledWeight,
    parts_for,
    tileable,
    tiled,
    tiled_products,
)
from yaie.core.quantized import LoadedInt4Weight

GPU = torch.device("cuda")


def made(n: int, k: int, group_size: int, symmetric: bool) -> LoadedInt4Weight:
    g = torch.Generator().manual_seed(n + k)
    weight = Int4().quantize(
        torch.randn(n, k, generator=g) / k**0.5, group_size, symmetric=symmetric
    )
    parts = weight.qweight, weight.scales, weight.qzeros
    return LoadedInt4Weight(*parts, group_size, is_even=symmetric)


def by_the_description(weight: TiledWeight) -> Tensor:
    """[out, in] float32, number by number as the module says where each stands."""
    out = torch.empty(weight.out_features, weight.in_features)
    tiles, chunks = weight.words.shape[:2]
    words = weight.words.view(tiles, chunks, 8, 4, 2, 2)  # g, t, group, s
    for r in range(2):
        for s in range(2):
            for h in range(2):
                for e in range(2):
                    codes = (words[..., s] >> (4 * (r + 2 * h + 4 * e))) & 15
                    zeros = 8 if weight.zeros is None else weight.zeros[:, :, :, None, :, r].int()
                    values = (codes - zeros) * weight.scales[:, :, :, None, :, r].float()
                    view = out.view(
                        tiles, 2, 8, chunks, 2, 4, 2, 2, 2
                    )  # r, g, chunk, group, t, s, h, e
                    view[:, r, :, :, :, :, s, h, e] = values.permute(0, 2, 1, 4, 3)
    return out


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("group_size", [32, 64, 256])
def test_every_code_is_where_it_is_said_to_be(group_size: int, symmetric: bool) -> None:
    weight = made(96, 256, group_size, symmetric)
    assert tileable(weight)
    found = tiled(weight)
    assert (found.out_features, found.in_features) == (96, 256)
    assert (found.zeros is None) == symmetric
    assert torch.equal(by_the_description(found), Int4().dequantize(weight))


def test_what_does_not_fit_is_left_to_others() -> None:
    assert not tileable(made(72, 256, 32, True))
    assert not tileable(made(96, 224, 32, True))
    assert not tileable(made(96, 256, 16, True))


def test_without_a_gpu_others_stand_in(caplog: pytest.LogCaptureFixture) -> None:
    assert tiled_products(torch.device("cpu")) is None
    assert "slower kernels" in caplog.text


@pytest.mark.parametrize("rows", [1, 9, 17])
@pytest.mark.parametrize("n", [64, 4096, 28672])
@pytest.mark.parametrize("k", [64, 512, 4096, 14336])
def test_every_warp_keeps_two_turns(rows: int, n: int, k: int) -> None:
    parts = parts_for(rows, n, k)
    assert parts == 1 or k >= parts * 2 * 8 * 64


def test_an_8b_layer_is_cut_as_measured() -> None:
    shapes = (6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336)
    assert [[parts_for(rows, *shape) for shape in shapes] for rows in (8, 16, 32)] == [
        [2, 3, 1, 3],
        [1, 2, 1, 2],
        [1, 1, 1, 1],
    ]


@pytest.mark.gpu
class TestOnAGpu:
    @pytest.fixture(scope="class")
    def products(self) -> TiledProducts:
        return TiledProducts(GPU)

    def case(
        self, rows: int, n: int, k: int, group_size: int, symmetric: bool
    ) -> tuple[Tensor, ...]:
        weight = made(n, k, group_size, symmetric)
        g = torch.Generator().manual_seed(rows)
        x = torch.randn(rows, k + 8, generator=g).to(GPU, torch.bfloat16)[:, :k]
        self.tiled = tiled(
            LoadedInt4Weight(
                *(one.to(GPU) for one in (weight.qweight, weight.scales, weight.qzeros)),
                group_size, is_even=symmetric,
            )
        )  # fmt: skip
        wide = Int4().dequantize(weight).double().to(GPU)
        return x, x.double() @ wide.T, wide

    def close(self, y: Tensor, expected: Tensor) -> bool:
        """Rounded once; sums are float32."""
        return bool(((y.double() - expected).abs() <= 2.0**-8 * (expected.abs() + 0.05)).all())

    @pytest.mark.parametrize("rows", [1, 3, 8, 9, 16, 17, 32])
    @pytest.mark.parametrize("parts", [1, 2, 3])
    @pytest.mark.parametrize("symmetric", [False, True])
    def test_few_rows(
        self, products: TiledProducts, rows: int, parts: int, symmetric: bool
    ) -> None:
        x, expected, _ = self.case(rows, 96, 1344, 64, symmetric)
        for _ in range(2):  # the counters are back at zero
            assert self.close(products.few_rows(x, self.tiled, parts=parts), expected)

    @pytest.mark.parametrize("symmetric", [False, True])
    def test_gate_and_residual(self, products: TiledProducts, symmetric: bool) -> None:
        x, expected, _ = self.case(5, 128, 512, 32, symmetric)
        residual = torch.randn(5, 128, device=GPU, dtype=torch.bfloat16)
        onto = products.few_rows(x, self.tiled, residual=residual.clone())
        torch.testing.assert_close(
            onto.double(), expected + residual.double(), rtol=2.0**-6, atol=2.0**-6
        )
        gate, up = expected.chunk(2, dim=1)
        gated = products.few_rows(x, self.tiled, is_gated=True)
        torch.testing.assert_close(
            gated.double(), torch.nn.functional.silu(gate) * up, rtol=2.0**-6, atol=2.0**-6
        )

    @pytest.mark.parametrize("symmetric", [False, True])
    def test_many_rows(self, products: TiledProducts, symmetric: bool) -> None:
        x, expected, wide = self.case(40, 96, 320, 32, symmetric)
        unpacked = products.unpacked(self.tiled).double()
        assert ((unpacked - wide).abs() <= 2.0**-8 * wide.abs()).all()
        y = products.product(x, self.tiled).double()
        assert ((y - expected).norm() / expected.norm()).item() < 0.01
        assert products.product(x[:0], self.tiled).shape == (0, 96)

    def test_a_row_does_not_hang_on_its_neighbours(self, products: TiledProducts) -> None:
        x, _, _ = self.case(8, 64, 512, 32, True)
        whole = products.few_rows(x, self.tiled)
        for row in (0, 7):
            assert torch.equal(products.few_rows(x[row : row + 1], self.tiled)[0], whole[row])
