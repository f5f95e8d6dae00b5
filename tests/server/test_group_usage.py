"""How full the pool is of a model of which some layers have a window: by group, wherever it is shown."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.models.tiny import tiny_model
from tests.server.conftest import LiveServer, serving
from tests.server.paused import paused_before
from tests.server.test_metrics import samples, value
from yaie.engine.background import latencies
from yaie.engine.windows.grouped import GroupedCache
from yaie.server.logs import activity
from yaie.worker.windows import Held

NUM_BLOCKS, PROMPT = 80, 60


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    """Two of three layers see 24 tokens; blocks of 4."""
    from yaie.engine.llm_engine import LLMEngine

    settings: dict[str, Any] = {"num_blocks": NUM_BLOCKS, "block_size": 4, "token_budget": 16}
    folder = str(tiny_model("qwen2", tmp_path / "tiny-qwen2"))
    with serving(lambda: LLMEngine(model=folder, threads=1, **settings)) as live:
        yield live


def of_group(server: LiveServer, group: str) -> float:
    [found] = [
        sample.value
        for sample in samples(server)
        if sample.name == "yaie:kv_cache_group_usage_perc" and sample.labels["group"] == group
    ]
    return float(found)


def test_each_group_s_usage_is_told_and_the_fuller_one_as_vllm_s(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(latencies, "FRESH_SECONDS", 0.0)
    with paused_before(8, server, prompt=list(range(20, 20 + PROMPT)), max_tokens=9):
        cache = server.llm.machine_parts.cache
        assert isinstance(cache, GroupedCache)
        [request] = cache._requests.values()
        table, behind = cache.block_table(request), cache.windowed_table(request)
        held = [block for block in behind if block != behind[0]]  # the first is blank
        assert len(held) < len(behind) - 5
        num_windowed = server.llm.machine_parts.sizes.num_windowed_blocks - 1
        full, windowed = len(table) / NUM_BLOCKS, len(held) / num_windowed
        assert (of_group(server, "full"), of_group(server, "windowed")) == (full, windowed)
        assert value(server, "kv_cache_usage_perc") == max(full, windowed)
        assert full != windowed
        [load] = server.http.get("/get_load").json()
        assert load["num_tokens"] == len(table) * 4
        stats = server.llm.stats()
        told = f"KV pool {full:.1%} and {windowed:.1%} of windows, prefix hits"
        assert told in activity(stats, stats, 1.0)


def test_the_fuller_group_is_what_requests_wait_for() -> None:
    held = Held(24, 4, 12, 64, full=(0,), windowed=(1, 2))
    counts = {"windowed_total_blocks": 10, "total_blocks": 110}
    for used, behind, expected in ((12, 2, (0.2, 0.1, 0.2)), (92, 2, (0.9, 0.9, 0.2))):
        found = held.usages({**counts, "used_blocks": used, "windowed_used_blocks": behind})
        assert tuple(found.values()) == expected
