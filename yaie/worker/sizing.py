"""How large the KV pool is, and the host pool beside it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch

from yaie.core.batch import KVLayerSpec
from yaie.core.config import EngineConfig
from yaie.core.contracts.states import StateLayerSpec
from yaie.core.errors import ConfigError
from yaie.worker.windows import Held

CPU_SHARE = 0.3
GPU_SHARE = 0.9
"""Of what is free once the weights are there: for steps, graphs and the pool. The rest is for what does
not tell how much it takes, libraries' workspaces above all."""
GRAPH_SHARE = 0.03
"""Of what is free, at most, for CUDA graphs."""
INT8_SCALE = torch.bfloat16.itemsize
STATE_SHARE = 0.5
"""Of that share, at most, for states of requests."""
CHECKPOINT_SHARE = 0.1
"""Likewise, for states behind cached prefixes."""
MOST_UNSETTLED = 8
"""Drafts of a request in a step, where states take part and the configuration fixes no number."""
WINDOW_SHARE = 0.5
"""Of the pool, at most, for the layers with a window, where others see all of a text."""
CPU_SEQUENCES = 16
"""Of full length: more of them at once is slow on a CPU, whose memory other programs want too."""


def block_bytes(
    layers: Sequence[KVLayerSpec], block_size: int, dtype: torch.dtype, *, int8: bool = False
) -> int:
    """Bytes of one block: K and V of `block_size` tokens in every layer. int8: a byte for each number,
    and two for the scale of each head."""

    def head(layer: KVLayerSpec) -> int:
        return layer.head_dim + INT8_SCALE if int8 else layer.head_dim * dtype.itemsize

    return block_size * sum(2 * layer.num_kv_heads * head(layer) for layer in layers)


