"""What ranks read, send and take: counts are those of real ranks, times those worked out by hand."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from typer.testing import CliRunner

from book.tools.mdbook import ROOT
from solutions import tensor_parallel
from tests.models.sharded import load
from tests.models.tiny import tiny_model
from yaie.bench.collectives import ALGORITHMS, Algorithm, Machine, seconds
from yaie.bench.scale.links import Links, fit
from yaie.bench.scale.machines import MACHINES, ROW, Known
from yaie.bench.scale.measured import counts_as_predicted
from yaie.bench.scale.predict import predict
from yaie.bench.scale.rank import Metered
from yaie.bench.scale.shapes import dims
from yaie.bench.scale.sizes import Call, Dims, Draws, Kind, calls
from yaie.cli.main import app
from yaie.core.errors import ConfigError, YaieError
from yaie.core.threaded_ranks import ThreadLink, Wire
from yaie.models.naive_kv import ContiguousKV
from yaie.models.shard import Shard

EVIDENCE = ROOT / "book" / "evidence"
MS, US = 1e-3, 1e-6


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model("llama", tmp_path_factory.mktemp("models") / "llama")


@pytest.mark.parametrize("draws", ["greedy", "sampled"])
@pytest.mark.parametrize("size", [2, 4])
def test_the_bytes_counted_are_those_that_go_over_the_wire(
    folder: Path, size: int, draws: Draws
) -> None:
    rows, wire = 3, Wire(size)
    found: list[tuple[Dims, dict[tuple[Kind, int], int]]] = []

    @torch.inference_mode()
    def step(link: ThreadLink) -> None:
        meter = Metered(link.rank, size, tensor_parallel.Ring(link))
        adapter = load(folder, Shard(tensor_parallel, meter))
        tokens = torch.tensor([5, 6, 7])
        attend = ContiguousKV().attend([(str(row), 1) for row in range(rows)])
        states = adapter.forward(tokens, torch.zeros(rows, dtype=torch.int64), attend)
        adapter.first_choice(states) if draws == "greedy" else adapter.logits(states)
        found.append((Dims.of(adapter.config, 4), dict(meter.calls)))

    wire.run(step)
    model, counted = found[0]
    made = calls(model, size, rows, draws)
    assert counts_as_predicted(counted, made)
    assert not counts_as_predicted(counted, made[:1])
    sent = sum(call.sent("ring", size) for call in made)
    assert [wire.sent_by(rank) for rank in range(size)] == [sent] * size


@pytest.mark.parametrize("ranks", [2, 8])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_fit_finds_the_latency_and_bandwidth_that_made_the_points(
    algorithm: Algorithm, ranks: int
) -> None:
    machine = Machine(ranks, 3 * US, 50e9)
    sizes = (1024, 65536, 1 << 22)
    found = fit(algorithm, ranks, {size: seconds(algorithm, size, machine) for size in sizes})
    assert (found.latency, found.bandwidth) == (pytest.approx(3 * US), pytest.approx(50e9))


def test_a_fit_of_times_that_fall_with_the_bytes_is_refused() -> None:
    with pytest.raises(YaieError, match="took no longer"):
        fit("ring", 2, {1024: 2 * MS, 1 << 20: 1 * MS})


def test_a_fit_never_has_a_negative_latency() -> None:
    assert fit("ring", 2, {1024: 1 * US, 2048: 3 * US}).latency == 0


@pytest.mark.parametrize(
    ("algorithm", "all_reduce", "all_gather"),
    # 4 ranks, 1,000 bytes at 1 byte/us, 10 us.
    [("ring", 6 * (10 + 250), 3 * 10 + 3000), ("one_shot", 10 + 3000, 10 + 3000)],
)
def test_collectives_take_their_rounds_and_their_bytes(
    algorithm: Algorithm, all_reduce: float, all_gather: float
) -> None:
    links = Links(algorithm, 10 * US, 1e6)
    made = [Call("all_reduce", 1000, 5), Call("all_gather", 1000, 2)]
    expected = (5 * all_reduce + 2 * all_gather) * US
    assert links.collectives(made, 4) == pytest.approx(expected)


def test_a_known_machine_has_the_figures_of_the_evidence() -> None:
    known = MACHINES["h200"]
    large = json.loads((EVIDENCE / "gpu_fixed_large.json").read_text())
    assert known.bytes_per_second == large["ceilings"]["bytes_per_second"]
    assert known.operations_per_second == large["ceilings"]["operations_per_second"]
    assert known.limit_ms == {int(b): one["decode_ms"] for b, one in large["limit"].items()}
    measured = {int(b): one["YAIE"]["mean_ms"][0] for b, one in large["batches"].items()}
    assert known.step_ms == measured
    reduced = json.loads((EVIDENCE / "all_reduce.json").read_text())["microseconds"]
    for algorithm, name in (("ring", "nccl"), ("one_shot", "one_shot"), ("two_shot", "two_shot")):
        points = {int(rows) * ROW: us * US for rows, us in reduced[name].items()}
        assert known.all_reduce[algorithm] == pytest.approx(points)


def test_one_rank_is_predicted_to_take_what_it_was_measured_to_take() -> None:
    known = MACHINES["h200"]
    context = 1024 + 8 + 64  # halfway through the steps that were timed
    for rows in (1, 8, 32, 128, 256):
        one = predict(
            dims("llama-3.1-8b"), known, known.links("ring"), 1, 1, rows, context, "greedy"
        )
        assert 1e3 * one.step == pytest.approx(known.step_ms[rows], rel=2e-3)
        assert (one.collectives, one.sends, one.sent) == (0, 0, 0)


SMALL = Dims(
    hidden=8, inner=16, layers=4, heads=4, kv_heads=2, head_dim=2, vocab=10, width=2
)  # fmt: skip
ROUND = Known(
    label="round numbers", bytes_per_second=1e6, operations_per_second=1e12,
    step_ms={1: 64.0, 3: 192.0}, limit_ms={1: 32.0, 3: 40.0},
)  # fmt: skip
"""32 ms beside the limit at batch 1: 1 ms a layer. At batch 3: (192 - 32) / 40 = 4 times the limit."""


def test_a_step_is_the_sum_of_its_parts() -> None:
    links = Links("ring", 10 * US, 1e6)
    found = predict(SMALL, ROUND, links, 2, 2, 2, 5, "greedy")
    # A rank of two has 2 query heads, 1 KV head, 8 inner features: 8 x (2 x 4 + 2 x 2 + 24) weights.
    layer, head = 8 * 36, 8 * 5
    keys = 2 * 5 * 2 * 2 * 2  # rows, tokens, K and V, dimensions, bytes
    read = 4 * (layer * 2 + keys) + head * 2
    factor = (1 + 4) / 2  # halfway between batches 1 and 3
    assert found.compute == pytest.approx(factor * read * US + 4 * MS)
    states = 2 * 8 * 2
    reduces, gather = 9 * 2 * (10 + states / 2), 10 + 2 * 16
    assert found.collectives == pytest.approx((reduces + gather) * US)
    assert found.sends == pytest.approx((10 + states) * US)
    assert found.step == found.compute + found.collectives + found.sends
    # Two ranks send half of the states twice for each of 9 sums, and what is gathered once.
    assert found.sent == (9 * states + 2 * 16) / 2 + states / 2


def test_ranks_beyond_the_kv_heads_hold_one_each() -> None:
    assert [SMALL.kv_bytes(ranks) for ranks in (1, 2, 4)] == [16, 8, 8]


def test_stages_do_not_shorten_a_token_and_carry_as_many_batches() -> None:
    links = Links("ring", 0.0, 1e15)
    one, four = (predict(SMALL, ROUND, links, 1, stages, 1, 5, "greedy") for stages in (1, 4))
    assert four.step == pytest.approx(one.step)
    assert one.tokens_per_second == pytest.approx(1 / one.step)
    # The last stage has the head too, and is what the others wait for.
    assert 3 / one.step < four.tokens_per_second < 4 / one.step


def test_a_model_that_cannot_be_split_so_is_refused() -> None:
    links = Links("ring", 0.0, 1e15)
    with pytest.raises(ConfigError, match="does not divide the 4 attention heads"):
        predict(SMALL, ROUND, links, 3, 1, 1, 5, "greedy")


def scale(*arguments: str, to: Path) -> dict:
    result = CliRunner().invoke(
        app, ["bench", "scale", *arguments, "--json", str(to)], catch_exceptions=False
    )
    assert result.exit_code == 0, result.output
    figures: dict = json.loads(to.read_text())
    return figures


def test_a_shape_is_predicted_for_1_to_16_ranks(tmp_path: Path) -> None:
    figures = scale("--shape", "llama-3.1-70b", "--batch", "4", to=tmp_path / "figures.json")
    found = figures["batches"]["4"]
    assert {one["tensor_parallel"] for one in found} == {1, 2, 4, 8, 16}
    assert all(one["step"] > 0 for one in found)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--shape llama-3.1-8b --threads 1", "--threads has no effect here"),
        ("--shape llama-3.1-8b --repeats 1", "--repeats has no effect here"),
        ("--machine h200", "--machine has no effect here"),
        ("--shape llama-9b", "there is no 'llama-9b'"),
        ("--shape qwen3.5-4b", "there is no 'qwen3.5-4b'"),
        ("--shape tiny --machine abacus", "there is no 'abacus'"),
        ("--pipeline-parallel 2", "stages are predicted"),
    ],
)
def test_what_would_have_no_effect_is_refused(
    arguments: str, said: str, refused: Callable[[str], str]
) -> None:
    assert said in refused(f"bench scale {arguments}")


@pytest.fixture
def refused() -> Callable[[str], str]:
    def ask(command: str) -> str:
        result = CliRunner().invoke(app, command.split())
        assert isinstance(result.exception, ConfigError)
        return str(result.exception)

    return ask


@pytest.mark.slow
@pytest.mark.nightly
def test_two_ranks_are_measured_and_predicted_side_by_side(folder: Path, tmp_path: Path) -> None:
    figures = scale(str(folder), "--batch", "2", "--repeats", "1", to=tmp_path / "figures.json")
    found = figures["batches"]["2"]
    assert found["counted as predicted"]
    two, four = found["ranks"]["2"], found["ranks"]["4"]
    assert two["predicted_ms"] == two["compute_ms"][0] + two["collectives_ms"]
    assert two["predicted_to_measured"] == two["predicted_ms"] / two["measured_ms"][0]
    assert "measured_ms" not in four
    assert SimpleNamespace(**figures["links"]).latency_us > 0
