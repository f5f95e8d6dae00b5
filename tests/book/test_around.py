"""What the figures of the chapters without a lab reckon with, against sums made by hand or in Python."""

import json
import math
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from book.tools.figures import load_figure

BOOK = Path(__file__).parents[2] / "book"
SHAPES = json.loads((BOOK / "traces/shapes.json").read_text("utf-8"))["models"]
ENGINE = json.loads((BOOK / "traces/goodput.json").read_text("utf-8"))["engine"]
BUDGET = json.loads((BOOK / "traces/step-budget.json").read_text("utf-8"))["batches"]
EXPERTS = load_figure("experts")["data"]["models"]
KINDS = load_figure("attention-kinds")["data"]["kinds"]
LLAMA = SHAPES["llama-8b"]
LAYERS = LLAMA["weights"] - LLAMA["head"]
"""Weights that every token of a prompt is multiplied by."""
RATE = 640e12
"""FLOP/s of a prefill on an H200, as these chapters compute with it."""
MACHINE = {"rate": RATE, "bandwidth": 4.274e12, "link": 50e9}


@pytest.fixture(scope="module")
def page(browser: Any) -> Iterator[Any]:
    """A page with the figures' scripts and nothing else."""
    page = browser.new_page()
    for name in ("base", "stage", "calculator", "around", "goodput"):
        page.add_script_tag(path=str(BOOK / f"theme/figures/{name}.js"))
    yield page
    page.close()


def of(page: Any, call: str, *arguments: Any) -> Any:
    return page.evaluate(f"(given) => {call}(...given)", list(arguments))


def test_one_token_reads_its_own_experts(page: Any) -> None:
    model = EXPERTS["deepseek-v3"]
    found = of(page, "around.experts", model, {"tokens": 1, "ranks": 8, "width": 2})
    assert found["touched"] == pytest.approx(8)
    assert (
        found["read"] == pytest.approx(found["work"]) == pytest.approx(58 * 9 * 3 * 7168 * 2048 * 2)
    )


def test_64_tokens_read_most_experts(page: Any) -> None:
    found = of(
        page, "around.experts", EXPERTS["deepseek-v3"], {"tokens": 64, "ranks": 8, "width": 2}
    )
    assert found["touched"] == pytest.approx(256 * (1 - (248 / 256) ** 64))
    # A token misses the 32 experts of another rank with this probability.
    missed = math.comb(224, 8) / math.comb(256, 8)
    assert found["remote"] == pytest.approx(7 * (1 - missed))
    assert found["sent"] == pytest.approx(58 * 64 * found["remote"] * 7168 * 3)


def test_16_tokens_read_11_times_the_experts_of_one(page: Any) -> None:
    model = EXPERTS["deepseek-v3"]
    one, many = (
        of(page, "around.experts", model, {"tokens": tokens, "ranks": 8, "width": 2})["read"]
        for tokens in (1, 16)
    )
    assert many / one == pytest.approx(load_figure("experts")["predict"]["number"], abs=0.05)


@pytest.mark.parametrize("name", EXPERTS)
def test_a_draw_gives_each_token_its_experts_and_is_what_the_formula_expects(
    page: Any, name: str
) -> None:
    model = EXPERTS[name]
    touched = []
    before = [0] * model["count"]
    for tokens in range(1, 65):
        drawn = of(page, "around.draws", model, tokens)
        assert len(set(drawn["last"])) == model["chosen"]
        # A larger step is the smaller one, and one token more.
        assert [now - then for now, then in zip(drawn["rows"], before, strict=True)] == [
            int(expert in drawn["last"]) for expert in range(model["count"])
        ]
        before = drawn["rows"]
        touched.append(sum(map(bool, before)))
    expected = of(page, "around.experts", model, {"tokens": 64, "ranks": 1, "width": 2})
    assert touched[-1] == pytest.approx(expected["touched"], rel=0.05)
    assert before == of(page, "around.draws", model, 64)["rows"]


