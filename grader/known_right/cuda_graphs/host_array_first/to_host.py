"""Pinned memory is one row of numbers, which gets its shape when it is asked for, each time anew."""

from torch import Tensor

from yaie.core.contracts.graphs import Device


class ToHost:
    """A tensor on its way to the host. Steps queued after it on the device do not delay it."""

    def __init__(self, tensor: Tensor, device: Device) -> None:
        """Queue the copy. The host continues at once, and whatever is queued next may overwrite the
        tensor."""
        self._shape = tensor.shape
        self._event = device.event()
        self._row = device.pinned(tensor.numel(), dtype=tensor.dtype)
        self._row.view(tensor.shape).copy_(tensor, non_blocking=True)
        self._event.record()

    def get(self) -> Tensor:
        self._event.synchronize()
        return self._row.view(self._shape).clone()
