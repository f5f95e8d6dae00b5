"""A model of which some layers have a window, its heads split over ranks: blocks go back on each."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.engine.exact import Case
from tests.engine.warm_ranks import warm_ranks
from tests.engine.windows.on_ranks import expect_tokens_and_blocks_back
from tests.engine.windows.test_grouped import windowed_blocks
from tests.marks import nightly_but

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
    """In fewer blocks than would be kept."""
    with windowed_blocks(60):
        engine = long_texts.engine(tensor_parallel=2, mine="none", num_blocks=256, **SETTINGS[name])
    expect_tokens_and_blocks_back(engine, long_texts)
