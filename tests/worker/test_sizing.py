"""How large the KV pool is when `num_blocks` does not say it."""

from typing import Any

import pytest
import torch

from yaie.core.config import EngineConfig
from yaie.worker import sizing

CPU, GPU = torch.device("cpu"), torch.device("cuda")
BLOCK = 2**20
LONGEST = 256  # 16 blocks of 16


@pytest.fixture(autouse=True)
def free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizing, "free_memory", lambda device: 2000 * BLOCK)


@pytest.mark.parametrize(
    ("device", "settings", "expected"),
    [
        (CPU, {}, 16 * 16),
        (CPU, {"max_num_seqs": 4}, 4 * 16),
        (CPU, {"kv_memory_share": 0.3}, 600),
        (CPU, {"kv_memory_share": 1.0, "max_num_seqs": 100}, 100 * 16),
        (GPU, {}, 1800),
        (GPU, {"max_num_seqs": 100}, 100 * 16),
        (CPU, {"num_blocks": 12345}, 12345),
    ],
)
def test_default_is_a_share_of_memory_and_on_a_cpu_16_sequences_at_most(
    device: torch.device, settings: dict[str, Any], expected: int
) -> None:
    config = EngineConfig(**settings)
    assert sizing.num_device_blocks(config, BLOCK, LONGEST, device) == expected


def test_a_last_block_that_is_not_full_counts_whole() -> None:
    config = EngineConfig(max_num_seqs=4)
    assert sizing.num_device_blocks(config, BLOCK, LONGEST + 1, CPU) == 4 * 17
    assert sizing.num_device_blocks(config, BLOCK, LONGEST - 1, CPU) == 4 * 16


def test_a_cpu_gives_a_long_context_no_more_than_its_share() -> None:
    assert sizing.num_device_blocks(EngineConfig(), BLOCK, 100 * LONGEST, CPU) == 600
