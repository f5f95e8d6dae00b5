"""Lab 17: steps as CUDA graphs, and a loop that runs one step ahead."""

from .inputs import Inputs, fill, idle, num_uploaded, parts_of, place
from .overlapped import OverlappedLoop
from .padded_step import PaddedStep
from .recording import Recording
from .runner import GraphRunner
from .sizes import padded_sizes, size_for, size_of
from .to_host import ToHost

__all__ = [
    "GraphRunner",
    "Inputs",
    "OverlappedLoop",
    "PaddedStep",
    "Recording",
    "ToHost",
    "fill",
    "idle",
    "num_uploaded",
    "padded_sizes",
    "parts_of",
    "place",
    "size_for",
    "size_of",
]
