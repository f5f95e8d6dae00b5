"""The worked examples of FP8, of latents and of routing, computed again."""

import math
import re
from fractions import Fraction

import pytest
import torch
from torch import Tensor

from tests.book.reading import SOURCE
from tests.book.test_hand_tables import _below, _words, table


def pairs(cell: str) -> Tensor:
    """The vectors of a cell: "(1, 2), (0, 1)"."""
    found = re.findall(r"\(([^)]*)\)", cell)
    return torch.tensor([[float(number) for number in one.split(",")] for one in found])


@pytest.mark.parametrize("row", table("latent-attention", "head"), ids=lambda row: f"head {row[0]}")
def test_scores_with_latents_are_those_with_keys(row):
    up, query = pairs(row[1]), pairs(row[2])[0]
    latents = torch.eye(2)
    keys = latents @ up.T
    absorbed = up.T @ query
    assert torch.equal(pairs(row[3]), keys)
    assert torch.equal(pairs(row[5])[0], absorbed)
    for cell, scores in ((row[4], keys @ query), (row[6], latents @ absorbed)):
        assert [float(one) for one in cell.split(",")] == scores.tolist()


def test_values_and_a_turned_key_are_as_the_text_says():
    text = _words("latent-attention")
    values = torch.tensor([[4.0, 0], [0, 8]])
    weights = torch.tensor([0.25, 0.75])
    mixed = weights @ (torch.eye(2) @ values.T)
    assert torch.equal(mixed, values @ (weights @ torch.eye(2)))
    assert f"= ({mixed[0]:.0f}, {mixed[1]:.0f})$. From the latents" in text
    up, query, quarter = pairs("(1, 2), (0, 1)"), torch.tensor([1.0, 1]), pairs("(0, -1), (1, 0)")
    turned = quarter @ up[:, 1]
    assert turned.tolist() == [-1, 2]
    assert (turned @ query).item() == 1
    back = quarter.T @ query
    assert back.tolist() == [1, -1]
    assert (up.T @ back).tolist() == [1, 1]
    assert "$(1, -1)$, which gives (1, 1), and $(1, 1) \\cdot c_2 = 1$" in text


def test_making_keys_pays_for_many_queries_and_not_for_one():
    for name, *cells in _below("latent-attention", "| queries $q$, tokens $n$"):
        queries, tokens = (int(one.replace(",", "")) for one in re.findall(r"[\d,]*\d", name))
        made = tokens * 512 * 128 + queries * tokens * 128
        turned = queries * 128 * 512 + queries * tokens * 512
        assert cells == [f"{made / 1e6:,.0f}", f"{turned / 1e6:,.0f}"]
        assert (made < turned) == (queries > 1)


