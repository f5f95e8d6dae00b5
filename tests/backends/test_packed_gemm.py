"""Products of few rows on weights of four bits, against float64 and against lab 19's kernel."""

import pytest
import torch
from torch import Tensor

from solutions.quantization import Int4, fused_int4
from yaie.backends.gemm import PackedFewRows, product_of_many
from yaie.backends.gemm.packed import MOST_ROWS, STEP, PackedTile, packed_tile_for
from yaie.backends.gemm.unpacked import unpacked
from yaie.core.quantized import LoadedInt4Weight

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
# The interpreter cuts off where bfloat16 is to be rounded.
DTYPE = torch.bfloat16 if DEVICE.type == "cuda" else torch.float16
STEP_OF = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}


class Case:
    """Rows x with gaps between them, and a rounded weight."""

    def __init__(
        self, rows: int, n: int, k: int, group_size: int, *, symmetric: bool = False
    ) -> None:
        g = torch.Generator().manual_seed(rows * 1000 + n + k)
        self.x = torch.randn(rows, k + 8, generator=g).to(DEVICE, DTYPE)[:, :k]
        self.residual = torch.randn(rows, n + 4, generator=g).to(DEVICE, DTYPE)[:, :n]
        self.bias = torch.randn(n, generator=g).to(DEVICE, DTYPE)
        weight = torch.randn(n, k, generator=g) / k**0.5
        made = Int4().quantize(weight, group_size, symmetric=symmetric)
        parts = (one.to(DEVICE) for one in (made.qweight, made.scales, made.qzeros))
        self.weight = LoadedInt4Weight(*parts, group_size, is_even=symmetric)
        wide = Int4().dequantize(self.weight).double()
        self.expected = self.x.double() @ wide.T
        self.size = self.x.double().abs() @ wide.abs().T
        """What the roundings of single weights may add up to."""

    def close(self, y: Tensor, expected: Tensor | None = None) -> bool:
        """Each weight is rounded to the dtype once, each result once."""
        expected = self.expected if expected is None else expected
        step = STEP_OF[DTYPE]
        return bool(
            ((y.double() - expected).abs() <= step * (self.size + expected.abs() + 1)).all()
        )


SHAPES = [
    (1, 64, 256, 32),
    (3, 72, 384, 128),
    (17, 128, 256, 64),
    (5, 96, 160, 32),
    (32, 40, 128, 8),
]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("parts", [1, 2, 3])
@pytest.mark.parametrize("symmetric", [False, True])
def test_is_the_product_with_what_the_codes_stand_for(
    shape: tuple[int, int, int, int], parts: int, symmetric: bool
) -> None:
    case, few = Case(*shape, symmetric=symmetric), PackedFewRows()
    tile = PackedTile(32, parts, warps=2, stages=2)
    for _ in range(2):  # the counters are back at zero
        assert case.close(few.multiply(case.x, case.weight, tile=tile))
    assert case.close(fused_int4().product(case.x, case.weight)) or shape[3] % 16


@pytest.mark.parametrize("shape", [(40, 72, 96, 32), (33, 136, 256, 8)])
@pytest.mark.parametrize("symmetric", [False, True])
def test_many_rows(shape: tuple[int, int, int, int], symmetric: bool) -> None:
    case = Case(*shape, symmetric=symmetric)
    assert case.close(product_of_many(case.x, case.weight))
    wide = Int4().dequantize(case.weight).double().T
    off = (unpacked(case.weight, DTYPE).double() - wide).abs()
    assert (off <= 2 * STEP_OF[DTYPE] * wide.abs()).all()  # the scale's rounding and the number's


def test_bias_gate_and_residual() -> None:
    case, few = Case(3, 64, 256, 32), PackedFewRows()
    biased = case.expected + case.bias.double()
    assert case.close(few.multiply(case.x, case.weight, case.bias), biased)
    onto = few.multiply(case.x, case.weight, residual=case.residual.clone())
    step = 4 * STEP_OF[DTYPE]
    torch.testing.assert_close(
        onto.double(), case.expected + case.residual.double(), rtol=step, atol=4 * step
    )
    gate, up = case.expected.chunk(2, dim=1)
    gated = few.multiply(case.x, case.weight, is_gated=True)
    torch.testing.assert_close(
        gated.double(), torch.nn.functional.silu(gate) * up, rtol=step, atol=4 * step
    )


def test_a_row_does_not_hang_on_its_neighbours() -> None:
    case, few = Case(16, 64, 512, 32), PackedFewRows()
    tile = PackedTile(32, 2, warps=2, stages=2)
    whole = few.multiply(case.x, case.weight, tile=tile)
    for row in (0, 7, 15):
        alone = few.multiply(case.x[row : row + 1], case.weight, tile=tile)
        assert torch.equal(alone[0], whole[row])


@pytest.mark.parametrize("rows", [1, 16, 17, MOST_ROWS])
@pytest.mark.parametrize("n", [64, 4096, 28672, 200_000])
@pytest.mark.parametrize("k", [64, 512, 4096, 14336])
def test_every_part_has_some_turns(rows: int, n: int, k: int) -> None:
    tile = packed_tile_for(rows, n, k)
    assert tile.parts >= 1
    assert tile.parts == 1 or k // tile.parts >= 4 * STEP


def test_takes_half_precision_and_few_rows() -> None:
    few = PackedFewRows()
    assert few.takes(torch.zeros(MOST_ROWS, 8, dtype=torch.bfloat16))
    assert not few.takes(torch.zeros(MOST_ROWS + 1, 8, dtype=torch.bfloat16))
    assert not few.takes(torch.zeros(1, 8))
