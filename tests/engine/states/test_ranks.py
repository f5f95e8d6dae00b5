"""A hybrid whose heads and channels are split over ranks in processes gives the tokens of one rank."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.engine.exact import Case, assert_empty, outputs, run
from tests.engine.states.test_drafts import DRAFTS, expect_some_right, guessing
from tests.engine.warm_ranks import warm_ranks
from tests.marks import nightly_but
from yaie.worker.sizing import slot_bytes

pytestmark = pytest.mark.slow
FEW: dict[str, Any] = {"num_blocks": 22, "max_num_seqs": 16, "watermark": 0.0}


@pytest.fixture(scope="module", autouse=True)
def _warm() -> Iterator[None]:
    with warm_ranks():
        yield


@pytest.mark.parametrize(
    "case", nightly_but(["qwen3_5"], ["qwen3_5", "lfm2"]), indirect=True, scope="module"
)
@pytest.mark.parametrize(
    "settings",
    nightly_but(
        ["drafts"], ["drafts", "chunks", "preempted", "preempted with drafts", "overlap", "library"]
    ),
)
def test_two_ranks_give_the_tokens_of_transformers(case: Case, settings: str) -> None:
    """Also from cached prefixes, whose states each rank has its part of."""
    more = {
        "drafts": DRAFTS,
        "chunks": {"token_budget": 24, "block_size": 4},
        "preempted": FEW,
        "preempted with drafts": {**FEW, **DRAFTS},
        "overlap": {"overlap": "on"},
        "library": {"collectives": "library", "prefix_caching": False},
    }[settings]
    with guessing(case):
        engine = case.engine(tensor_parallel=2, mine="none", **more)
    try:
        own = slot_bytes(engine.model.adapter.state_layers)
        told = f"{own / 1024:,.1f} KiB a request on each of 2 ranks, whatever its length"
        assert engine.info.states.startswith(told)
        assert engine.info.states.endswith(" MiB each)")
        requests = run(engine, case.prompts)
        assert outputs(requests) == case.expected
        if "num_blocks" in more:
            assert sum(request.num_preemptions for request in requests) >= 5
        elif settings != "library":
            again = run(engine, case.prompts)
            assert outputs(again) == case.expected
            assert max(request.num_cached_tokens for request in again) >= 64
        if "speculate" in more:
            expect_some_right(engine)
        assert_empty(engine)
    finally:
        engine.close()
