"""How many blocks each group of layers gets, what keeps blocks, and what is told of it."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from solutions.paged_cache import KVCacheManager
from tests.engine.windows.test_settings import ONCE_IN_A_TABLE, PARAMS, PROMPT, engine
from tests.learner import faults_of, hand_in, hand_in_faulty
from tests.models.tiny import tiny_model
from yaie import LLMEngine
from yaie.core.batch import KVLayerSpec
from yaie.core.config import EngineConfig
from yaie.core.errors import ConfigError
from yaie.engine.watching.recorder import Recorder
from yaie.engine.windows.grouped import GroupedCache
from yaie.worker import sizing
from yaie.worker.windows import Held, held_of

CPU = torch.device("cpu")
FULL, WINDOWED = 8 << 10, 16 << 10
"""Bytes of a block of the tiny Gemma 3: one layer and two."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model("gemma3", tmp_path_factory.mktemp("models") / "gemma3")


def held(**changes: Any) -> Held:
    """Of texts of 64 blocks and a window of 24 keys, with steps of 64 tokens."""
    adapter: Any = SimpleNamespace(windows=[24, None, 24], state_layers=(), device=CPU)
    one = held_of(EngineConfig(token_budget=64, **changes), adapter, 1024)
    assert one is not None
    return one


def counts(monkeypatch: pytest.MonkeyPatch, budget: int, **settings: Any) -> tuple[int, int]:
    monkeypatch.setattr(sizing, "free_memory", lambda device: budget)
    config = EngineConfig(**{"kv_memory_share": 1.0, "max_num_seqs": 4, **settings})
    return sizing.num_blocks_of_groups(config, (FULL, WINDOWED), held(), CPU)


def test_layers_and_the_widest_window_are_those_of_the_adapter() -> None:
    one = held()
    assert (one.full, one.windowed, one.window, one.unsettled) == ((1,), (0, 2), 24, 64)
    assert (one.most, one.settled, one.whole) == (7, 11, 64)
    assert [one.num_texts(count) for count in (7, 8, 26, 27, 49)] == [0, 1, 3, 3, 6]


def test_a_window_as_long_as_the_longest_text_is_none() -> None:
    adapter: Any = SimpleNamespace(windows=[24, 1024], state_layers=(), device=CPU)
    one = held_of(EngineConfig(), adapter, 1024)
    assert one is not None
    assert (one.full, one.windowed) == ((1,), (0,))
    adapter.windows = [1024, None]
    assert held_of(EngineConfig(), adapter, 1024) is None


def test_with_enough_memory_every_request_has_its_window_and_its_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    windows = 4 * 11 + 4 + 1
    assert counts(monkeypatch, 2**40) == (4 * 64, windows)
    left = 100
    assert counts(monkeypatch, windows * WINDOWED + left * FULL + 5) == (left, windows)


def test_windows_take_half_of_the_memory_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    assert counts(monkeypatch, 60 * WINDOWED) == (60, 30)
    full, windowed = counts(monkeypatch, 60 * WINDOWED, max_num_seqs=2)
    assert (full, windowed) == (2 * (60 - windowed), 2 * 11 + 4 + 1)


def test_the_window_of_one_request_is_there_before_that(monkeypatch: pytest.MonkeyPatch) -> None:
    assert counts(monkeypatch, 13 * WINDOWED) == (10, 8)


def test_windowed_blocks_are_no_more_than_if_each_group_had_as_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert counts(monkeypatch, 5 * (FULL + WINDOWED)) == (5, 5)
    with pytest.raises(ConfigError, match="no memory for the KV pool"):
        counts(monkeypatch, FULL + WINDOWED - 1)


def test_a_configured_number_is_that_of_the_full_group(monkeypatch: pytest.MonkeyPatch) -> None:
    assert counts(monkeypatch, 0, num_blocks=200) == (200, 49)
    assert counts(monkeypatch, 0, num_blocks=30) == (30, 31)


def test_records_say_how_full_each_group_is(folder: Path) -> None:
    """For `yaie top`; those of any other model do not."""
    one = engine(folder, max_num_seqs=2, token_budget=64)
    one.add_request(PROMPT, PARAMS)
    recorder = Recorder(one)
    recorder.start([])
    one.step()
    stats = recorder._stats({})
    full, windowed = stats["full_kv_usage"], stats["windowed_kv_usage"]
    assert 0 < full == one.stats()["full_kv_usage"]
    assert stats["kv_usage"] == max(full, windowed)
    dense = LLMEngine(num_blocks=16, mine="none", device="cpu")
    assert "full_kv_usage" not in Recorder(dense)._stats({})


