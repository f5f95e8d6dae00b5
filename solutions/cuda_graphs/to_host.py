"""The way of sampled tokens to the host, which reads them while the next step computes with them."""

from torch import Tensor

from yaie.core.contracts.graphs import Device


# ANCHOR: to_host
class ToHost:
    """A tensor on its way to the host. Steps queued after it on the device do not delay it."""

    def __init__(self, tensor: Tensor, device: Device) -> None:
        """Queue the copy. The host continues at once, and whatever is queued next may overwrite the
        tensor."""
        # BEGIN SOLUTION 17.6
        self._tensor = device.pinned(*tensor.shape, dtype=tensor.dtype)
        self._tensor.copy_(tensor, non_blocking=True)
        self._event = device.event()
        self._event.record()
        # END SOLUTION

    def get(self) -> Tensor:
        """The tensor, once it has arrived."""
        # BEGIN SOLUTION 17.6
        self._event.synchronize()
        return self._tensor
        # END SOLUTION


# ANCHOR_END: to_host
