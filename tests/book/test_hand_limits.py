"""Limits and sums of the kernels' and the frontier's chapters, computed again."""

import math

import torch

from book.tools.evidence import load
from tests.book.test_hand_tables import _words, table

COPY, FLOPS = 4274e9, 790e12  # an H200's, as book/evidence/ceilings.json has them
LAYER = 2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14_336
LINEAR = 32 * LAYER + 4096 * 128_256  # the weights of Llama 3.1 8B's products
KEPT = 131_072  # bytes that one of its tokens keeps


def number(cell: str) -> float:
    return float(cell.replace(",", ""))


def in_three_digits(value: float) -> float:
    return float(f"{value:.3g}")


def test_what_rounded_weights_allow():
    for row in table("quantization", "weights"):
        bits = number(row[1])
        for requests, cell in zip((1, 32, 256), row[3:], strict=True):
            products = max(LINEAR * bits / 8 / COPY, 2 * LINEAR * requests / FLOPS)
            attention = requests * 1024 * KEPT / COPY
            assert number(cell) == in_three_digits(requests / (products + attention)), row[0]


def test_a_rotation_spreads_a_large_number():
    half = torch.tensor([[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]]) / 2
    key = torch.tensor([8, 0.5, 0.5, 0.5])
    turned = half @ key
    assert turned.tolist() == [4.75, 3.75, 3.75, 3.75]
    for vector, steps in ((key, 0), (turned, 6)):
        scale = vector.max() / 7.5
        assert (vector[1:] / scale).round().tolist() == [steps] * 3
    query = torch.tensor([1.0, -2, 3, 5])
    assert (half @ query) @ turned == query @ key
    text = _words("quantization")
    assert "(8, 0.5, 0.5, 0.5) becomes (4.75, 3.75, 3.75, 3.75)" in text
    assert "rounded to 0 steps, and now to 6" in text
    assert "66 bytes for a key and 68 for a value: with padding 136 of bfloat16's 512" in text
    assert (128 // 2 + 2, 128 // 2 + 4) == (66, 68)


def test_drafts_for_a_mixture_of_experts():
    def read(rows: int) -> float:
        return 256 * (1 - (1 - 8 / 256) ** rows) + 1

    def billions(rows: int) -> float:
        return 14 + round(read(rows), 1) * 58 * 0.044

    text = _words("speculative")
    assert (read(1), read(2)) == (9, 16.75)
    assert round(read(5), 1) == 38.6
    assert [round(billions(rows)) for rows in (1, 2, 5)] == [37, 57, 113]
    assert "takes 3.0 times as long by its bytes, and yields 3.36 tokens" in text
    longer = billions(5) / billions(1)
    assert round(longer, 1) == 3.0
    assert round(sum(0.8**n for n in range(5)) / longer, 1) == 1.1
    one = billions(2) / billions(1)
    assert round(one, 1) == 1.5
    assert round(1.8 / one, 1) == 1.2


def test_a_sum_in_the_switch():
    rows = table("tensor-parallel", "way")
    row = next(row for row in rows if row[0] == "in the switch")
    for num_bytes, cell in ((8192, row[3]), (64 * 2**20, row[4])):
        microseconds = (2 * 2e-6 + (1 + 1 / 16) * num_bytes / 400e9) * 1e6
        assert cell == f"{microseconds:.{1 if microseconds < 100 else 0}f} µs"


def test_two_cards_are_predicted_as_they_were_measured():
    """By weights, what else a step takes on one card, and 64 sums: H100s throughout."""
    weights = 2 * LINEAR / (load("kernels")["ceilings"]["GB/s"]["rate"] * 1e9) * 1e3
    one = load("gpu_fixed_h100")["batches"]["1"]["YAIE"]["median_ms"][0]
    sums = {name: 64 * us[0] / 1e3 for name, us in load("gpu_ranks")["rows"]["1"].items()}
    used = [sums[name] for name in ("nccl", "one_shot", "yaie")]
    faster = [one / (weights / 2 + one - weights + total) for total in used]
    assert [round(ms, 1) for ms in (weights, one - weights, *used)] == [5.0, 0.6, 1.2, 0.6, 0.2]
    assert [round(times, 1) for times in faster] == [1.3, 1.5, 1.7]
    rows = table("tensor-parallel", "all-reduce by")
    expected = [
        [f"{ms:.1f} ms", f"{ratio:.1f} times"] for ms, ratio in zip(used, faster, strict=True)
    ]
    assert [row[2:] for row in rows] == expected
    measured = load("gpu_fixed_h100_two")["speed_up"]["1"]
    assert abs(measured - faster[-1]) < 0.05


def test_the_balance_of_newer_cards():
    for row in table("gpu", "card"):
        bandwidth = number(row[2])
        for flops, cell in ((row[3], row[6]), (row[5], row[7])):
            expected = math.floor(number(flops) / bandwidth + 0.5) if flops else None
            assert (number(cell) if cell else None) == expected, row[0]
    text = _words("gpu")
    assert "316 rows on a B200, 527 on a GB300, 447 on a Rubin" in text
    a_row = 4.5 / 8 / 2  # bytes of a weight in NVFP4 for each FLOP of a row
    assert [round(a_row * flops / 8) for flops in (9000, 15_000)] == [316, 527]
    assert round(a_row * 35_000 / 22) == 447


def test_what_a_part_of_the_rows_saves():
    """Sequence parallelism, and sums beside arithmetic: a prompt of 8,192 tokens on four ranks."""
    vector, ranks = 8192 * 4096 * 2, 4
    sent = 2 * (ranks - 1) / ranks * vector
    text = _words("tensor-parallel")
    assert round(vector / 1e6) == 67
    assert round(sent / 1e6) == 101
    assert round(sent / 400e9 * 1e6) == 252
    norm = 4 * vector / COPY * 1e6
    assert round(4 * vector / 1e6) == 268
    assert (round(norm), round(norm / ranks)) == (63, 16)
    told = [row[1:] for row in table("tensor-parallel", "what", "how much")]
    assert told == [
        ["0.89 TFLOP", "1.4 ms"], ["101 MB", "252 µs"], ["268 MB", "63 µs"], ["67 MB", "16 µs"]
    ]  # fmt: skip
    products = 2 * LAYER * 8192 / ranks
    assert round(products / 1e12, 2) == 0.89
    assert round(products / 640e12 * 1e3, 1) == 1.4
    assert round(2 * sent / 400e9 * 1e3, 1) == 0.5
    assert round(sent / 400e9 * 1e6 / 4) == 63
    assert "only the last piece's 63 µs are waited for" in text


def test_the_error_of_a_score():
    text = _words("goodput")
    assert "$\\sqrt{0.9 \\cdot 0.1 / 300}$, 1.7%" in text
    assert round(math.sqrt(0.09 / 300), 3) == 0.017