def test_experts_on_32_ranks_are_as_the_text_says():
    text = _words("experts")
    weights = 9 * 3 * 7168 * 2048 * 58
    others = 32 * (1 - math.comb(248, 8) / math.comb(256, 8)) * 31 / 32
    sent = 64 * others * 7168 * 3 * 58
    no_expert = math.comb(192, 8) / math.comb(256, 8)  # that a token has none on a host
    other_hosts = 3 * (1 - no_expert)
    hosts = 64 * other_hosts * 7168 * 3 * 58
    rest = 37e9 - weights
    assert f"one of its experts, {other_hosts:.1f} of three" in text
    assert f"experts are on {others:.2f} other ranks" in text
    leaving = sent * 24 / 31  # to the 24 of the 31 other ranks that are not of the same eight
    latents = 64 * 4096 * 61 * 1152
    flops = latents / 1152 * 128 * (576 + 512) * 2
    asked = flops / 660e9
    assert asked > latents / 4.274e9  # arithmetic decides
    assert f"latents, {latents / 1e9:.0f} GB, takes {latents / 4.274e9:.1f} ms" in text
    alone = 37e9 / 4.274e9 + asked
    computed = [row[1:] for row in table("experts", "part", "how much")]
    assert computed == [
        [f"{weights / 1e9:.0f} GB", f"{weights / 4.274e9:.1f} ms"],
        [f"{rest / 1e9:.0f} GB", f"{rest / 4.274e9:.1f} ms"],
        [f"{flops / 1e12:.1f} TFLOP", f"{asked:.1f} ms"],
        ["", f"{alone:.1f} ms"],
    ]
    ways = [(sent, 450e6), (hosts, 50e6), (leaving, 50e6), (sent, 50e6)]
    steps = [alone + each / rate for each, rate in ways]
    assert [row[1:] for row in table("experts", "how messages go")] == [
        [
            f"{each / 1e6:.0f} MB",
            f"{each / rate:.1f} ms",
            f"{step:.1f} ms",
            f"{round(64e3 / step, -2):,.0f}",
        ]
        for (each, rate), step in zip(ways, steps, strict=True)
    ]
    assert f"64 tokens in {alone:.1f} ms are {round(64e3 / alone, -2):,.0f} a second" in text
    drawing = (SOURCE.parent / "figures/expert-step.svg").read_text("utf-8")
    drawn = re.findall(r'data-part="(\w+)" x="[\d.]+" y="\d+" width="([\d.]+)"', drawing)
    bars = {"weights": [37e9 / 4.274e9] * 4, "latents": [asked] * 4}
    bars["messages"] = [each / 50e6 for each in (hosts, hosts, leaving, sent)]
    for part, times in bars.items():
        wide = [float(width) / 15 for name, width in drawn if name == part]  # 15 px for a ms
        assert wide == pytest.approx(times, abs=0.01)
    read = 896 * (1 - (1 - 16 / 896) ** 64)
    assert f"64 tokens read {read:.0f} of its 896 experts" in text
    assert f"would be a step of {256e3 / 2_800:.0f} ms" in text
    assert f"would have to be a step of {64e3 / 2_800:.0f} ms" in text


def number(cell: str) -> float:
    return float(cell.replace("−", "-"))


def test_rounding_to_fp8_and_to_int8_is_as_in_the_table():
    rows = _below("quantization", "| grid | scale | 56 |")
    weights = torch.tensor([56.0, 0.9, -0.02, 0.0003])
    eight = torch.float8_e4m3fn
    one = 56 / 448
    last = torch.tensor([one, *[0.9 / 448] * 3])
    found = [
        (weights / (56 / 127)).round() * (56 / 127),
        (weights / one).to(eight).float() * one,
        (weights / last).to(eight).float() * last,
    ]
    assert len(rows) == len(found)
    for row, rounded in zip(rows, found, strict=True):
        for cell, value in zip(row[2:], rounded.tolist(), strict=True):
            assert number(cell) == pytest.approx(value, rel=0.03, abs=1e-9)


def test_fp8_is_off_by_a_sixteenth_at_most_where_the_text_says():
    numbers = torch.logspace(-6, 8.8, 100_000, base=2.0)
    assert numbers.min() == 1 / 64
    assert numbers.max() < 448
    off = (numbers.to(torch.float8_e4m3fn).float() - numbers).abs() / numbers
    assert 0.05 < off.max() <= 1 / 16
    smaller = numbers / 8
    off = (smaller.to(torch.float8_e4m3fn).float() - smaller).abs() / smaller
    assert off.max() > 1 / 16
    assert "the largest over 28,672" in _words("quantization")
    assert 448 * 64 == 28_672


def test_the_router_s_scores_are_as_the_text_says():
    def scores(cached: tuple[int, int], load: tuple[int, int]) -> list[float]:
        mean = sum(load) / 2
        return [
            found / 2000 - 0.5 * (busy - mean) / mean
            for found, busy in zip(cached, load, strict=True)
        ]

    before, after = (scores((1500, 0), load) for load in ((30, 10), (38, 2)))
    for row, first, later in zip(table("routing", "replica"), before, after, strict=True):
        assert number(row[3].split("= ")[-1].strip("*")) == pytest.approx(first)
        assert number(row[5].split("= ")[-1].strip("*")) == pytest.approx(later)


def test_ring_attention_hides_a_transfer_from_360_tokens_on():
    bytes_of_a_key, flops_of_a_pair = 2 * 8 * 128 * 2, 4 * 32 * 128
    assert bytes_of_a_key == 4096
    assert flops_of_a_pair == 16_384
    tokens = (bytes_of_a_key / 450e9) / (flops_of_a_pair / 640e12)
    assert tokens == pytest.approx(360, rel=0.02)
    assert "about 360 tokens per rank" in _words("context-parallel")