def test_both_groups_blocks_are_told_at_start(folder: Path) -> None:
    one = engine(folder, max_num_seqs=2, token_budget=64)
    sizes = one.machine_parts.sizes
    assert (sizes.bytes_per_block, sizes.bytes_per_windowed_block) == (FULL, WINDOWED)
    assert one.info.windows == (
        "24 keys a query in 2 of 3 layers: blocks behind them go back. The others have 64 blocks (0.5 "
        "MiB), these 27 blocks (0.4 MiB); 64 for all would take 0.6 MiB more"
    )
    assert (one.info.text_tokens, one.info.full_texts) == (1024, 1)
    assert one.stats()["total_blocks"] == 27 - 1 + 64
    one.close()


@pytest.mark.parametrize(
    ("settings", "why"),
    [({"preemption": "swap", "swap_space": 0.01}, "preemption is swap, which moves texts whole")],
    ids=str,
)
def test_blocks_are_kept(folder: Path, settings: dict[str, Any], why: str) -> None:
    one = engine(folder, **settings)
    assert one.info.windows == f"24 keys a query in 2 of 3 layers; all blocks are kept: {why}"
    assert type(one.machine_parts.cache) is KVCacheManager
    assert one.info.text_tokens == one.pool_tokens
    one.close()


def test_stages_of_a_pipeline_keep_blocks() -> None:
    assert held(tensor_parallel=2).kept == ""
    staged = held(pipeline_parallel=2).kept
    assert staged == "the stages of a pipeline have one table for all layers"


@pytest.mark.parametrize("extra", ["", ONCE_IN_A_TABLE], ids=["with the capability", "without"])
def test_a_learners_parts_serve_both_groups_as_far_as_they_can(
    folder: Path, labs: Path, extra: str
) -> None:
    """The manager of the full group is the learner's in any case."""
    hand_in(labs, "paged_cache", extra)
    hand_in(labs, "radix_tree")
    hand_in(labs, "scheduler")
    answers = []
    for mine in ("none", "paged_cache,radix_tree,scheduler"):
        one = engine(folder, mine=mine, token_budget=32, max_num_seqs=2)
        (request,) = one.add_request(PROMPT, PARAMS)
        while one.has_work:
            one.step()
            one.check()
        answers.append(request.output_token_ids)
        assert one.stats()["given_back_blocks"] > 5
        cache: Any = one.machine_parts.cache
        assert isinstance(cache, GroupedCache)
        kinds = [
            type(part).__module__.split(".")[0] for part in (cache._full, cache.windowed_blocks)
        ]
        is_mine = mine != "none"
        windowed = "labs" if is_mine and not extra else "solutions"
        assert kinds == ["labs" if is_mine else "solutions", windowed]
        assert one.info.windows.endswith("on its own BlockManager") is (is_mine and bool(extra))
        one.close()
    assert answers[0] == answers[1]


def test_after_a_part_failed_both_groups_have_as_many_blocks_as_before(
    folder: Path, labs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand_in_faulty(labs, "sampler", "Sampler.sample")
    monkeypatch.setattr(sizing, "free_memory", lambda device: 60 * WINDOWED)
    settings = {"num_blocks": None, "kv_memory_share": 1.0, "max_num_seqs": 4, "token_budget": 64}
    one = engine(folder, mine="sampler", **settings)
    sizes = one.machine_parts.sizes
    assert (sizes.num_blocks, sizes.num_windowed_blocks) == (60, 30)
    answers = []
    for fails in (True, False):
        (request,) = one.add_request(PROMPT, PARAMS)
        one.step()
        if fails:
            faults_of("sampler").append(IndexError("boom"))
        while one.has_work:
            one.step()
            one.check()
        answers.append(request.failure)
    assert answers[0] is not None
    assert answers[1] is None
    assert one.machine_parts.sizes == sizes
    one.close()


def test_it_can_be_watched(folder: Path) -> None:
    """What is told is of the full group."""
    from yaie.engine.watching.recorder import Recorder

    one = engine(folder, token_budget=32)
    recorder = Recorder(one)
    requests = one.add_request(PROMPT, PARAMS)
    recorder.start(requests)
    lines = recorder.lines()
    while one.has_work:
        lines += recorder.stepped(one.step())
    assert len(lines) > 3
    one.close()


def test_the_books_figure() -> None:
    """Gemma 3 4B at 32,768 tokens in "MLA and sparse attention": 29 of 34 layers with a window of 1,024,
    4 heads of 256 numbers."""
    windows = [None if layer % 6 == 5 else 1024 for layer in range(34)]
    adapter: Any = SimpleNamespace(windows=windows, state_layers=(), device=torch.device("cuda"))
    one = held_of(EngineConfig(), adapter, 32_768)
    assert one is not None
    assert (len(one.full), len(one.windowed), one.whole) == (5, 29, 2048)
    each = [
        sizing.block_bytes([KVLayerSpec(4, 256)] * len(group), 16, torch.bfloat16)
        for group in (one.full, one.windowed)
    ]
    assert round(sum(each) * one.whole / 2**30, 2) == 4.25
    assert round((each[0] * one.whole + each[1] * one.settled) / 2**30, 2) == 0.75
