"""A table of the tokens that stays in the blocks of a GGUF, held once for both of its uses: rows are
looked up as embeddings, and the head multiplies by it."""

import torch
import torch.nn.functional as F
from torch import Tensor

from yaie.core.gemm import BlockGemm
from yaie.models.layout import Destination, Layout, whole
from yaie.models.linear import tied_linear
from yaie.models.schemes.base import Scheme
from yaie.models.schemes.blocks import BlockPlace


class BlockTable(Scheme):
    """[vocab, hidden]; as a `Scheme`, the output head. A table of another type is unpacked."""

    layout: Layout

    @classmethod
    def suits(
        cls, out_features: int, in_features: int, dtype: torch.dtype, device: torch.device
    ) -> bool:
        return False  # see `BlockScheme`

    def __init__(self, vocab: int, hidden: int, dtype: torch.dtype, products: BlockGemm) -> None:
        self.layout = whole(hidden, vocab)
        self._products = products
        self._dense: Scheme | None = None
        self._place = BlockPlace(
            torch.empty(0, dtype=dtype), rows=vocab, columns=hidden, gemm=products
        )

    def destinations(self, *names: str) -> dict[str, Destination]:
        return {f"{name}.weight": self._place for name in names}

    def embed(self, token_ids: Tensor) -> Tensor:
        """token_ids: [T] int64. Returns [T, hidden]."""
        place = self._place
        if place.blocks is None:
            return F.embedding(token_ids, place.target)
        out = place.target.new_empty(len(token_ids), place.columns)
        self._products.rows(place.blocks, token_ids, out)
        return out

    def __call__(self, x: Tensor) -> Tensor:
        return self.in_float32(x).to(x.dtype)

    def in_float32(self, x: Tensor) -> Tensor:
        place = self._place
        if place.blocks is not None:
            out = torch.empty(len(x), place.rows)
            self._products.product(x.float(), place.blocks, out)
            return out
        if self._dense is None:
            self._dense = tied_linear(place.target)
        return self._dense.in_float32(x)
