"""`PeerCollectives`: the library's, but that small sums go through the GPUs' memory directly.

NCCL's all-reduce of a decode step's few rows takes several times as long as their bytes take on NVLink,
and a step has two a layer. GPUs of one host can write into each other's memory: see `peer_kernel` and,
for more rows, `peer_two_shot`.
"""

import hashlib
import os
from itertools import count
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import triton
import triton.language as tl
from torch import Tensor

from yaie.backends.early import early_launch, starts_early
from yaie.core.contracts.ranks import Collectives
from yaie.core.errors import RankError
from yaie.worker.parallel.peer_kernel import BLOCK, UNIT, one_shot_kernel
from yaie.worker.parallel.peer_two_shot import PART, two_shot_kernel

FEW_BYTES = 768 << 10
"""That one-shot may send from a rank to all others; what is more goes in two shots."""
MOST_BYTES = 8 << 20
"""Of a tensor. A larger one is a matter of bandwidth, which NCCL uses better."""
CAPACITY = FEW_BYTES // UNIT
_HOST = Path("/proc/sys/kernel/random/boot_id")
_TYPES = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16, torch.float32: tl.float32}
_names = count()


def share_a_host(library: Collectives, device: torch.device) -> bool:
    """Whether all ranks of a group are on one host, whose GPUs reach each other's memory.

    The same answer on all of them, which must ask together.
    """
    host = _HOST.read_bytes() if _HOST.exists() else os.uname().nodename.encode()
    number = int.from_bytes(hashlib.sha256(host).digest()[:7], "big")
    others = [
        other for other in range(torch.cuda.device_count()) if other != torch.cuda.current_device()
    ]
    reached = sum(torch.cuda.can_device_access_peer(device, other) for other in others)
    mine = torch.tensor([number, int(reached == len(others) > 0)], device=device)
    answers = library.all_gather(mine)
    return bool((answers[:, 0] == number).all() and answers[:, 1].all())


def open_memory(
    store: Any, rank: int, size: int, shape: tuple[int, ...], dtype: torch.dtype, device: Any
) -> tuple[str, Tensor, list[int]]:
    """(name of the group, tensor of this rank, addresses of every rank's): memory that all of a group's
    GPUs may write to. store: of torch.distributed, through which they find each other. Every rank calls
    this. Raises RuntimeError."""
    from torch._C._distributed_c10d import _register_process_group, _SymmetricMemory

    # Memory that one address reaches on all GPUs at once is not used here, and not asked for.
    os.environ.setdefault("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1")
    name: Any = f"yaie-peers-{next(_names)}"
    own = FromZero(store)
    group = dist.ProcessGroup(own, rank, size)  # found by its name, for its store
    group._set_group_name(name)
    _register_process_group(name, group)
    strides = torch.empty(shape, device="meta").stride()
    tensor = _SymmetricMemory.empty_strided_p2p(shape, strides, dtype, device, name)
    handle = _SymmetricMemory.rendezvous(tensor, name)
    return name, tensor, list(handle.buffer_ptrs)


class FromZero(dist.Store):
    """A store in which the keys of `name/number/rank` are numbered from 0 on.

    PyTorch numbers its exchanges of addresses by process, from the first one on. A process whose second
    engine this is would wait for ever under numbers that its new ranks never come to.
    """

    def __init__(self, store: Any) -> None:
        super().__init__()
        self._store = store
        self._first: int | None = None

    def set(self, key: str, value: Any) -> None:
        self._store.set(self._own(key), value)

    def get(self, key: str) -> bytes:
        return self._store.get(self._own(key))

    def wait(self, keys: list[str], *timeout: Any) -> None:
        self._store.wait([self._own(key) for key in keys], *timeout)

    def _own(self, key: str) -> str:
        name, number, rank = key.rsplit("/", 2)
        if self._first is None:
            self._first = int(number)
        return f"{name}/{int(number) - self._first}/{rank}"