def test_random_numbers_are_spread(page: Any) -> None:
    numbers = [of(page, "around.random", seed) for seed in range(1, 400)]
    assert all(0 <= one < 1 for one in numbers)
    assert 0.45 < sum(numbers) / len(numbers) < 0.55
    assert len(set(numbers)) == len(numbers)


def test_one_rank_sends_nothing(page: Any) -> None:
    assert (
        of(page, "around.experts", EXPERTS["mixtral"], {"tokens": 9, "ranks": 1, "width": 2})[
            "sent"
        ]
        == 0
    )


@pytest.mark.parametrize(
    ("kind", "context", "num_bytes", "flops"),
    [
        ("mha", 8192, 2 * 32 * 128 * 2 * 8192, 2 * 2 * 32 * 128 * 8192),
        ("gqa", 8192, 2 * 8 * 128 * 2 * 8192, 2 * 2 * 32 * 128 * 8192),
        ("mla", 8192, 576 * 2 * 8192, 2 * 128 * (576 + 512) * 8192),
        ("sparse", 8192, 1152 * 2048 + 128 * 8192, 2 * 128 * 1088 * 2048 + 2 * 64 * 128 * 8192),
        ("sparse", 100, 1152 * 100 + 128 * 100, 2 * 128 * 1088 * 100 + 2 * 64 * 128 * 100),
        ("csa", 8192, 640 * 1024 + 2048 * 128, 4 * 64 * 512 * 640 + 2 * 64 * 128 * 2048),
        ("csa", 131072, 640 * 1024 + 32768 * 128, 4 * 64 * 512 * 640 + 2 * 64 * 128 * 32768),
        ("hca", 131072, 1152 * 1024, 4 * 64 * 512 * 1152),
        ("hca", 100, 100 * 1024, 4 * 64 * 512 * 100),
        ("shared", 131072, 640 * 1024, 4 * 64 * 512 * 640),
        ("state", 8192, 2 * 32 * 128 * 128 * 4, 7 * 32 * 128 * 128),
    ],
)  # fmt: skip
def test_bytes_and_flops_of_a_kind(
    page: Any, kind: str, context: int, num_bytes: int, flops: int
) -> None:
    found = of(page, f"around.kinds.{KINDS[kind]['kind']}", KINDS[kind], context)
    assert (found["bytes"], found["flops"]) == (num_bytes, flops)


def test_a_latent_is_above_the_ridge_and_grouped_queries_are_below(page: Any) -> None:
    ridge = load_figure("attention-kinds")["data"]["ridge"]
    machine = json.loads((BOOK / "evidence/ceilings.json").read_text("utf-8"))["machines"]["h200"]
    assert ridge == pytest.approx(
        machine["flops_per_second"][1] / machine["bytes_per_second"], rel=0.01
    )
    latent, grouped = (
        of(page, f"around.kinds.{KINDS[kind]['kind']}", KINDS[kind], 9) for kind in ("mla", "gqa")
    )
    assert latent["flops"] / latent["bytes"] > ridge > grouped["flops"] / grouped["bytes"]


def test_what_the_prediction_on_shared_entries_says(page: Any) -> None:
    figure = load_figure("compressed-kinds")
    kinds = figure["data"]["kinds"]
    assert {name: one.items() - KINDS[name].items() for name, one in kinds.items()} == {
        name: {("label", one["label"]), ("short", one["short"])} for name, one in kinds.items()
    }
    assert figure["data"]["ridge"] == load_figure("attention-kinds")["data"]["ridge"]
    read = {
        name: of(page, f"around.kinds.{one['kind']}", one, 131_072)["bytes"]
        for name, one in kinds.items()
    }
    assert (read["sparse"], read["csa"]) == pytest.approx((19.1e6, 4.85e6), rel=0.01)
    assert read["sparse"] / read["csa"] == pytest.approx(figure["predict"]["number"], abs=0.06)


def test_a_prefix_computed_again(page: Any) -> None:
    found = of(page, "around.again", LLAMA, 4096, 400e12)
    flops = 2 * LAYERS * 4096 + 32 * 4 * 32 * 128 * 4096**2 / 2
    assert found["seconds"] == pytest.approx(flops / 400e12)
    assert found["bytes"] == 4096 * 128 * 1024


