"""The backend in plain PyTorch: labs 1, 2, 3 and 5. It runs everywhere, and defines what is right."""

from collections.abc import Sequence

import torch

from yaie.backends.base import Backend, register_backend
from yaie.core.batch import KVLayerSpec
from yaie.core.contracts import BatchAttention, KVPool, Sampler, TransformerOps


@register_backend("torch")
class TorchBackend(Backend):
    """See `Backend`. The others are made of it: PyTorch fills the roles for which they have no kernels.

    It may not be captured: lab 5 groups the sequences of a batch by their lengths, on the host.
    """

    def make_ops(self) -> TransformerOps:
        ops: TransformerOps = self.parts["transformer_ops"].TransformerOps()
        return ops

    def make_pool(
        self,
        layers: Sequence[KVLayerSpec],
        num_blocks: int,
        block_size: int,
        dtype: torch.dtype,
        device: torch.device,
        num_host_blocks: int,
    ) -> KVPool:
        self.refuse_misfits(layers, dtype)
        pool: KVPool = self.parts["paged_cache"].KVPool(
            layers, num_blocks, block_size, dtype, device, num_host_blocks
        )
        return pool

    def make_attention(self, pool: KVPool) -> BatchAttention:
        attention: BatchAttention = self.parts["radix_attention"].RadixAttention(
            pool, self.make_ops()
        )
        return attention

    def make_sampler(self) -> Sampler:
        (lab,) = self.roles["sampler"]
        sampler: Sampler = self.parts[lab].Sampler()
        return sampler