class PeerCollectives:
    """See `yaie.core.contracts.ranks.Collectives`. Sums are float32 inside, rank by rank."""

    def __init__(self, library: Collectives, store: Any, device: torch.device) -> None:
        """library: for what is large, and to gather. store: of torch.distributed, through which this
        group's ranks find each other's memory. Raises RankError if they do not."""
        self.rank, self.size = library.rank, library.size
        self._library = library
        programs = triton.cdiv(MOST_BYTES // UNIT, self.size * PART)
        self._start = 2 * self.size * CAPACITY * 2  # of what two-shot uses, in units
        self._share = programs * PART
        flags = programs * 2 * self.size * 4 // UNIT
        units = self._start + 2 * self.size * self._share + flags
        try:
            _, self._buffer, addresses = open_memory(
                store, self.rank, self.size, (units,), torch.int64, device
            )
        except RuntimeError as error:
            reason = str(error).partition("\n")[0]
            raise RankError(
                f"the GPUs' memory could not be shared between ranks: {reason}. With --collectives "
                "library they do without"
            ) from error
        self._buffer.zero_()
        self._addresses = torch.tensor(addresses, dtype=torch.int64, device=device)
        self._calls = torch.zeros(CAPACITY // BLOCK, dtype=torch.int32, device=device)
        self._two_shot_calls = torch.zeros(programs, dtype=torch.int32, device=device)
        # Of the host, which can write there at any time: a copy would wait behind kernels that wait.
        self._stop = torch.zeros(1, dtype=torch.int32, pin_memory=True)
        library.all_reduce(torch.zeros(1, device=device))  # all have made room
        torch.cuda.synchronize(device)

    def all_reduce(self, x: Tensor) -> Tensor:
        """See the contract. Written over x."""
        x = x.contiguous()
        if not self.takes(x):
            return self._library.all_reduce(x)
        self._sum(x)
        return x

    def all_gather(self, x: Tensor) -> Tensor:
        return self._library.all_gather(x)

    def abort(self) -> None:
        """Let no kernel wait any longer, on this rank: sums mean nothing from here on."""
        self._stop.fill_(1)

    def takes(self, x: Tensor) -> bool:
        """Whether a contiguous tensor is summed here rather than by the library."""
        return (
            x.dtype in _TYPES
            and 0 < x.nbytes <= MOST_BYTES
            and x.nbytes % UNIT == x.data_ptr() % UNIT == 0
        )

    def _sum(self, x: Tensor) -> None:
        if x.nbytes * (self.size - 1) <= FEW_BYTES:
            self.one_shot(x)
        else:
            self.two_shot(x)

    def one_shot(self, x: Tensor) -> Tensor:
        """`all_reduce` of at most FEW_BYTES: everything to everybody, in one trip."""
        words = x.view(-1).view(torch.int64)
        early = starts_early(x.device)
        one_shot_kernel[(triton.cdiv(len(words), BLOCK),)](
            words, self._addresses, self._calls, self._stop, len(words), RANK=self.rank,
            SIZE=self.size, CAPACITY=CAPACITY, BLOCK=BLOCK, dtype=_TYPES[x.dtype], EARLY=early,
            num_warps=4, **early_launch(early),
        )  # fmt: skip
        return x

    def two_shot(self, x: Tensor) -> Tensor:
        """`all_reduce` of at most MOST_BYTES: a part to each rank, and its sum back."""
        words = x.view(-1).view(torch.int64)
        early = starts_early(x.device)
        two_shot_kernel[(triton.cdiv(len(words), self.size * PART),)](
            words, self._addresses, self._two_shot_calls, self._stop, len(words), RANK=self.rank,
            SIZE=self.size, START=self._start, SHARE=self._share, PART=PART,
            dtype=_TYPES[x.dtype], EARLY=early, num_warps=PART // 64, **early_launch(early),
        )  # fmt: skip
        return x