def test_what_the_prediction_on_tiers_says(page: Any) -> None:
    short, long = (of(page, "around.again", LLAMA, count, RATE) for count in (4096, 32768))
    ask = load_figure("kv-tiers")["predict"]
    assert long["seconds"] / short["seconds"] == pytest.approx(ask["number"], abs=0.1)
    assert long["seconds"] == pytest.approx(1.15, abs=0.005)
    assert long["bytes"] / 7e9 == pytest.approx(0.61, abs=0.005)


def test_for_which_model_a_disk_pays(page: Any) -> None:
    faster = {
        name: found["bytes"] / 7e9 < found["seconds"]
        for name in ("llama-8b", "qwen3-06b")
        for found in [of(page, "around.again", SHAPES[name], 4096, RATE)]
    }
    assert faster == {"llama-8b": True, "qwen3-06b": False}


def test_what_the_chapter_on_tiers_says_of_8000_tokens(page: Any) -> None:
    run = json.loads((BOOK / "evidence/gpu_fixed_large.json").read_text("utf-8"))["batches"]["8"]
    [prefill] = run["YAIE"]["prefill_ms"]
    assert round(1e3 * prefill / (8 * 1024)) == 22  # microseconds a token
    # The rate that all these chapters compute with is what this prefill reached.
    eight = 8 * of(page, "around.again", LLAMA, 1024, 1)["flops"]
    assert eight / (prefill / 1e3) == pytest.approx(RATE, rel=0.01)
    found = of(page, "around.again", LLAMA, 8000, RATE)
    products = 2 * LAYERS * 8000 / RATE
    assert round(1e6 * products / 8000) == 22
    assert found["seconds"] == pytest.approx(0.20, abs=0.005)
    assert 1 - products / found["seconds"] == pytest.approx(1 / 8, abs=0.01)
    assert found["bytes"] / 7e9 == pytest.approx(0.15, abs=0.005)
    assert found["bytes"] / 64e9 == pytest.approx(0.016, abs=0.0005)


def test_a_request_s_shares(page: Any) -> None:
    machine = MACHINE
    found = of(page, "around.phases", LLAMA, {"prompt": 2048, "answer": 256, "batch": 64}, machine)
    step = (2 * LLAMA["weights"] + 64 * (2048 + 128) * 131072) / 4.274e12
    assert found["step"] == pytest.approx(step)
    assert found["decode"] == pytest.approx(256 * step / 64)
    assert found["moved"] == pytest.approx(2048 * 131072 / 50e9)
    assert (round(1e3 * found["prefill"]), round(1e3 * found["decode"])) == (46, 31)
    long = of(page, "around.phases", LLAMA, {"prompt": 2048, "answer": 512, "batch": 64}, machine)
    assert round(1e3 * long["decode"]) == 64
    share = long["prefill"] / (long["prefill"] + long["decode"])
    assert round(10 * share) == load_figure("apart")["predict"]["number"]


def test_the_balance_by_measured_steps(page: Any) -> None:
    run = json.loads((BOOK / "evidence/gpu_fixed_large.json").read_text("utf-8"))["batches"]["128"]
    [step] = run["YAIE"]["median_ms"]  # as many bytes as 64 streams with 2,048 + 128 tokens
    measured = 256 * step / 64
    assert round(measured) == 40
    work = {"prompt": 2048, "answer": 256, "batch": 64}
    prefill = 1e3 * of(page, "around.phases", LLAMA, work, MACHINE)["prefill"]
    assert prefill / measured == pytest.approx(7 / 6, rel=0.01)
    for prompt, devices in ((prefill, 5), (24, 4)):  # as many as by the limits, in Goodput
        assert math.ceil(40 * (prompt + measured) / 1e3 / 0.7) == devices


