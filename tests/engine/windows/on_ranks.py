"""What a model with windows does on tensor-parallel ranks, whatever carries their tensors."""

from tests.engine.exact import Case, assert_empty, outputs
from tests.engine.windows.test_identity import given_back, long_run
from yaie.engine.llm_engine import LLMEngine
from yaie.engine.windows.grouped import GroupedCache


def expect_tokens_and_blocks_back(engine: LLMEngine, texts: Case) -> None:
    """The tokens of transformers twice, which is from what is cached where there is a cache. Closes the
    engine."""
    try:
        assert isinstance(engine.machine_parts.cache, GroupedCache)
        assert "blocks behind them go back" in engine.info.windows
        assert "MiB on rank 0)" in engine.info.windows
        for _ in range(2):
            assert outputs(long_run(engine, texts.prompts)) == texts.expected
        assert given_back(engine) > 50
        assert_empty(engine)
    finally:
        engine.close()
