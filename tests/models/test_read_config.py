"""What is decided from a model's config alone: the length of its context, the dtype of its weights."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from yaie.models.loader import choose_dtype
from yaie.models.rope import max_context


@pytest.mark.parametrize(
    ("scaling", "longest"),
    [
        ({"factor": 8.0, "original_max_position_embeddings": 4096}, 32768),
        ({"factor": 2.0, "original_max_position_embeddings": 4096}, 10000),
        ({"factor": 4.0}, 40000),
        ({}, 10000),
    ],
    ids=["trained times factor", "stated is longer", "trained is stated", "no factor"],
)
def test_yarn_context_is_never_shorter_than_the_stated_one(
    scaling: dict[str, Any], longest: int
) -> None:
    config = SimpleNamespace(
        max_position_embeddings=10000, rope_parameters={"rope_type": "yarn", **scaling}
    )
    assert max_context(config, None) == longest


@pytest.mark.parametrize(
    ("asked", "device", "stored", "dtype"),
    [
        ("auto", "cuda", torch.float16, torch.float16),
        ("auto", "cuda", torch.float32, torch.float32),
        ("auto", "cuda", torch.bfloat16, torch.bfloat16),
        ("auto", "cuda", None, torch.bfloat16),
        ("auto", "cpu", torch.float16, torch.float32),
        ("float16", "cuda", torch.bfloat16, torch.float16),
        ("bfloat16", "cpu", torch.float32, torch.bfloat16),
    ],
)
def test_a_gpu_computes_in_the_checkpoints_dtype_unless_asked(
    asked: str, device: str, stored: torch.dtype | None, dtype: torch.dtype, tmp_path: Path
) -> None:
    config = SimpleNamespace(dtype=stored)
    assert choose_dtype(asked, config, torch.device(device), tmp_path) is dtype