@pytest.mark.parametrize(("chunk", "count"), [(512, 4), (256, 8), (0, 1)])
def test_a_prompt_in_chunks_makes_steps_longer(page: Any, chunk: int, count: int) -> None:
    machine = MACHINE
    work = {"prompt": 2048, "answer": 256, "batch": 64}
    whole = of(page, "around.phases", LLAMA, work, machine)
    found = of(page, "around.chunked", LLAMA, whole, {**work, "chunk": chunk}, machine)
    rows = 64 + 2048 / count
    flops = 2 * LAYERS * rows + 2 * LLAMA["head"] * 64  # streams get logits, the prompt none yet
    products = max(2 * LLAMA["weights"] / 4.274e12, flops / RATE)
    streams = 64 * (2048 + 128) * 131072 / 4.274e12
    own = 32 * 4 * 32 * 128 * 2048**2 / 2 / count / RATE
    assert found["count"] == count
    assert found["long"] == pytest.approx(products + streams + own)
    assert found["long"] == pytest.approx(whole["step"] + found["part"])
    if chunk == 512:
        assert round(1e3 * found["long"]) == 17  # the chapter's text
        assert (round(1e3 * (products + own)), round(1e3 * streams)) == (13, 4)


def test_a_chunk_that_fits_below_the_border_adds_its_attention_alone(page: Any) -> None:
    work = {"prompt": 2048, "answer": 256, "batch": 64}
    whole = of(page, "around.phases", LLAMA, work, MACHINE)
    found = of(page, "around.chunked", LLAMA, whole, {**work, "chunk": 64}, MACHINE)
    assert found["part"] == pytest.approx(32 * 4 * 32 * 128 * 2048**2 / 2 / 32 / RATE)


AGENTS = load_figure("agent-pool")["data"]["agents"]


def test_a_turn_among_agents_is_as_the_chapter_says(page: Any) -> None:
    assert AGENTS["pool"] == 900_000
    found = of(page, "around.turns", LLAMA, {**AGENTS, "sessions": 19, "pause": 5.2}, MACHINE)
    pairs = 2242 * 44_879
    prefill = (2 * LAYERS * 2242 + 2 * LLAMA["head"] + 524_288 * pairs) / RATE
    assert (found["fit"], found["computed"]) == (19, 2242)
    assert found["prefill"] == pytest.approx(prefill)
    assert found["prefill"] == pytest.approx(0.13, abs=0.005)
    assert (round(found["decoding"], 1), round(found["turn"], 1)) == (11.7, 13.9)
    assert found["decode"] == pytest.approx(8.5, abs=0.05)
    # What it rests on holds for what comes out.
    step = (2 * LLAMA["weights"] + found["decoding"] * found["bytes"]) / 4.274e12
    shared = 19 * prefill / found["turn"]
    assert found["decode"] == pytest.approx(350 * step / (1 - shared))
    assert found["decoding"] == pytest.approx(19 * found["decode"] / found["turn"])
    assert (round(1e3 * step), round(100 * shared)) == (20, 18)


@pytest.mark.parametrize(("pause", "decoding"), [(30, 1), (5.2, 12)])
def test_slow_tools_leave_one_that_decodes(page: Any, pause: float, decoding: int) -> None:
    found = of(page, "around.turns", LLAMA, {**AGENTS, "sessions": 19, "pause": pause}, MACHINE)
    assert round(found["decoding"]) == decoding


def test_one_session_too_many_computes_again_what_the_pool_lacks(page: Any) -> None:
    found = of(page, "around.turns", LLAMA, {**AGENTS, "sessions": 20, "pause": 5.2}, MACHINE)
    lost = 20 * 46_000 - 900_000
    pairs = (2242 + lost) * (46_000 - (2242 + lost) / 2)
    part = (2 * LAYERS * (2242 + lost) + 2 * LLAMA["head"] + 524_288 * pairs) / RATE
    assert found["computed"] == 2242 + lost == 22_242
    assert found["prefill"] == pytest.approx(part)
    assert part == pytest.approx(1.1, abs=0.05)
    assert 20 * part == pytest.approx(22, abs=0.5)
    assert found["turn"] == pytest.approx(34, abs=0.5)  # the figure's answer


