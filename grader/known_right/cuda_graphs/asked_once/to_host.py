"""The event is dropped when it has been waited for."""

from torch import Tensor

from yaie.core.contracts.graphs import Device, Event


class ToHost:
    def __init__(self, tensor: Tensor, device: Device) -> None:
        self._here = device.pinned(*tensor.shape, dtype=tensor.dtype)
        self._here.copy_(tensor, non_blocking=True)
        self._event: Event | None = device.event()
        self._event.record()

    def get(self) -> Tensor:
        event, self._event = self._event, None
        if event is not None:
            event.synchronize()
        return self._here
