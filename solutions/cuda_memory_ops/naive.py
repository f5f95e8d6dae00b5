"""The kernels of `naive.cu`, with the methods of `MemoryKernels`: one thread a row. The oracle."""

from torch import Tensor

from .memory_kernels import LIBRARY, rows, whole


class NaiveMemoryKernels:
    """See `yaie.core.contracts.kernels.MemoryKernels`."""

    def store_kv(
        self, k: Tensor, v: Tensor, key_blocks: Tensor, value_blocks: Tensor, slot_mapping: Tensor
    ) -> None:
        LIBRARY.call(
            "naive_store_kv",
            rows(k),
            rows(v),
            whole(key_blocks),
            whole(value_blocks),
            slot_mapping,
            len(slot_mapping),
            k.shape[1:].numel(),
            k.stride(0),
            v.stride(0),
            k.element_size(),
        )

    def gather(self, blocks: Tensor, block_tables: Tensor) -> Tensor:
        n, m = block_tables.shape
        out = blocks.new_empty(n, m * blocks.shape[1], *blocks.shape[2:])
        tables, block = block_tables.contiguous(), blocks.shape[1:].numel()
        LIBRARY.call(
            "naive_gather", whole(blocks), tables, out, n * m, block, blocks.element_size()
        )
        return out

    def copy_blocks(self, tensors: list[Tensor], pairs: Tensor) -> None:
        """A launch for each tensor."""
        for tensor in tensors:
            self.swap_blocks(tensor, tensor, pairs)

    def swap_blocks(self, source: Tensor, target: Tensor, pairs: Tensor) -> None:
        block, number = source.shape[1:].numel(), source.element_size()
        LIBRARY.call(
            "naive_swap_blocks",
            whole(source),
            whole(target),
            pairs.contiguous(),
            len(pairs),
            block,
            number,
        )