def test_two_sessions_too_many_compute_every_prompt(page: Any) -> None:
    found = of(page, "around.turns", LLAMA, {**AGENTS, "sessions": 21, "pause": 5.2}, MACHINE)
    whole = (2 * LAYERS * 46_000 + 2 * LLAMA["head"] + 524_288 * 46_000**2 / 2) / RATE
    assert found["computed"] == 46_000
    assert found["prefill"] == pytest.approx(whole)
    assert whole == pytest.approx(1.9, abs=0.05)
    assert found["turn"] == pytest.approx(51, abs=0.5)


@pytest.mark.parametrize(
    ("way", "work"),
    [("order", [8, 24, 40, 56]), ("turns", [26, 30, 34, 38]), ("zigzag", [32, 32, 32, 32])],
)
def test_sixteen_pieces_on_four_ranks(page: Any, way: str, work: list[int]) -> None:
    owners = of(page, "around.owners", way, 4, 16)
    assert sorted(owners) == sorted([*range(4)] * 4)
    assert of(page, "around.causal", owners, 4) == work


def test_the_last_four_of_64_answers_take_44_percent_of_the_steps(page: Any) -> None:
    ends = of(page, "around.ends", "geometric", 64, 2000)
    waits = [2000 / running for running in range(64, 0, -1)]
    assert ends == pytest.approx([sum(waits[: ended + 1]) for ended in range(64)])
    assert (round(ends[59]), round(ends[63])) == (5321, 9488)
    found = of(page, "around.tail", ends, 4)
    assert found["time"] == pytest.approx(4167 / 9488, rel=1e-3)
    assert found["tokens"] == pytest.approx(8000 / 128000)
    assert found["rows"] == pytest.approx(1.92, abs=0.005)


def test_even_lengths_have_no_long_end(page: Any) -> None:
    ends = of(page, "around.ends", "uniform", 64, 2000)
    assert of(page, "around.tail", ends, 4)["time"] == pytest.approx(4 / 64)
    assert sum(ends) / 64 == pytest.approx(2000)
    equal = of(page, "around.ends", "equal", 64, 2000)
    assert of(page, "around.tail", equal, 4) == {"time": 0, "tokens": 0, "rows": 0}


def test_an_adapter_of_rank_16_is_84_megabytes(page: Any) -> None:
    found = of(page, "around.adapter", LLAMA, {"rank": 16, "distinct": 8})
    shapes = [
        (4096, 4096),
        (4096, 1024),
        (4096, 1024),
        (4096, 4096),
        (4096, 14336),
        (4096, 14336),
        (14336, 4096),
    ]
    assert found["numbers"] == 32 * 16 * sum(map(sum, shapes))
    assert found["read"] - found["base"] == 8 * found["bytes"]
    assert 1e9 / found["bytes"] == pytest.approx(11.9, abs=0.1)


def test_weights_are_those_that_a_token_is_multiplied_by() -> None:
    assert LLAMA["weights"] == 8030261248 - 128256 * 4096
    assert SHAPES["qwen3-06b"]["weights"] == 596049920  # the table is also the head
    assert SHAPES["qwen3-06b"]["head"] == 151936 * 1024
    assert LLAMA["head"] == 128256 * 4096


def simulated(page: Any, rate: float, **settings: float) -> list[dict[str, float]]:
    given = {**ENGINE, "count": 3000, "prompt": 1024, "answer": 128, "rate": rate, **settings}
    found: list[dict[str, float]] = of(page, "goodput.simulate", given)
    return found


def summary(page: Any, rate: float) -> dict[str, Any]:
    found: dict[str, Any] = of(
        page, "goodput.summary", simulated(page, rate), {"first": 0.5, "between": 0.03}
    )
    return found


def test_a_lone_request_takes_what_its_steps_take(page: Any) -> None:
    [one] = simulated(page, 1, count=1)
    chunks = math.ceil(one["prompt"] / ENGINE["budget"])
    assert one["first"] - one["arrived"] == pytest.approx(
        chunks * ENGINE["base"] + one["prompt"] * ENGINE["token"]
    )
    assert one["ended"] - one["first"] == pytest.approx(
        (one["answer"] - 1) * (ENGINE["base"] + ENGINE["each"])
    )


