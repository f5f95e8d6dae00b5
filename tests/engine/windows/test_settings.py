"""Which models give blocks behind their windows back, what keeps them, and what is told of it."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from solutions.paged_cache import BlockManager, KVCacheManager
from tests.engine.warm_ranks import warm_ranks
from tests.learner import hand_in
from tests.models.tiny import tiny_model
from yaie import LLMEngine, SamplingParams
from yaie.core.batch import KVLayerSpec
from yaie.core.config import EngineConfig
from yaie.core.errors import KVPoolTooSmallError
from yaie.engine.handover.engine import DisaggregatedEngine
from yaie.engine.windows.blocks import takes_repeats
from yaie.engine.windows.cache import WindowedCache
from yaie.engine.windows.grouped import GroupedCache
from yaie.worker import sizing
from yaie.worker.windows import held_of

PARAMS = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True)
PROMPT = [(7 * at * at + 3 * at) % 251 + 3 for at in range(200)]

ONCE_IN_A_TABLE = """

from yaie.core.errors import BlockStateError

_share = BlockManager.share


def _shared(self, request_id, block_ids):
    there = [*self.get_physical_blocks(request_id), *block_ids]
    if len(set(there)) < len(there):
        raise BlockStateError("a block is in the table already")
    _share(self, request_id, block_ids)


BlockManager.share = _shared
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model("mistral", tmp_path_factory.mktemp("models") / "mistral")


def engine(folder: Path, **settings: Any) -> LLMEngine:
    return LLMEngine(
        **{"model": str(folder), "device": "cpu", "num_blocks": 64, "mine": "none", **settings}
    )


@pytest.mark.parametrize(
    ("family", "windows", "kind"),
    [
        ("mistral", [24, 24], WindowedCache),
        ("mistral-full", [None, None], KVCacheManager),
        ("qwen2", [None, 24, 24], GroupedCache),
        ("llama", [None, None], KVCacheManager),
    ],
)
def test_the_layers_windows_decide_what_becomes_of_blocks(
    family: str, windows: list[int | None], kind: type, tmp_path: Path
) -> None:
    one = engine(tiny_model(family, tmp_path / family))
    assert (list(one.model.adapter.windows) or [None, None]) == windows
    assert type(one.machine_parts.cache) is kind
    assert bool(one.info.windows) is any(windows)
    one.close()


def test_what_is_held_is_told_at_start(folder: Path) -> None:
    """512 tokens of a step and 23 before them are in 35 blocks at most; 4 KiB each."""
    one = engine(folder, token_budget=512)
    assert one.info.windows == (
        "24 keys a query: blocks behind them go back, and a request holds at most 35 (0.3 MiB) of the "
        "64 (0.5 MiB) of the longest text"
    )
    assert (one.info.text_tokens, one.info.full_texts) == (1024, 1)
    one.close()


@pytest.mark.slow
def test_ranks_say_that_it_is_one_s_share(folder: Path) -> None:
    """Each has half of the heads."""
    with warm_ranks():
        one = engine(folder, token_budget=512, tensor_parallel=2)
        one.close()
    assert "35 (0.1 MiB on rank 0) of the 64 (0.2 MiB on rank 0) of" in one.info.windows


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"preemption": "swap", "swap_space": 0.01}, "preemption is swap, which moves texts whole"),
        ({"max_model_len": 24}, ""),
    ],
    ids=str,
)
def test_blocks_are_kept(folder: Path, settings: dict[str, Any], why: str) -> None:
    one = engine(folder, **settings)
    told = f"24 keys a query; all blocks are kept: {why}" if why else ""
    assert one.info.windows == told
    assert isinstance(one.machine_parts.cache, KVCacheManager)
    assert one.info.text_tokens == one.pool_tokens
    one.close()


def test_a_handover_keeps_blocks() -> None:
    assert DisaggregatedEngine.keeps_blocks


def test_the_pool_is_sized_for_what_is_held(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizing, "free_memory", lambda device: 2**40)
    one = engine(folder, num_blocks=None, max_num_seqs=3, token_budget=64)
    assert one.machine_parts.sizes.num_blocks == 3 * (7 + 1)
    assert one.info.full_texts == 3
    one.close()


def test_a_text_is_refused_by_a_pool_without_room_for_its_window(folder: Path) -> None:
    small = engine(folder, num_blocks=5, token_budget=64)
    assert small.text_tokens == 64
    with pytest.raises(KVPoolTooSmallError, match="the KV pool holds 64 in all"):
        small.add_request(PROMPT, PARAMS)
    small.close()


def test_lab_3_takes_a_block_into_a_table_twice() -> None:
    assert takes_repeats(BlockManager(4, 1, 0))


@pytest.mark.parametrize(
    ("extra", "told"),
    [("", "on your BlockManager"), (ONCE_IN_A_TABLE, "on its own BlockManager")],
    ids=["with the capability", "without"],
)
def test_a_learners_parts_serve_as_far_as_they_can(
    folder: Path, labs: Path, extra: str, told: str
) -> None:
    hand_in(labs, "paged_cache", extra)
    hand_in(labs, "radix_tree")
    hand_in(labs, "scheduler")
    answers = []
    for mine in ("none", "paged_cache,radix_tree,scheduler"):
        one = engine(folder, mine=mine, num_blocks=12, token_budget=32)
        (request,) = one.add_request(PROMPT, PARAMS)
        while one.has_work:
            one.step()
            one.check()
        answers.append(request.output_token_ids)
        assert one.stats()["given_back_blocks"] > 5
        is_mine = mine != "none"
        assert one.info.windows.endswith(f"; tables are the engine's, {told}") is is_mine
        module = type(one.machine_parts.blocks).__module__.split(".")[0]
        assert module == ("labs" if is_mine and not extra else "solutions")
        one.close()
    assert answers[0] == answers[1]


def test_a_learners_lab_3_serves_dense_models_without_the_capability(
    labs: Path, tmp_path: Path
) -> None:
    hand_in(labs, "paged_cache", ONCE_IN_A_TABLE)
    one = engine(tiny_model("llama", tmp_path / "llama"), mine="paged_cache")
    (request,) = one.add_request(PROMPT, PARAMS)
    while one.has_work:
        one.step()
        one.check()
    assert request.failure is None
    assert type(one.machine_parts.blocks).__module__.split(".")[0] == "labs"
    one.close()


def test_it_can_be_watched(folder: Path) -> None:
    """Its tree has places for entries, which are no blocks: nothing is told of it."""
    from yaie.engine.watching.recorder import Recorder

    one = engine(folder, num_blocks=24, token_budget=32)
    recorder = Recorder(one)
    requests = one.add_request(PROMPT, PARAMS)
    recorder.start(requests)
    lines = recorder.lines()
    while one.has_work:
        lines += recorder.stepped(one.step())
    assert len(lines) > 3
    one.close()


def test_the_books_figure() -> None:
    """Mistral 7B at 32,768 tokens in "MLA and sparse attention": 32 layers of 8 heads of 128 numbers."""
    adapter: Any = SimpleNamespace(
        windows=[4096] * 32, state_layers=(), device=torch.device("cuda")
    )
    held = held_of(EngineConfig(), adapter, 32_768)
    assert held is not None
    assert (held.most, held.whole) == (513, 2048)
    layers = [KVLayerSpec(8, 128)] * 32
    each = sizing.block_bytes(layers, 16, torch.bfloat16)
    assert round(each * held.most / 2**30, 1) == 1.0
    assert each * held.whole == 4 * 2**30
