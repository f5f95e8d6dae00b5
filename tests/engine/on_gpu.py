"""An engine on a GPU for a case whose tokens are known."""

from typing import Any

import pytest

from tests.engine.exact import Case, assert_empty, outputs, run
from yaie import LLMEngine
from yaie.core.errors import KernelError
from yaie.cuda.nvcc import find_nvcc

FEW: dict[str, Any] = {
    "device": "cuda",
    "mine": "none",
    "dtype": "float32",
    "max_num_seqs": 24,
    "token_budget": 256,
    "num_blocks": 512,
}
"""No more sizes of graphs than a case's prompts need."""


def engine_on_gpu(case: Case, **settings: Any) -> LLMEngine:
    """Skips the test where a backend has no compiler."""
    try:
        return case.engine(**{**FEW, **settings})
    except KernelError as error:
        if find_nvcc() is not None:
            raise
        pytest.skip(error.message)


def expect_twice_on_gpu(case: Case, **settings: Any) -> None:
    """The known tokens, all requests together, and again with their prefixes cached."""
    engine = engine_on_gpu(case, **settings)
    for _ in range(2):
        assert outputs(run(engine, case.prompts)) == case.expected
    assert_empty(engine)
    engine.close()
