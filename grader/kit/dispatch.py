"""What sees every operation of PyTorch in a block."""

from torch.utils._python_dispatch import TorchDispatchMode


class Watching(TorchDispatchMode):
    """A base for modes that watch a part. For others PyTorch loads its compiler at the first operation,
    to keep it away from `__torch_dispatch__`; that takes seconds."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False
