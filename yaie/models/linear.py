"""`Linear`: the one matrix product of every hand-written adapter, made of a layout and a scheme."""

import torch
from torch import Tensor

from yaie.core.gemm import PlainWeight
from yaie.models.layout import Destination, Layout, whole
from yaie.models.schemes import Packing, Scheme, choose_scheme
from yaie.models.whole import Whole


class Linear:
    """y = x @ weight.T + bias.

    layout: which tensors of a checkpoint make up the weight. scheme: how it is stored and multiplied.
    sizes: columns of y that belong to each of those tensors, for `split`.
    """

    def __init__(
        self,
        layout: Layout,
        dtype: torch.dtype,
        device: torch.device,
        *,
        shared: Tensor | None = None,
        packing: Packing | None = None,
    ) -> None:
        """shared: see `Scheme`. packing: how the checkpoint packs the weight, if it does."""
        self.layout = layout
        self.sizes = layout.sizes
        if packing is not None:
            self.scheme: Scheme = packing.scheme(layout, dtype, device)
            return
        kind = choose_scheme(layout.out_features, layout.in_features, dtype, device)
        self.scheme = kind(layout, dtype, device, shared)

    def destinations(self, *names: str) -> dict[str, Destination]:
        """Where the tensors of the stacked products `names` go, in the order of `sizes`."""
        return self.scheme.destinations(names)

    @property
    def plain(self) -> PlainWeight | None:
        """For kernels that multiply by themselves; None if the scheme stores it in another way."""
        return self.scheme.plain

    def __call__(self, x: Tensor) -> Tensor:
        """x: [rows, in_features]; returns [rows, out_features]."""
        return self.scheme(x)

    def in_float32(self, x: Tensor) -> Tensor:
        """The same in float32 and, where the scheme can, never rounded to the dtype of x."""
        return self.scheme.in_float32(x) if self.scheme.widens else self.scheme(x).float()


def tied_linear(table: Tensor) -> Linear:
    """The output head that shares the embedding table [vocab, hidden].

    A scheme may need a second copy of it (`Scheme.extra_bytes`); looking up needs the plain one.
    """
    vocab, hidden = table.shape
    return Linear(whole(hidden, vocab), table.dtype, table.device, shared=table)


class SummedLinear:
    """A product whose inputs are split over ranks: each multiplies its columns of the weight, and the
    products are summed. Called like a `Linear`; the bias is added once, behind the sum."""

    def __init__(self, product: Linear, bias: Tensor | None, shard: Whole) -> None:
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
        """See `Linear.plain`; what a rank holds of it, to be summed by `Shard.onto`."""
        held = self._product.plain
        return None if held is None else PlainWeight(held.weight, self._bias)

    def __call__(self, x: Tensor) -> Tensor:
        """x: [rows, held inputs]; returns [rows, out_features]."""
        return self._summed(x)
