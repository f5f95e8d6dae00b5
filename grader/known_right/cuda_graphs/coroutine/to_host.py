"""What arrives is a property that is worked out once."""

from functools import cached_property

from torch import Tensor

from yaie.core.contracts.graphs import Device


class ToHost:
    """A tensor on its way to the host. Steps queued after it on the device do not delay it."""

    def __init__(self, tensor: Tensor, device: Device) -> None:
        """Queue the copy. The host continues at once, and whatever is queued next may overwrite the
        tensor."""
        here = device.pinned(*tensor.shape, dtype=tensor.dtype)
        self._parts = here.copy_(tensor, non_blocking=True), device.event()
        self._parts[1].record()

    @cached_property
    def _arrived(self) -> Tensor:
        here, event = self._parts
        event.synchronize()
        return here

    def get(self) -> Tensor:
        return self._arrived
