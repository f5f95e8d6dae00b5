"""What sees every operation of PyTorch in a block."""

from torch.utils._python_dispatch import TorchDispatchMode


class Watching(TorchDispatchMode):
    """Of it are made the modes that watch a part. PyTorch wraps `__torch_dispatch__` so that its
    compiler leaves it alone, and loads the compiler for that, which takes seconds: not here."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False
