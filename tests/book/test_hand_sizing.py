"""Sums of goodput and of the roofline again: what a service needs, and four requests at least."""

import json
import math

import pytest

from book.tools.mdbook import ROOT
from tests.book.test_hand_tables import _words, numbers, table
from yaie.core.compat import tomllib

CEILINGS = json.loads((ROOT / "book/evidence/ceilings.json").read_text("utf-8"))["machines"]
CPU = CEILINGS["cpu"]
MODELS = tomllib.loads((ROOT / "book/models.toml").read_text("utf-8"))["models"]
TUTOR, MIXTURE = MODELS["tutor"], MODELS["gpt_oss_120b"]
HEAD = TUTOR["hidden"] * TUTOR["vocab"]
ANSWERS = {"A": (48, 30), "B": (47, 34), "C": (47, 22), "D": (47, 57)}
SHARED = 32


def test_how_many_gpus_a_mixture_of_experts_needs():
    shape = MIXTURE
    prompt, answer, rate = 2048, 256, 40
    one = 3 * shape["hidden"] * shape["expert_ffn"] * shape["expert_layers"]
    experts = one * shape["experts"]
    rest = shape["active"] - one * shape["chosen"]
    key = 2 * shape["kv_heads"] * shape["head_dim"] * 2 * shape["layers"] // 2  # half of the layers
    kept = key * (prompt + answer // 2 + shape["window"])
    text = _words("goodput")
    assert f"{experts / 1e9:.0f} billion weights in 36 layers of 128 experts" in text
    assert f"four: {experts * 4.25 / 8 / 1e9:.0f} GB in 4.25 bits" in text
    assert f"The other {rest / 1e9:.1f} billion in bfloat16 take {2 * rest / 1e9:.1f} GB" in text

    def read(requests: int) -> float:
        reached = 1 - (1 - shape["chosen"] / shape["experts"]) ** requests
        return reached * experts * 4.25 / 8 + 2 * rest + requests * kept

    assert f"requests reach [{1 - (31 / 32) ** 64:.0%} of the experts]" in text
    assert f"whole in every other layer, are {64 * kept / 1e9:.1f} GB" in text
    head = 201_088 * shape["hidden"]
    products = 2 * (shape["active"] - head) * prompt
    attention = 4 * shape["heads"] * shape["head_dim"] * shape["layers"] // 2 * prompt**2 / 2
    prefill = (products + attention) / 640e12
    assert f"is multiplied by {(shape['active'] - head) / 1e9:.1f} billion weights" in text
    for column, requests in ((3, 64), (4, 256)):
        step = read(requests) / CEILINGS["h200"]["bytes_per_second"]
        decode = answer * step / requests
        busy = rate * (prefill + decode)
        devices = math.ceil(busy / 0.7)
        assert [row[column] for row in table("goodput", "", "Llama 3.1 8B, 64 together")] == [
            f"{read(requests) / 1e9:.0f}",
            f"{1000 * step:.0f}",
            f"{1000 * prefill:.0f}",
            f"{1000 * decode:.0f}",
            f"{1000 * (prefill + decode):.0f}",
            f"{busy:.1f}",
            f"{devices}",
            f"{100 * 3 * devices / (rate * answer * 3600 / 1e6):.0f}",
        ]


def test_how_long_a_replica_may_take_to_start():
    text = _words("goodput")
    assert f"has grown by {1 / 0.7 - 1:.0%}" in text
    assert "5% each minute, that is in seven minutes" in text
    assert round((1 / 0.7 - 1) / 0.05) == 9


def flops(rows: int, pairs: int, sampled: int) -> float:
    """Of a step of the tutor; only rows that are sampled from need the last matrix."""
    products = 2 * (TUTOR["matrices"] - HEAD) * rows + 2 * HEAD * sampled
    return products + 4 * TUTOR["heads"] * TUTOR["head_dim"] * TUTOR["layers"] * pairs


def test_the_least_time_of_the_four_requests():
    """Step 1 computes A's prompt; step 2 a token of A, and what B, C and D do not find in the cache."""
    of_keys = 2 * TUTOR["layers"] * TUTOR["kv_heads"] * TUTOR["head_dim"] * 4
    first = flops(48, 48 * 49 // 2, 1)
    new = 47 - SHARED
    second = flops(1 + 3 * new, 49 + 3 * sum(range(SHARED + 1, 48)), 4)
    rows = table("roofline", "step")
    rates = sorted(CPU["flops_per_second"])
    for work, row in zip((first, second), rows[:2], strict=True):
        assert row[2] == f"{work / 1e9:.2f} GFLOP"
        assert row[3] == f"{1000 * work / rates[1]:.1f} to {1000 * work / rates[0]:.1f} ms"
        assert numbers(row[5]) == [1, 0]
    text = _words("roofline")
    prompts = 1000 * (first + second) / rates[0]
    weights = 4 * TUTOR["matrices"]

    def reading(keys: int) -> float:
        """Milliseconds in which a step reads the weights and keys and values of so many tokens."""
        return 1000 * (weights + keys * of_keys) / CPU["bytes_per_second"]

    together = one_by_one = 0.0
    for step in range(3, 59):  # A has had two tokens by then, the others one
        had = {name: step - (1 if name == "A" else 2) for name in ANSWERS}
        running = [n for n, (_, length) in ANSWERS.items() if had[n] < length]
        together += reading(sum(ANSWERS[name][0] + had[name] for name in running))
    for prompt, length in ANSWERS.values():
        one_by_one += sum(reading(prompt + had) for had in range(1, length))
    assert f"{prompts:.1f} + 56 · {together / 56:.2f} = about {prompts + together:.0f} ms" in text
    assert "29 + 33 + 21 + 56 = 139 decode steps" in text
    assert f"{prompts:.1f} + 139 · {one_by_one / 139:.2f} = about" in text
    assert f"about {prompts + one_by_one:.0f} ms. By these limits" in text
    assert f"worth a factor of {(prompts + one_by_one) / (prompts + together):.1f}" in text


def test_one_long_thought_among_short_answers():
    """More than ten times by bubbles alone: continuous batching's factor for 32 rows, in Batching."""
    rows, long, short = 32, 10_000, 10
    mean = (long + (rows - 1) * short) / rows
    one = 1 - (1 - 1 / rows) ** rows  # a batch has at least one
    factor = (one * long + (1 - one) * short) / mean
    text = _words("batching")
    assert "one answer in 32 has 10,000 tokens and the others have 10" in text
    assert f"the factor is {factor:.0f}." in text


def test_a_decode_step_of_256_requests():
    """Linear layers by bytes or by arithmetic, whichever is longer, then attention by its bytes."""
    card, weights = CEILINGS["h200"], MODELS["llama_8b"]["matrices"]
    low = {}
    for row in table("kv-cache", "requests", "weights"):
        requests = int(row[0])
        work = 2 * weights * requests / max(card["flops_per_second"])
        linear = max(2 * weights / card["bytes_per_second"], work)
        low[requests] = linear + requests * 1024 * 131_072 / card["bytes_per_second"]
        assert row[5] == f"{1e3 * low[requests]:.1f}"
        assert float(row[6].replace(",", "")) == pytest.approx(requests / low[requests], rel=0.005)
    text = _words("kv-cache")
    assert f"rises {256 / low[256] / (32 / low[32]):.1f} times: keys" in text
    long = (2 * weights + 32 * 16_384 * 131_072) / card["bytes_per_second"]
    assert f"weights: {1e3 * long:.1f} ms a step" in text