def test_arrivals_have_the_rate_and_all_end(page: Any) -> None:
    found = simulated(page, 20)
    assert found[-1]["arrived"] == pytest.approx(3000 / 20, rel=0.05)
    assert all(one["arrived"] < one["first"] <= one["ended"] for one in found)
    assert all(one["said"] == one["answer"] for one in found)


@pytest.mark.nightly
def test_goodput_falls_where_throughput_stays(page: Any) -> None:
    below, over = summary(page, 20), summary(page, 40)
    assert below["kept"] == 1
    assert over["throughput"] > below["throughput"]
    assert over["kept"] == 0  # the figure's answer
    for rate, kept in ((25, 0.88), (28, 0.61), (30, 0.20), (32, 0)):  # the chapter's text
        found = summary(page, rate)
        assert found["kept"] == pytest.approx(kept, abs=0.005)
        assert found["goodput"] <= found["throughput"]
    assert 1e3 * summary(page, 28)["tpot"]["half"] == pytest.approx(27, abs=0.5)
    assert 1e3 * over["tpot"]["half"] == pytest.approx(57, abs=0.5)


@pytest.mark.nightly
def test_other_arrivals_give_other_shares_near_the_knee(page: Any) -> None:
    limits = {"first": 0.5, "between": 0.03}
    for rate, low, high in ((28, 0.37, 0.85), (30, 0.02, 0.38)):  # the chapter's text
        runs = (simulated(page, rate, seed=7 * number) for number in range(1, 21))
        kept = [of(page, "goodput.summary", run, limits)["kept"] for run in runs]
        assert (min(kept), max(kept)) == pytest.approx((low, high), abs=0.005)
        if rate == 28:
            assert statistics.median(kept) == pytest.approx(0.67, abs=0.005)


@pytest.mark.nightly
def test_a_limit_on_each_gap_counts_others_than_one_on_the_mean(page: Any) -> None:
    run = simulated(page, 20)
    kept = {
        between: of(
            page, "goodput.summary", run, {"first": 0.5, "between": between, "longest": True}
        )["kept"]
        for between in (0.03, 0.06)
    }  # the chapter's text
    assert kept[0.03] == pytest.approx(0.004, abs=0.0005)
    assert kept[0.06] == 1
    counted = run[300:]
    assert all(
        one["longest"] >= (one["ended"] - one["first"]) / (one["answer"] - 1) for one in counted
    )


def test_the_first_300_requests_do_not_show_the_queue(page: Any) -> None:
    in_time = [
        one["first"] - one["arrived"] <= 0.5
        and (one["ended"] - one["first"]) / max(1, one["answer"] - 1) <= 0.03
        for one in simulated(page, 30, count=300)
    ]
    assert sum(in_time) / 300 == pytest.approx(0.90, abs=0.005)  # the chapter's text


def test_below_the_knee_as_many_end_as_arrive(page: Any) -> None:
    found = summary(page, 20)
    assert found["counted"] == 2700
    assert found["throughput"] == pytest.approx(20, rel=0.02)


@pytest.mark.parametrize("size", ["1", "32", "256"])
def test_the_parts_of_a_step_add_up(size: str) -> None:
    parts = BUDGET[size]
    assert sum(parts[name] for name in ("weights", "kv", "gaps", "rest")) == pytest.approx(
        parts["step"], abs=0.3
    )


def test_at_batch_1_the_rest_is_two_thirds() -> None:
    assert BUDGET["1"]["rest"] / BUDGET["1"]["step"] == pytest.approx(0.67, abs=0.01)
    assert BUDGET["256"]["kv"] / BUDGET["256"]["step"] == pytest.approx(0.82, abs=0.01)


def test_numbers_for_people(page: Any) -> None:
    shown = page.evaluate(
        "[[1e9, 'bytes'], [0.00148, 'seconds'], [999.9, 'bytes'], [12.345, '']]"
        ".map((one) => yaie.calculator.show(...one))"
    )
    assert shown == ["1 GB", "1.48 ms", "1 kB", "12.3"]
