"""A model of which some layers have a window, its heads split over ranks: blocks go back on each."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.engine.exact import Case, assert_empty, outputs
from tests.engine.warm_ranks import warm_ranks
from tests.engine.windows.test_grouped import windowed_blocks
from tests.engine.windows.test_identity import given_back, long_run
from tests.marks import nightly_but
from yaie.engine.windows.grouped import GroupedCache

pytestmark = pytest.mark.slow
SETTINGS: dict[str, dict[str, Any]] = {
    "chunks": {"token_budget": 40, "max_num_seqs": 6},
    "drafts": {"speculate": "ngram", "token_budget": 64},
    "overlap": {"overlap": "on"},
    "library": {"collectives": "library", "prefix_caching": False, "block_size": 8},
}


@pytest.fixture(scope="module", autouse=True)
def _warm() -> Iterator[None]:
    with warm_ranks():
        yield


@pytest.mark.parametrize(
    "case", nightly_but(["gemma3"], ["gemma3", "gpt_oss"]), indirect=True, scope="module"
)
@pytest.mark.parametrize("name", nightly_but(["chunks"], SETTINGS))
def test_two_ranks_give_the_tokens_of_transformers(long_texts: Case, name: str) -> None:
    """Twice, the second time from what is cached, in fewer blocks than would be kept."""
    with windowed_blocks(60):
        engine = long_texts.engine(tensor_parallel=2, mine="none", num_blocks=256, **SETTINGS[name])
    try:
        assert isinstance(engine.machine_parts.cache, GroupedCache)
        assert "blocks behind them go back" in engine.info.windows
        assert "MiB on rank 0)" in engine.info.windows
        for _ in range(2):
            assert outputs(long_run(engine, long_texts.prompts)) == long_texts.expected
        assert given_back(engine) > 50
        assert_empty(engine)
    finally:
        engine.close()
