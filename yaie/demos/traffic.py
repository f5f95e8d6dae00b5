"""Memory that an operation reads and writes: PyTorch's, counted op by op, and a Triton kernel's.

PyTorch reads its inputs from memory and writes its outputs to it, once for each operation; a view moves
nothing. A kernel is counted in Triton's interpreter, load by load, without the lanes that are masked.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from yaie.core.errors import ConfigError

PICKS = ("index", "gather", "embedding", "index_select")
"""Operations that read no more of their first input than they put out."""


@dataclass(slots=True)
class Traffic:
    """launches: operations of PyTorch, or kernels. programs: of kernels. read, written: bytes. largest:
    bytes of the largest tensor that is made."""

    launches: int = 0
    programs: int = 0
    read: int = 0
    written: int = 0
    largest: int = 0

    @property
    def moved(self) -> int:
        """Bytes, both ways."""
        return self.read + self.written


class _Counting(TorchDispatchMode):
    """Counts operations; beside kernels only the tensors that are made for them."""

    def __init__(self, traffic: Traffic, *, kernels: bool = False) -> None:
        super().__init__()
        self._traffic = traffic
        self._kernels = kernels

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Without it PyTorch loads its compiler, which takes seconds and has nothing to do here."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        made = [leaf for leaf in tree_leaves(out) if isinstance(leaf, Tensor)]
        name = func.overloadpacket.__name__
        if not func.is_view:
            self._traffic.largest = max([self._traffic.largest, *map(_bytes, made)])
        if self._kernels:
            return out
        if not func.is_view and not name.startswith(("empty", "new_empty", "detach")):
            written = sum(map(_bytes, made))
            if name in PICKS:
                read = written + sum(map(_bytes, given[1:]))
            else:
                read = sum(map(_bytes, given))
            self._traffic.launches += 1
            self._traffic.read += read
            self._traffic.written += written
        return out


def _bytes(tensor: Tensor) -> int:
    """Those of its elements, but no more than there are in memory: an expanded one repeats them."""
    return min(tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes())


def of_torch(call: Callable[[], Any]) -> tuple[Any, Traffic]:
    """What a call returns, and what its operations moved."""
    traffic = Traffic()
    with _Counting(traffic):
        return call(), traffic


def of_triton(call: Callable[[], Any]) -> tuple[Any, Traffic]:
    """What a call returns, and what its kernels moved. Needs `interpreted`."""
    traffic = Traffic()
    # An infinity on the way is meant, and so is a hash that overflows.
    with _counted(traffic), made_beside(traffic), np.errstate(all="ignore"):
        return call(), traffic


def made_beside(traffic: Traffic) -> AbstractContextManager[Any]:
    """Within, `traffic` counts the tensors that are made, and nothing else of PyTorch's."""
    return _Counting(traffic, kernels=True)


def interpreted() -> None:
    """Raise ConfigError unless kernels run in Triton's interpreter: TRITON_INTERPRET is read when they
    are defined."""
    try:
        import triton
    except ImportError:
        raise ConfigError("this demo runs in Triton's interpreter: pip install triton") from None
    if not triton.knobs.runtime.interpret:
        raise ConfigError("this demo counts in Triton's interpreter: set TRITON_INTERPRET=1")


@contextmanager
def _counted(traffic: Traffic) -> Iterator[None]:
    """Patches of the interpreter: plain loads and stores go through the masked ones there."""
    import triton.runtime.interpreter as interpreter

    builder, grid = interpreter.InterpreterBuilder, interpreter.GridExecutor
    load, store = builder.create_masked_load, builder.create_masked_store
    place, launch = builder.set_grid_idx, grid.__call__

    def counted_load(self: Any, pointers: Any, mask: Any, *rest: Any, **more: Any) -> Any:
        traffic.read += _active(pointers, mask)
        return load(self, pointers, mask, *rest, **more)

    def counted_store(self: Any, pointers: Any, value: Any, mask: Any, *rest: Any) -> Any:
        traffic.written += _active(pointers, mask)
        return store(self, pointers, value, mask, *rest)

    def counted_place(self: Any, *args: Any) -> Any:
        traffic.programs += 1
        return place(self, *args)

    def counted_launch(self: Any, *args: Any, **kwargs: Any) -> Any:
        traffic.launches += 1
        return launch(self, *args, **kwargs)

    before = {
        (builder, "create_masked_load"): (load, counted_load),
        (builder, "create_masked_store"): (store, counted_store),
        (builder, "set_grid_idx"): (place, counted_place),
        (grid, "__call__"): (launch, counted_launch),
    }
    try:
        for (owner, name), (_, method) in before.items():
            setattr(owner, name, method)
        yield
    finally:
        for (owner, name), (method, _) in before.items():
            setattr(owner, name, method)


def _active(pointers: Any, mask: Any) -> int:
    """Bytes of the lanes that are not masked."""
    size = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
    if mask is None:
        return int(pointers.data.size) * size
    return int(np.broadcast_to(mask.data, pointers.data.shape).astype(bool).sum()) * size
