"""Products of few rows, fused with what stands around them, against float64 with the same roundings."""

import pytest
import torch
from torch import Tensor

from yaie.backends.gemm import FewRows
from yaie.backends.gemm.tiles import MOST_ROWS, RowTile, pays, tile_for
from yaie.core.gemm import PlainWeight
from yaie.core.quantized import Fp8Weight

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
# The interpreter cuts off where bfloat16 is to be rounded.
DTYPE = torch.bfloat16 if DEVICE.type == "cuda" else torch.float16
EPS = 1e-5


class Case:
    """Rows x and residual, each with gaps between them, and a weight."""

    def __init__(
        self, rows: int, n: int, k: int, dtype: torch.dtype = DTYPE, bias: bool = False
    ) -> None:
        g = torch.Generator().manual_seed(rows * 1000 + n + k)

        def numbers(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=g).to(DEVICE, dtype)

        self.x = numbers(rows, k + 8)[:, :k]
        self.residual = numbers(rows, n + 4)[:, :n]
        self.gain = numbers(k)
        self.product = PlainWeight(numbers(n, k) / k**0.5, numbers(n) if bias else None)

    def times(self, x: Tensor) -> Tensor:
        """x @ weight.T + bias, summed in float64 and rounded once."""
        weight, bias = self.product
        y = x.double() @ weight.double().T
        return (y if bias is None else y + bias.double()).to(x.dtype)

    def normed(self) -> Tensor:
        wide = self.x.double()
        scale = (wide.square().mean(1, keepdim=True) + EPS).rsqrt()
        return ((wide * scale).to(self.x.dtype).double() * self.gain.double()).to(self.x.dtype)


def assert_rounded_alike(found: Tensor, expected: Tensor) -> None:
    """Few numbers may differ, by a rounding or two: the order of sums is another one."""
    step = 2.0**-7 if found.dtype == torch.bfloat16 else 2.0**-10
    wide = expected.double()
    off = (found.double() - wide).abs() / (wide.abs() + 0.25)
    assert off.max() <= 3 * step
    assert (off > 0).double().mean() < 0.2


SHAPES = [
    (1, 48, 64),
    (2, 40, 96),
    (3, 48, 64),
    (8, 36, 272),
    (9, 130, 64),
    (17, 20, 48),
    (32, 96, 80),
]


@pytest.mark.parametrize("bias", [False, True], ids=["", "bias"])
@pytest.mark.parametrize(("rows", "n", "k"), SHAPES)
def test_product_after_a_norm(rows: int, n: int, k: int, bias: bool) -> None:
    case = Case(rows, n, k, bias=bias)
    found = FewRows().after_norm(case.x, case.gain, EPS, case.product)
    assert_rounded_alike(found, case.times(case.normed()))


@pytest.mark.parametrize(("rows", "n", "k"), SHAPES)
def test_gated_product(rows: int, n: int, k: int) -> None:
    case = Case(rows, n, k, dtype=torch.float16)
    found = FewRows().gated(case.x, case.gain, EPS, case.product)
    gate, up = case.times(case.normed()).double().chunk(2, dim=1)
    expected = ((gate / (1 + (-gate).exp())).half().double() * up).half()
    assert found.shape == (rows, n // 2)
    assert_rounded_alike(found, expected)


@pytest.mark.parametrize("bias", [False, True], ids=["", "bias"])
@pytest.mark.parametrize(("rows", "n", "k"), SHAPES)
def test_product_onto_a_residual(rows: int, n: int, k: int, bias: bool) -> None:
    case = Case(rows, n, k, bias=bias)
    expected = (case.times(case.x).double() + case.residual.double()).to(case.x.dtype)
    found = FewRows().onto(case.x, case.product, case.residual)
    assert found.data_ptr() == case.residual.data_ptr()
    assert_rounded_alike(found, expected)


def test_a_row_that_is_longer_than_a_program_holds() -> None:
    case = Case(1, 6, 6000)
    found = FewRows().after_norm(case.x, case.gain, EPS, case.product)
    assert_rounded_alike(found, case.times(case.normed()))


def test_nothing_is_read_or_written_beside_the_rows() -> None:
    for rows in (1, 5):
        case = Case(rows, 20, 72)
        around = torch.full((rows + 2, 40), torch.nan, device=DEVICE, dtype=DTYPE)
        residual = around[1:-1, 10:30]
        residual.zero_()
        wide = torch.full((rows + 2, 90), torch.nan, device=DEVICE, dtype=DTYPE)
        wide[1:-1, 8:80] = case.x
        found = FewRows().onto(wide[1:-1, 8:80], case.product, residual)
        assert_rounded_alike(found, case.times(case.x))
        residual.fill_(torch.nan)
        assert around.isnan().all()


def test_padded_rows_are_computed_like_others() -> None:
    """A graph's batch is padded to its size: the bits of a row may not depend on it."""
    case = Case(8, 40, 96)
    whole = FewRows().after_norm(case.x, case.gain, EPS, case.product)
    fewer = FewRows().after_norm(case.x[:5], case.gain, EPS, case.product)
    assert torch.equal(whole[:5], fewer)
    for rows in range(1, MOST_ROWS + 1):
        assert tile_for(rows, 4096, 1024) == tile_for(1 << (rows - 1).bit_length(), 4096, 1024)


def test_tiles_fit() -> None:
    """Numbers of a thread, and bytes of shared memory that the stages take."""
    for rows in range(1, MOST_ROWS + 1):
        for n in (16, 1024, 4096, 28672):
            for k in (64, 1024, 3072, 4096, 9216, 14336, 28672):
                tile = tile_for(rows, n, k)
                assert tile.block_n * tile.block_k <= 128 * 32 * tile.warps
                if not isinstance(tile, RowTile):
                    stage = 2 * (tile.block_n + max(16, tile.rows)) * tile.block_k
                    assert tile.rows >= rows
                    assert stage * tile.stages <= 220_000


def test_what_it_takes() -> None:
    few = FewRows()
    row = torch.zeros(1, 8, dtype=torch.bfloat16, device=DEVICE)
    product = PlainWeight(torch.zeros(8, 8, dtype=torch.bfloat16, device=DEVICE), None)
    assert few.takes(row, product) == row.is_cuda
    assert not few.takes(row.float(), product)
    assert not few.takes(row.expand(MOST_ROWS + 1, 8), product)
    assert not few.takes(row[:0], product)
    assert [rows for rows in range(40) if pays(rows, 1024)] == list(range(1, 33))
    assert [rows for rows in range(40) if pays(rows, 4096)] == [1, 2, *range(17, 33)]


class Streamed:
    """Stands for `StreamedGemm`, and notes its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, bool]] = []

    def few_rows(self, x: Tensor, weight: object, bias: object, **ends: object) -> Tensor:
        self.calls.append((len(x), bool(ends["is_gated"])))
        return x


def test_packed_weights_are_not_tritons() -> None:
    streamed = Streamed()
    few = FewRows(lambda device: streamed)  # type: ignore[arg-type, return-value]
    x = torch.zeros(8, 4096, dtype=torch.bfloat16)
    gain = torch.ones(4096, dtype=torch.bfloat16)
    packed = PlainWeight(Fp8Weight(torch.zeros(64, 4096), torch.ones(64)), None)
    few.product(x[:1], packed)
    few.gated(x, gain, EPS, packed)
    few.product(x.half(), PlainWeight(torch.zeros(64, 4096, dtype=torch.float16), None))
    assert streamed.calls == [(1, False), (8, True)]
