"""Addresses in memory that a kernel reads: how one launch reaches many tensors."""

from collections.abc import Sequence

from torch import Tensor


class AddressTable(Tensor):
    """A tensor of int64 that holds addresses of tensors, and perhaps other numbers, passed as any other.

    reaches: the tensors that lie there. On a GPU nobody asks. On a CPU, where kernels see copies of what
    they are given, these are copied too, and their addresses in the table become those of the copies.
    """

    reaches: Sequence[Tensor] = ()
