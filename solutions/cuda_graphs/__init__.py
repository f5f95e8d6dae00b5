"""Lab 17: decode steps as CUDA graphs, and a loop that runs one step ahead."""

from .decode_steps import DecodeSteps
from .inputs import fill, idle
from .overlapped import OverlappedLoop
from .padded_step import PaddedStep
from .recording import Recording
from .sizes import padded_sizes, size_for
from .to_host import ToHost

__all__ = [
    "DecodeSteps",
    "OverlappedLoop",
    "PaddedStep",
    "Recording",
    "ToHost",
    "fill",
    "idle",
    "padded_sizes",
    "size_for",
]