def test_what_deepseek_v4_keeps_for_a_million_tokens():
    kept = 30 * (512 // 4 + 128 // 4) * 2 + 31 * (512 // 128) * 2
    before = 61 * (512 + 64 + 128) * 2
    gib = 2**20 / 2**30
    text = _words("compressed-attention")
    rows = [row[2:] for row in table("compressed-attention", "for one token")]
    assert [row[0].split("= ")[-1] for row in rows[:2]] == [
        f"{30 * 160 * 2:,}", f"{31 * 4 * 2:,}"
    ]  # fmt: skip
    assert rows[2] == [f"{kept:,}", f"{kept * gib:.1f} GiB"]
    assert rows[4] == [f"61 · 704 · 2 = {before:,}", f"{before * gib:.0f} GiB"]
    assert f"That is {before / kept:.1f} times as much" in text
    assert f"takes {before * gib:.0f} GiB in DeepSeek-V3.2's shape" in text
    vector, key = 448 + 2 * 64 + 8, 128
    assert vector == 584
    served = 30 * (vector + key) / 4 + 31 * vector / 128
    assert f"{vector + key} / 4 + 31 \\cdot {vector} / 128$ bytes" in text
    assert rows[3] == [f"{served:,.0f}", f"{served * gib:.1f} GiB"]


def test_what_sparse_attention_keeps_and_reads_without_a_latent():
    rows = dict(
        zip(("kept", "read", "indexer"), table("compressed-attention", "what"), strict=True)
    )
    tokens, layers, entry, key = 262_144, 12, 2 * 2 * 256 * 2, 128 * 2 / 4
    sums = {"kept": entry * tokens, "read": entry * 2048, "indexer": key * tokens}
    for name, each in sums.items():
        digits = 2 if name == "read" else 1
        assert rows[name][2] == f"{layers * each / 1e9:.{digits}f} GB"
        first, second, third = (int(one.replace(",", "")) for one in rows[name][1].split(" · "))
        assert first * second * third == layers * each
    together = layers * (sums["read"] + sums["indexer"])
    assert f"reads {together / 1e9:.2f} GB instead of 6.4" in _words("compressed-attention")
    assert layers * sums["indexer"] / together == pytest.approx(4 / 5, abs=0.01)


def test_a_group_s_vector_is_the_weighted_sum_of_the_text():
    tokens = torch.tensor([[8.0, 0], [0, 8], [4, 4], [0, 0]])
    found = torch.tensor([1 / 2, 1 / 4, 1 / 8, 1 / 8]) @ tokens
    assert f"Only the sum, ({found[0]:.1f}, {found[1]:.1f}), is kept" in _words(
        "compressed-attention"
    )


def test_a_long_prompt_s_attention_and_a_fourth_of_its_tiles():
    tokens, pair = 131_072, 524_288
    products, attention = 2 * 6.98e9 * tokens, pair * tokens**2 / 2
    share = (products + attention / 4) / (products + attention)
    text = _words("latent-attention")
    assert f"pairs are {attention / 1e15:.1f} PFLOP" in text
    assert f"beside {products / 1e15:.1f} for the matmuls" in text
    assert f"the prefill takes {share:.0%} of its time" in text


def test_two_drafts_for_one_place():
    p, q = torch.tensor([10.0, 5, 3, 2]) / 20, torch.tensor([6.0, 9, 4, 1]) / 20
    first = torch.minimum(p, q).sum()
    left = (p - q).clamp(min=0)
    residual = left / left.sum()
    second = torch.minimum(residual, q).sum()
    text = _words("speculative")
    assert (20 * residual).round().tolist() == [16, 0, 0, 4]
    assert "in twentieths it is 16, 0, 0, 4, and $q$ is 6, 9, 4, 1" in text
    assert f"accepted in {20 * second:.0f} of 20 cases" in text
    more = 20 * (1 - first) * second
    assert f"these are {more:.2f}, so two drafts reach {20 * first + more:.2f} of 20" in text


def test_blocks_of_two_drafts_one_by_one_and_together():
    p = {"a": Fraction(1, 3), "b": Fraction(2, 3)}
    q = {"a": Fraction(2, 3), "b": Fraction(1, 3)}
    *rows, total = table("speculative", "drafts", "blocks")
    sums, first = [Fraction(0)] * 3, Fraction(0)
    for drafts, blocks, _, alone, product, together in rows:
        one, two = drafts.split(", ")
        count = 36 * q[one] * q[two]
        by_itself = [min(Fraction(1), p[token] / q[token]) for token in (one, two)]
        ratio = min(Fraction(1), p[one] / q[one])
        whole = min(Fraction(1), ratio * p[two] / q[two])
        left = sum(max(ratio * p[token] - q[token], Fraction(0)) for token in p)
        begun = left / (left + 1 - ratio) if ratio < 1 else Fraction(1)  # the paper's rule
        kept = whole + (1 - whole) * begun  # at least the first draft
        found = count, count * by_itself[0] * (1 + by_itself[1]), count * (kept + whole)
        assert [str(number) for number in found] == [blocks, alone, together]
        assert str(whole) == product
        sums = [before + number for before, number in zip(sums, found, strict=True)]
        first += count * kept if one == "a" else 0
    assert [str(number) for number in sums] == [total[1], total[3], total[5].strip("*")]
    assert first == 12  # a block that keeps nothing begins with b
    assert "a is first in 4 + 8 of 36 blocks" in _words("speculative")


def test_pieces_of_a_block_on_the_wire_and_a_block_in_four_bits():
    piece, pieces = 16 * 8 * 128 * 2, 2 * 32
    assert piece == 32 * 1024
    whole = piece * pieces / 50e3  # µs
    text = _words("disaggregation")
    assert f"{pieces} · 2 + {whole:.0f} = {round(pieces * 2 + whole, -1):.0f} µs" in text
    assert f"and one piece of 2 MiB takes {2 + whole:.0f}" in text
    token = pieces * piece / 16
    rounded = token * (4 + 8 / 16) / 16
    disk = rounded / 7e3
    rows = {name: cells for name, *cells in table("kv-tiers", "a token", "takes")}
    assert rows["from a disk, in four bits"] == [
        f"{rounded / 1024:.0f} KiB", "the same", f"{disk:.1f} µs"
    ]  # fmt: skip
    for name, rate in (("from the host", 64), ("from a disk", 7)):
        assert rows[name][::2] == [f"{token / 1024:.0f} KiB", f"{token / rate / 1e3:.0f} µs"]
    assert 22 / disk > 4
    assert 22 / (2 * disk) > 2


def test_how_many_gpus_a_load_needs():
    rate, bandwidth = 640e12, 4.274e12
    matrices = (
        8_030_261_248 - 2 * 128_256 * 4096
    )  # without the embedding table, and without the head
    pairs = {"whole": 2048**2 / 2, "half": (2048**2 - 1024**2) / 2}
    prompts = {
        name: (2 * matrices * tokens + 524_288 * pairs[name]) / rate
        for name, tokens in (("whole", 2048), ("half", 1024))
    }
    read = 2 * (matrices + 128_256 * 4096) + 64 * (2048 + 128) * 131_072
    step = read / bandwidth
    decode = 256 * step / 64
    million = 40 * 256 * 3600 / 1e6
    text = _words("goodput")
    assert f"{1000 * step:.1f} ms at " in text
    assert f"a 64th of each: {1000 * decode:.0f} ms" in text
    assert f"or {1000 * prompts['whole']:.0f} ms at the 640 TFLOP/s" in text
    assert f"in the cache, it takes {1000 * prompts['half']:.0f} ms" in text
    for column, name, gpus in ((1, "whole", 5), (2, "half", 4)):
        seconds = prompts[name] + decode
        assert math.ceil(40 * seconds / 0.7) == gpus
        assert [row[column] for row in table("goodput", "", "Llama 3.1 8B, 64 together")] == [
            f"{read / 1e9:.0f}",
            f"{1000 * step:.1f}",
            f"{1000 * prompts[name]:.0f}",
            f"{1000 * decode:.0f}",
            f"{round(1000 * prompts[name]) + round(1000 * decode)}",
            f"{40 * seconds:.1f}",
            f"{gpus}",
            f"{100 * 3 * gpus / million:.0f}",
        ]
    assert f"{million:.1f} million tokens" in text
    assert f"{4 * 3600:,} wait after an hour" in text
    assert 4 * 3600 / 30 == 8 * 60
