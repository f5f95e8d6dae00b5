"""`MemoryKernels`: what `store.cu` and `blocks.cu` do, called with tensors.

Given: it turns shapes into counts of bytes. All that can be got wrong about threads and memory stands in
the `.cu` files. `naive.py` has the same methods on the kernels of `naive.cu`.
"""

from pathlib import Path

import torch
from torch import Tensor

from yaie.cuda.library import CudaLibrary
from yaie.cuda.tables import AddressTable

LIBRARY = CudaLibrary(Path(__file__).parent)


class MemoryKernels:
    """See `yaie.core.contracts.kernels.MemoryKernels`."""

    def __init__(self) -> None:
        self._tables: dict[tuple[int, ...], tuple[AddressTable, int, int]] = {}

    # ANCHOR: store_kv
    def store_kv(
        self, k: Tensor, v: Tensor, key_blocks: Tensor, value_blocks: Tensor, slot_mapping: Tensor
    ) -> None:
        """Store k, v [T, kv_heads, d] in the slots [T] (int64); a negative slot stores nothing."""
        number = k.element_size()
        LIBRARY.call(
            "store_kv",
            rows(k),
            rows(v),
            whole(key_blocks),
            whole(value_blocks),
            slot_mapping,
            len(slot_mapping),
            k.shape[1:].numel() * number,
            k.stride(0) * number,
            v.stride(0) * number,
        )

    # ANCHOR_END: store_kv

    def gather(self, blocks: Tensor, block_tables: Tensor) -> Tensor:
        """The blocks of `block_tables` [n, m] (int32), joined: [n, m * block_size, ...]."""
        n, m = block_tables.shape
        out = blocks.new_empty(n, m * blocks.shape[1], *blocks.shape[2:])
        tables = block_tables.contiguous()
        LIBRARY.call("gather", whole(blocks), tables, out, n * m, block_bytes(blocks))
        return out

    def copy_blocks(self, tensors: list[Tensor], pairs: Tensor) -> None:
        """Copy block src to block dst for each (src, dst) of `pairs` [p, 2], in every tensor."""
        if not tensors:
            return
        table, all_bits, largest = self._table_of(tensors)
        table.reaches = tensors
        LIBRARY.call(
            "copy_blocks", table, pairs.contiguous(), len(tensors), len(pairs), all_bits, largest
        )
        table.reaches = ()  # the table is kept, and must not keep a pool alive

    # ANCHOR: table_of
    def _table_of(self, tensors: list[Tensor]) -> tuple[AddressTable, int, int]:
        """Where the tensors lie, [num_tensors, 2] on their device, and what the host must know of it.

        Made once: the tensors of a pool stay where they are, and each step would wait for the transfer.
        """
        places = [place for t in tensors for place in (whole(t).data_ptr(), block_bytes(t))]
        key = tuple(places)
        if key not in self._tables:
            all_bits = 0
            for number in places:
                all_bits |= number
            table = torch.tensor(places, dtype=torch.int64, device=tensors[0].device)
            self._tables[key] = table.as_subclass(AddressTable), all_bits, max(places[1::2])
        return self._tables[key]

    # ANCHOR_END: table_of

    def swap_blocks(self, source: Tensor, target: Tensor, pairs: Tensor) -> None:
        """Copy block `here` of source to block `there` of target for each (here, there) [p, 2]."""
        LIBRARY.call(
            "swap_blocks",
            whole(source),
            whole(target),
            pairs.contiguous(),
            len(pairs),
            block_bytes(source),
        )


def rows(x: Tensor) -> Tensor:
    """x, if each x[i] is contiguous."""
    if len(x) and not x[0].is_contiguous():
        raise ValueError(f"a tensor {list(x.shape)} whose rows are not contiguous: {x.stride()}")
    return x


def whole(x: Tensor) -> Tensor:
    """x, if it is contiguous, as the tensors of a pool are: what is written to a copy would be lost."""
    if not x.is_contiguous():
        raise ValueError(f"blocks {list(x.shape)} that are not contiguous: {x.stride()}")
    return x


def block_bytes(blocks: Tensor) -> int:
    return blocks.shape[1:].numel() * blocks.element_size()
