"""How large the KV pool is when `num_blocks` does not say it."""

from typing import Any

import pytest
import torch

from yaie.core.config import EngineConfig
from yaie.core.errors import ConfigError
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


@pytest.mark.parametrize(
    ("device", "settings", "blocks_a_slot", "seats", "checkpoints"),
    [
        (CPU, {}, 1, 2 * 149, 60),  # 300 of the 600 are for requests, 60 for prefixes
        (GPU, {}, 1, 2 * 256, 180),
        (GPU, {"max_num_seqs": 4}, 1, 8, 16),
        (GPU, {"max_num_seqs": 4, "prefix_caching": False}, 1, 8, 0),
        (CPU, {"kv_memory_share": 1.0}, 100, 2 * 4, 2),
        (CPU, {"num_blocks": 5}, 100, 2 * 1, 0),
    ],
)
def test_states_take_half_of_the_share_and_those_of_prefixes_a_tenth(
    device: torch.device, settings: dict[str, Any], blocks_a_slot: int, seats: int, checkpoints: int
) -> None:
    config, size = EngineConfig(**settings), blocks_a_slot * BLOCK
    assert sizing.num_state_seats(config, size, device) == seats
    assert sizing.num_state_checkpoints(config, size, seats, device) == checkpoints


def test_a_state_too_large_for_a_single_request_is_told() -> None:
    with pytest.raises(ConfigError, match=r"take 303\.0 MiB and 300\.0 MiB may be used") as caught:
        sizing.num_state_seats(EngineConfig(), 101 * BLOCK, CPU)
    assert caught.value.param == "kv_memory_share"


def test_a_last_block_that_is_not_full_counts_whole() -> None:
    config = EngineConfig(max_num_seqs=4)
    assert sizing.num_device_blocks(config, BLOCK, LONGEST + 1, CPU) == 4 * 17
    assert sizing.num_device_blocks(config, BLOCK, LONGEST - 1, CPU) == 4 * 16


def test_a_cpu_gives_a_long_context_no_more_than_its_share() -> None:
    assert sizing.num_device_blocks(EngineConfig(), BLOCK, 100 * LONGEST, CPU) == 600
