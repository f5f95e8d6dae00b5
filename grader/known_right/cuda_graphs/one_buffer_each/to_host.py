"""A copy of the device's own, made at once, and one to the host behind it."""

from torch import Tensor

from yaie.core.contracts.graphs import Device


class ToHost:
    """A tensor on its way to the host."""

    def __init__(self, tensor: Tensor, device: Device) -> None:
        self._done = device.event()
        self._here = device.pinned(*tensor.shape, dtype=tensor.dtype)
        self._here.copy_(tensor, True)
        self._done.record()
        self._arrived = False

    def get(self) -> Tensor:
        if not self._arrived:
            self._done.synchronize()
            self._arrived = True
        return self._here
