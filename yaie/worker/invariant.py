"""A model on the kernels of `InvariantBackend`, for `deterministic` on a GPU: no tile needs padding.

The backend's operations look at no other row, and `LlamaAdapter` computes layers with them alone. Here
the output head joins in, and all of it is tried once: kernels are cut by two tables, and a compiler
might order the sums of each in its own way.
"""

import torch
from torch import Tensor

from yaie.core.contracts import Attend
from yaie.core.errors import ConfigError
from yaie.core.gemm import InvariantGemm, PlainWeight
from yaie.models.adapter import ModelAdapter
from yaie.models.llama import LlamaAdapter
from yaie.worker.deterministic import attend_to_oneself

TRIED = 300
"""Rows: some tiles of many, and a last one that is not full."""
COUNTS = (1, 2, 15, 16, 17, 128, 200)


class InvariantAdapter(ModelAdapter):
    """Another adapter's `forward`, and its `logits` by the same products."""

    def __init__(self, adapter: ModelAdapter, products: InvariantGemm) -> None:
        """Raises ConfigError for a model that libraries compute a part of, and on a GPU where the number
        of rows does change a bit."""
        kind = (adapter.dtype, adapter.device, adapter.max_length)
        super().__init__(adapter.config, adapter.ops, *kind)
        self.kv_layers, self.vocab_size = adapter.kv_layers, adapter.vocab_size
        self._adapter = adapter
        self._products = products
        self._head = _head_of(adapter)
        if not counts_do_not_matter(self):
            self._products.use_one_tile()
            if not counts_do_not_matter(self):
                raise ConfigError(
                    "deterministic cannot be kept on this GPU: the same token came out different among "
                    "another number of tokens. Leave it out, or start with --device cpu.",
                    param="deterministic",
                )

    def forward(self, token_ids: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """See `ModelAdapter.forward`."""
        return self._adapter.forward(token_ids, positions, attend)

    def logits(self, hidden: Tensor) -> Tensor:
        """See `ModelAdapter.logits`."""
        return self._products.in_float32(hidden, self._head)


def _head_of(adapter: ModelAdapter) -> PlainWeight:
    """The weight of the output head. Raises ConfigError for a model that is not computed by products on
    plain weights."""
    if isinstance(adapter, LlamaAdapter) and adapter.plain is not None:
        head = adapter.head.plain
        if head is not None:
            return head
    raise ConfigError(
        "deterministic on a GPU takes models of the Llama, Mistral, Qwen2 and Qwen3 families whose "
        "weights are not quantized: for others PyTorch's libraries choose kernels by the size of the "
        "batch. Leave it out, or start with --device cpu.",
        param="deterministic",
    )


@torch.inference_mode()
def counts_do_not_matter(adapter: ModelAdapter) -> bool:
    """Whether the first rows of TRIED come out the same among themselves, for each of COUNTS."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(adapter.vocab_size, (TRIED,), generator=generator).to(adapter.device)
    places = torch.randint(adapter.max_length, (TRIED,), generator=generator).to(adapter.device)

    def both(count: int) -> Tensor:
        hidden = adapter.forward(ids[:count], places[:count], attend_to_oneself)
        logits = adapter.logits(hidden)
        return torch.cat([hidden.float(), logits], dim=1)

    whole = both(TRIED)
    return all(torch.equal(both(count), whole[:count]) for count in COUNTS)
