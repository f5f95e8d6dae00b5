"""Products of few rows in CUDA C++, on weights in four bits and in FP8."""

from functools import lru_cache, partial
from typing import Any

import pytest
import torch
from torch import Tensor

from solutions.quantization import Int4
from yaie.backends.gemm import FewRows
from yaie.backends.gemm.streamed import (
    LEAST_UNITS,
    StreamedGemm,
    blocks_for,
    fits,
    streamed_gemm,
)
from yaie.backends.gemm.tiled import tiled
from yaie.core.gemm import PlainWeight
from yaie.core.quantized import Fp8Weight, LoadedInt4Weight

GPU = torch.device("cuda")
KINDS = ("int4", "int4 with zeros", "fp8")
EPS = 1e-5


def test_without_a_gpu_others_stand_in(caplog: pytest.LogCaptureFixture) -> None:
    assert streamed_gemm(torch.device("cpu")) is None
    assert "slower kernels" in caplog.text


def test_every_block_has_work() -> None:
    assert blocks_for(1, 28672, 4096, 132) == 396
    assert blocks_for(16, 28672, 4096, 132) == 264
    assert blocks_for(1, 512, 1024, 132) == 16 * 2 // LEAST_UNITS
    assert blocks_for(1, 32, 64, 132) == 1


def test_what_fits() -> None:
    assert fits(96, 192)
    assert not fits(48, 192)
    assert not fits(96, 96)


@lru_cache(maxsize=16)
def weight_of(kind: str, n: int, k: int) -> tuple[Any, Tensor]:
    """A weight of a kind on the GPU, and what it stands for in float64."""
    g = torch.Generator().manual_seed(n + k)
    plain = torch.randn(n, k, generator=g) / k**0.5
    if kind == "fp8":
        scales = torch.rand(n, generator=g) / 64 + 1 / 64
        codes = (plain / scales[:, None]).to(torch.float8_e4m3fn)
        codes[0, :16] = torch.arange(16).to(torch.uint8).view(torch.float8_e4m3fn)  # subnormal ones
        codes[1, 0], codes[1, 1] = 448.0, -448.0
        packed = Fp8Weight(codes.to(GPU), scales.to(GPU))
        return packed, packed.codes.double() * packed.scales.double()[:, None]
    even = kind == "int4"
    made = Int4().quantize(plain, 32, symmetric=even)
    codes, scales, zeros = (one.to(GPU) for one in (made.qweight, made.scales, made.qzeros))
    arranged = tiled(LoadedInt4Weight(codes, scales, zeros, 32, is_even=even))
    return arranged, Int4().dequantize(made).double().to(GPU)


class Case:
    """A weight, and rows with gaps between them."""

    def __init__(self, kind: str, rows: int, n: int, k: int) -> None:
        g = torch.Generator().manual_seed(rows + n + k)
        self.x = torch.randn(rows, k + 8, generator=g).to(GPU, torch.bfloat16)[:, :k]
        self.residual = torch.randn(rows, n + 8, generator=g).to(GPU, torch.bfloat16)[:, :n]
        self.bias = torch.randn(n, generator=g).to(GPU, torch.bfloat16)
        self.weight, self.wide = weight_of(kind, n, k)
        self.expected = self.x.double() @ self.wide.T


def close(y: Tensor, expected: Tensor) -> bool:
    """Rounded once; sums are float32."""
    return bool(((y.double() - expected).abs() <= 2.0**-8 * (expected.abs() + 0.05)).all())


@pytest.mark.gpu
class TestOnAGpu:
    @pytest.fixture(scope="class")
    def products(self) -> StreamedGemm:
        return StreamedGemm(GPU)

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("rows", [1, 3, 8, 9, 16, 17, 32, 40])
    @pytest.mark.parametrize(("n", "k"), [(64, 64), (96, 1344), (6144, 4096), (512, 14336)])
    def test_product(self, products: StreamedGemm, kind: str, rows: int, n: int, k: int) -> None:
        case = Case(kind, rows, n, k)
        for _ in range(2):  # the counters are back at zero
            assert close(products.few_rows(case.x, case.weight), case.expected)
        assert not products._turns.any()

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("rows", [1, 5, 16, 40])
    @pytest.mark.parametrize(("n", "k"), [(128, 512), (4096, 4096)])
    @pytest.mark.parametrize("has_bias", [False, True])
    def test_ends(
        self, products: StreamedGemm, kind: str, rows: int, n: int, k: int, has_bias: bool
    ) -> None:
        case = Case(kind, rows, n, k)
        if not has_bias:  # of four bits, another kernel
            case.bias.zero_()
        bias = case.bias if has_bias else None
        few = FewRows(lambda device: products)
        product = PlainWeight(case.weight, bias)
        y = (case.expected + case.bias.double()).bfloat16().double()
        near = partial(torch.testing.assert_close, rtol=2.0**-6, atol=2.0**-6)
        residual = case.residual.double()
        found = products.few_rows(case.x, case.weight, bias, residual=case.residual)
        assert found.data_ptr() == case.residual.data_ptr()
        near(found.double(), y + residual)
        gate, up = y.chunk(2, dim=1)
        gated = products.few_rows(case.x, case.weight, bias, is_gated=True)
        near(gated.double(), torch.nn.functional.silu(gate) * up)
        gain = torch.rand(k, device=GPU, dtype=torch.bfloat16)
        wide = case.x.double()
        scale = (wide.square().mean(1, keepdim=True) + EPS).rsqrt()
        normed = (wide * scale).bfloat16() * gain
        expected = normed.double() @ case.wide.T + case.bias.double()
        found = few.after_norm(case.x, gain, EPS, product)
        torch.testing.assert_close(found.double(), expected, rtol=2.0**-6, atol=2.0**-5)

    @pytest.mark.parametrize("kind", KINDS)
    def test_rows_do_not_hang_on_their_neighbours(self, products: StreamedGemm, kind: str) -> None:
        case = Case(kind, 8, 1024, 4096)
        whole = products.few_rows(case.x, case.weight)
        for row in (0, 7):
            assert torch.equal(products.few_rows(case.x[row : row + 1], case.weight)[0], whole[row])

    @pytest.mark.parametrize("kind", KINDS)
    def test_many_rows(self, products: StreamedGemm, kind: str) -> None:
        case = Case(kind, 80, 96, 320)
        unpacked = products.unpacked(case.weight).double()
        assert ((unpacked - case.wide).abs() <= 2.0**-8 * case.wide.abs()).all()
        y = products.product(case.x, case.weight).double()
        assert ((y - case.expected).norm() / case.expected.norm()).item() < 0.01
        assert products.product(case.x[:0], case.weight).shape == (0, 96)

    def test_replayed_in_a_graph_after_a_kernel_in_front(self, products: StreamedGemm) -> None:
        case = Case("int4", 4, 4096, 4096)
        gain = torch.ones(4096, device=GPU, dtype=torch.bfloat16)
        few, product = FewRows(lambda device: products), PlainWeight(case.weight, None)

        def chain() -> Tensor:
            x = case.x.clone()
            for _ in range(8):
                x = few.onto(few.after_norm(x, gain, EPS, product), product, x)
            return x

        expected = chain()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = chain()
        for _ in range(20):
            graph.replay()
            assert torch.equal(found, expected)