def num_device_blocks(
    config: EngineConfig,
    bytes_per_block: int,
    max_model_len: int,
    device: torch.device,
    needed: int = 0,
) -> int:
    """Blocks in the pool: as configured, else what a share of free memory holds, but no more than
    `max_num_seqs` sequences of full length could fill; on a CPU, CPU_SEQUENCES of them unless the share
    is configured.

    needed: bytes of that share which steps and graphs take, see `memory_of_steps`.
    Raises ConfigError if not even one block fits.
    """
    if config.num_blocks is not None:
        return config.num_blocks
    budget = _budget(config, device, needed)
    useful = _sequences(config, device) * -(-max_model_len // config.block_size)
    num_blocks = min(budget // bytes_per_block, useful)
    if num_blocks < 1:
        raise ConfigError(
            f"no memory for the KV pool: one block takes {bytes_per_block / 2**20:.1f} MiB and "
            f"{max(0, budget) / 2**20:.1f} MiB may be used; free some, raise kv_memory_share, or let a "
            "step compute less (token_budget)",
            param="kv_memory_share",
        )
    return num_blocks


def num_blocks_of_groups(
    config: EngineConfig,
    bytes_per_block: tuple[int, int],
    held: Held,
    device: torch.device,
    needed: int = 0,
) -> tuple[int, int]:
    """Blocks of the layers that see all of a text, and of those with a window, from the memory that one
    pool would take.

    Each request that may run at once gets its window, or as many do as WINDOW_SHARE holds, one at least;
    all that is left is for the full group. No more blocks are windowed than there would be of both. With
    a configured number the full group has that many.

    bytes_per_block: of both. held: what a request holds. needed: see `num_device_blocks`.
    """
    num_seqs = _sequences(config, device)
    wanted = num_seqs * held.settled + -(-held.unsettled // config.block_size) + 1
    full, windowed = bytes_per_block
    if config.num_blocks is not None:
        return config.num_blocks, held.num_blocks or min(wanted, config.num_blocks + 1)
    longest = held.whole * config.block_size
    alike = num_device_blocks(config, full + windowed, longest, device, needed)
    budget = _budget(config, device, needed)
    count = max(int(WINDOW_SHARE * budget) // windowed, held.most + 1)
    count = max(2, min(count, wanted, alike))
    left = (budget - count * windowed) // full
    return max(1, min(left, num_seqs * held.whole)), count


def slot_bytes(layers: Sequence[StateLayerSpec]) -> int:
    """Bytes that the layers with a state keep of one request, however long it is."""
    return sum(one.num_bytes for layer in layers for one in layer)


def unsettled_bytes(layers: Sequence[StateLayerSpec], num_seqs: int, num_drafts: int) -> int:
    """Bytes that a step takes beside its own where so many requests have so many drafts each: what each
    token brings into every state, which comes from a convolution and, if another state follows, comes
    out of it; and copies of one layer's states."""
    row = sum(len(layer) * layer[0].shape[0] * layer[0].dtype.itemsize for layer in layers)
    state = max(one.num_bytes for layer in layers for one in layer)
    return num_seqs * ((1 + num_drafts) * row + state)


def num_state_seats(config: EngineConfig, bytes_per_slot: int, device: torch.device) -> int:
    """Seats of a model that keeps states: two for each request that may run at once, which are
    `max_num_seqs`, or fewer where their states would take more than STATE_SHARE.

    Raises ConfigError if not even one may run.
    """
    budget = int(free_memory(device) * _share(config, device) * STATE_SHARE)
    num_seqs = min(config.max_num_seqs, (budget // bytes_per_slot - 1) // 2)
    if num_seqs < 1:
        raise ConfigError(
            f"no memory for the states of a request: two of them and a spare take "
            f"{3 * bytes_per_slot / 2**20:.1f} MiB and {budget / 2**20:.1f} MiB may be used; free some, "
            "or raise kv_memory_share",
            param="kv_memory_share",
        )
    return 2 * num_seqs


def num_state_checkpoints(
    config: EngineConfig, bytes_per_slot: int, num_seats: int, device: torch.device
) -> int:
    """States that are kept behind cached prefixes: as many as CHECKPOINT_SHARE holds, but no more than
    twice as many as there are seats."""
    if not config.prefix_caching:
        return 0
    budget = int(free_memory(device) * _share(config, device) * CHECKPOINT_SHARE)
    return min(budget // bytes_per_slot, 2 * num_seats)


@contextmanager
def peak_memory(device: torch.device) -> Iterator[Callable[[], int]]:
    """Yields what tells the most bytes that PyTorch took from the GPU since then, beyond those before.

    Pieces of memory that no tensor fills count as well: later steps will have such pieces, too.
    """
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_reserved(device)
    yield lambda: torch.cuda.max_memory_reserved(device) - before


def num_host_blocks(config: EngineConfig, bytes_per_block: int) -> int:
    """Blocks of the host pool that preempted requests swap to; each rank has its part of them."""
    if config.preemption != "swap":
        return 0
    return int(config.swap_space * 2**30) // config.num_ranks // bytes_per_block


def _budget(config: EngineConfig, device: torch.device, needed: int) -> int:
    """Bytes for the pool. Ranks have a GPU each, and share the memory of a CPU."""
    sharers = 1 if device.type == "cuda" else config.num_ranks
    return int(free_memory(device) * _share(config, device)) // sharers - needed


def _share(config: EngineConfig, device: torch.device) -> float:
    if config.kv_memory_share is not None:
        return config.kv_memory_share
    return GPU_SHARE if device.type == "cuda" else CPU_SHARE


def _sequences(config: EngineConfig, device: torch.device) -> int:
    """Sequences of full length that the pool needs to hold at most."""
    if device.type == "cpu" and config.kv_memory_share is None:
        return min(config.max_num_seqs, CPU_SEQUENCES)
    return config.max_num_seqs


def free_memory(device: torch.device) -> int:
    """Bytes that nobody has taken."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
        free, _ = torch.cuda.mem_get_info(device)
        return free
    import psutil

    return int(psutil.virtual_memory().available)
