"""The one matrix product of every hand-written adapter: a layout, stored by a scheme."""

import torch
from torch import Tensor

from yaie.core.gemm import PlainWeight
from yaie.models.layout import Destination, Layout, whole
from yaie.models.schemes import Packing, Scheme, choose_scheme
from yaie.models.whole import Whole


def make_linear(
    layout: Layout,
    dtype: torch.dtype,
    device: torch.device,
    *,
    shared: Tensor | None = None,
    packing: Packing | None = None,
) -> Scheme:
    """y = x @ weight.T + bias, on memory that is still to be filled.

    shared: see `Scheme`. packing: how the checkpoint packs the weight, if it does.
    """
    if packing is not None:
        return packing.scheme(layout, dtype, device)
    kind = choose_scheme(layout.out_features, layout.in_features, dtype, device)
    return kind(layout, dtype, device, shared)


def tied_linear(table: Tensor) -> Scheme:
    """The output head that shares the embedding table [vocab, hidden].

    A scheme may need a second copy of it (`Scheme.extra_bytes`); looking up needs the plain one.
    """
    vocab, hidden = table.shape
    return make_linear(whole(hidden, vocab), table.dtype, table.device, shared=table)


class SummedLinear:
    """A product whose inputs are split over ranks: each multiplies its columns of the weight, and the
    products are summed. Called like a `Scheme`; the bias is added once, behind the sum."""

    def __init__(self, product: Scheme, bias: Tensor | None, shard: Whole) -> None:
        """product: without bias. bias: [out] or None, to be filled, the same on every rank."""
        self._product = product
        self._bias = bias
        self._summed = shard.all_reduce(product, bias)

    def destinations(self, name: str) -> dict[str, Destination]:
        """Where the tensors of the product `name` go."""
        places = self._product.destinations(name)
        if self._bias is not None:
            places[f"{name}.bias"] = Destination(self._bias)
        return places

    @property
    def plain(self) -> PlainWeight | None:
        """See `Scheme.plain`; what a rank holds of it, to be summed by `Shard.onto`."""
        held = self._product.plain
        return None if held is None else PlainWeight(held.weight, self._bias)

    def __call__(self, x: Tensor) -> Tensor:
        """x: [rows, held inputs]; returns [rows, out_features]."""
        return self._summed(x)
